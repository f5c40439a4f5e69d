"""Benchmarks run and write what they measure; here in their shortest form, and without other libraries."""

import json
import subprocess
import sys

import pytest

from helpers.processes import ROOT


def bench(name, out, *options):
    command = [sys.executable, '-m', f'benchmarks.{name}', '--out', str(out), *map(str, options)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert {'cpu', 'cores', 'date', 'commit', 'versions'} <= set(result)
    return result


@pytest.mark.parametrize(
    'name, options, contestants',
    [
        ('env.speed', ['--only', 'BreakoutEnv', '--only', 'ALE act'], 2),
        ('env_manager.throughput', ['--env-nums', 2, '--only', 'subprocess', '--only', 'ours'], 4),
        ('learner.updates', ['--transitions', 320, '--batch-sizes', 16, '--only', 'lean_dqn'], 2),
        ('learner.networks', ['--only', 'half width, '], 3),
        ('training.speed', ['--random-steps', 64, '--warm-up-seconds', 0, '--only', 'overlapped'], 2),
    ],
)
def test_contestants_are_compared(tmp_path, name, options, contestants):
    section = bench(name, tmp_path / 'out.json', '--repeats', 1, '--seconds', 0.3, *options)['sections'][0]
    assert len(section['rows']) == contestants
    assert all(row['low'] <= row['median'] <= row['high'] and row['median'] > 0 for row in section['rows'])


def test_replay_buffers_are_filled_with_recorded_play(tmp_path):
    recording = tmp_path / 'random.play'
    command = ['-m', 'benchmarks.common.recording', '--steps', '4500', '--out', str(recording)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, timeout=120)
    options = ['--play', recording, '--sizes', 2000, '--only', 'compressed', '--only', 'ring']
    results = bench('replay.cost', tmp_path / 'out.json', *options)['results']
    assert results['compressed']['2000']['bytes_per_transition'] < results['ring']['2000']['bytes_per_transition']


def test_the_time_of_a_step_an_update_and_a_rollout_is_split_into_parts(tmp_path):
    options = ['--seconds', 0.5, '--updates', 3, '--transitions', 300, '--rollouts', 1]
    shares = bench('training.time_shares', tmp_path / 'out.json', *options)
    assert sum(shares['env'].values()) == pytest.approx(1)
    for parts in shares['learners'].values():
        assert 0 < parts['an update'] <= sum(parts.values()) - parts['an update'] + 1e-6
    assert shares['ppo']['collecting it'] > 0 and shares['ppo']['48 updates: convolutions, backward'] > 0


def test_env_step_takes_a_fraction_of_the_bytes_of_the_stock_exchange(tmp_path):
    rows = bench('distributed.exchange', tmp_path / 'out.json', '--env-steps', 512)['sections'][0]['rows']
    ours, *stock = rows
    # the fewest that the stock exchange can do with are 2 stacks of 4 screens, 84 x 84
    assert len(stock) == 2 and all(row['play_bytes_per_env_step'] > 2 * 4 * 84 * 84 for row in stock)
    assert all(row['ratio'] >= 50 for row in stock) and ours['ratio'] == 1
