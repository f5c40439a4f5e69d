"""Benchmarks run and write what they measure; here in their shortest form, and without other libraries."""

import json
import sys

import pytest

from helpers.processes import ROOT, run


def bench(name, out, *options):
    run([sys.executable, '-m', f'benchmarks.{name}', '--out', out, *options], ROOT)
    result = json.loads(out.read_text())
    assert {'cpu', 'cores', 'date', 'commit', 'versions'} <= set(result)
    return result


@pytest.mark.parametrize(
    'name, options',
    [
        ('env_manager.throughput', ['--env-num', 2, '--only', 'halves']),
        ('training.speed', ['--random-steps', 64, '--warm-up-seconds', 0, '--only', 'overlapped']),
    ],
)
def test_a_contestant_is_measured(tmp_path, name, options):
    section = bench(name, tmp_path / 'out.json', '--repeats', 1, '--seconds', 0.3, *options)['sections'][0]
    (row,) = section['rows']
    assert 0 < row['low'] <= row['median'] <= row['high']


def test_replay_buffers_are_filled_with_recorded_play(tmp_path):
    recording = tmp_path / 'random.play'
    run([sys.executable, '-m', 'benchmarks.common.recording', '--steps', '4500', '--out', recording], ROOT)
    options = ['--play', recording, '--size', 2000, '--only', 'compressed', '--only', 'ring']
    results = bench('replay.cost', tmp_path / 'out.json', *options)['results']
    assert results['compressed']['2000']['bytes_per_transition'] < results['ring']['2000']['bytes_per_transition']
