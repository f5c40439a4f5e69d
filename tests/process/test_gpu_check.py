"""``make gpu-check`` where there is no GPU, and what it runs on one, on a CPU."""

import json
import subprocess
import sys

import pytest

from benchmarks.gpu import check
from breakout_env.cli import gpu_checks
from helpers.processes import ROOT


def test_without_a_gpu_it_runs_what_needs_none_and_says_so_of_the_rest(tmp_path):
    out = tmp_path / 'gpu_check.json'
    command = [sys.executable, '-m', 'benchmarks.gpu.check', '--out', str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    states = {row['name']: row['state'] for row in json.loads(out.read_text())['rows']}
    tests = {name for name in states if name.startswith('no GPU: ')}
    assert len(tests) >= 20 and {states[name] for name in tests} == {'pass'}
    assert {states[name] for name in set(states) - tests} == {'not applicable'}


@pytest.mark.parametrize(
    'look', [lambda: gpu_checks.out_of_memory('cpu'), lambda: gpu_checks.two_ranks(cuda=False)], ids=['full', 'ranks']
)
def test_its_programs_run_on_a_cpu(look):
    assert look().state == 'ok'


def test_trainings_are_measured_between_the_first_update_and_the_end():
    small = ('--set', 'policy.model.encoder_hidden_size_list=[8,8,8,16]', '--set', 'policy.learn.batch_size=8')
    figures = check.trained('it', (*check.LEAN, *small), 12, 'cpu')
    assert figures['updates_per_s'] > 0
    assert figures['env_steps_per_s'] == pytest.approx(4 * figures['updates_per_s'], rel=0.2)


def test_an_unknown_config_becomes_a_message():
    with pytest.raises(check.click.ClickException, match='it ended with 2: .*'):
        check.trained('it', ('-c', 'configs/nowhere.py'), 5, 'cpu')
