"""``make gpu-check`` where there is no GPU, and what it runs on one, on a CPU."""

import json
import subprocess
import sys
from functools import partial

import pytest

from benchmarks.common.rounds import Result
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


def test_learners_and_trainings_are_measured_and_judged(monkeypatch):
    small = ('--set', 'policy.model.encoder_hidden_size_list=[8,8,8,16]', '--set', 'policy.learn.batch_size=8')
    learner = partial(check.Learner, device='cpu')
    learners = {"DI-engine's dqn": 'dqn', 'lean_dqn': 'lean_dqn'}
    learners = {name: partial(learner, kind, check.peers.Frame, {}) for name, kind in learners.items()}
    trainings = {name: (*check.TRAININGS[name], *small) for name in (check.TRIO, 'lean_dqn, overlapped')}
    trainings['wrong'] = ('-c', 'configs/nowhere.py')
    for name, value in dict(LEARNERS=learners, TRAININGS=trainings, BATCH_SIZES=(16,), TRANSITIONS=320).items():
        monkeypatch.setattr(check, name, value)
    result = Result(None, [], rows=[])
    rows = {row.name: row for row in check.speed_rows(result, True, 0.3, 12, 'cpu')}
    assert rows['updates/s, batch of 16'].state == 'pass'
    assert rows['training: wrong'].state == 'fail' and 'ended with 2' in rows['training: wrong'].found
    for name in (check.TRIO, 'lean_dqn, overlapped'):
        figures = result.content['trainings'][name]
        assert figures['updates_per_s'] > 0
        assert figures['env_steps_per_s'] == pytest.approx(4 * figures['updates_per_s'], rel=0.2)
    assert 'expected 4 or more' in rows["the trio's env steps/s"].found
