"""The benchmarks run and print what they measure; here in their shortest form, and without other libraries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def bench(script, out, *options):
    command = [sys.executable, str(ROOT / 'benchmarks' / script), '--repeats', '1', '--out', str(out), *options]
    done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert {'cpu', 'cores', 'date', 'versions'} <= set(result)
    for section in result['sections']:
        for row in section['rows']:
            assert 'failure' not in row, row
            assert row['low'] <= row['median'] <= row['high'] and row['median'] > 0
            assert row['name'] in done.stdout
    return result


def names(section):
    return {row['name'] for row in section['rows']}


def test_managers_are_measured_for_each_number_of_environments(tmp_path):
    options = ['--scaling', '--env-nums', '1,2', '--seconds', '0.3', '--only', 'subprocess', '--only', '1 worker']
    result = bench('bench_manager.py', tmp_path / 'out.json', *options)
    assert [section['env_num'] for section in result['sections']] == [1, 2]
    for section in result['sections']:
        assert names(section) == {"DI-engine's subprocess", 'ours, breakout, 1 worker'}
        ratios = {row['name']: row['ratio'] for row in section['rows']}
        assert ratios["DI-engine's subprocess"] == 1 and ratios['ours, breakout, 1 worker'] > 0


def test_learners_are_measured_on_play_that_the_script_records(tmp_path):
    options = ['--seconds', '0.2', '--transitions', '320', '--batch-sizes', '16', '--threads', '1']
    options += ['--only', 'its own buffer', '--only', 'lean_dqn, bfloat16']
    result = bench('bench_learner.py', tmp_path / 'out.json', *options)
    (section,) = result['sections']
    assert (section['batch_size'], section['threads']) == (16, 1)
    assert names(section) == {"DI-engine's dqn, its own buffer", 'ours, lean_dqn, bfloat16'}


def test_trainings_that_are_compared_make_an_update_every_4_steps(tmp_path):
    options = ['--seconds', '0.5', '--warm-up-seconds', '0', '--random-steps', '64', '--threads', '1']
    only = ['--only', 'serial pipeline', '--only', 'overlapped, bfloat16']
    (section,) = bench('bench_train.py', tmp_path / 'out.json', *options, *only)['sections']
    assert len(section['rows']) == 2
    for row in section['rows']:
        # less where the few collections of so short a time were longer than asked for, as DI-engine's sometimes are
        assert 8 / 56 < row['updates_per_step'] <= 0.25


class Steady(object):
    def turn(self, value):
        print('not for the screen')
        return dict(value=value, process=os.getpid())

    def close(self):
        pass


class Dying(Steady):
    def turn(self, value):
        os._exit(3)


class Raising(Steady):
    def turn(self, value):
        raise ValueError(f'{value} is not to my taste')


@pytest.fixture
def turns(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    import turns

    return turns


def test_a_contestant_that_fails_is_a_row_and_the_others_go_on(turns, capfd):
    builds = dict(steady=Steady, dying=Dying, raising=Raising)
    runs, failures = turns.take_turns(builds, 2, value=7)
    section = turns.show('who', runs, failures, 'value', 'steady')
    assert [run['value'] for run in runs['steady']] == [7, 7]
    assert failures == dict(dying='died, exit code 3', raising='ValueError: 7 is not to my taste')
    by_name = {row['name']: row for row in section['rows']}
    assert by_name['steady']['ratio'] == 1 and by_name['dying']['failure'] == 'died, exit code 3'
    printed = capfd.readouterr().out
    assert 'died, exit code 3' in printed and 'not for the screen' not in printed


def test_a_contestant_keeps_its_process_only_if_it_is_to_stay(turns):
    for stay in (False, True):
        runs, _ = turns.take_turns(dict(steady=Steady), 2, stay=stay, value=1)
        assert (len({run['process'] for run in runs['steady']}) == 1) == stay
