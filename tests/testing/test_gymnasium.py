"""The lifecycle kit by gymnasium's contract: it names each planted fault and finds none in sound environments."""

import json
import multiprocessing
import sys
import unittest

import gymnasium
import pytest
from click.testing import CliRunner

from breakout_cli.check_env import command
from breakout_env.testing import check_lifecycle, gymnasium_env, lifecycle_checks, windows
from helpers.gymnasium_envs import FAULTY_BY_GYMNASIUM, Converted, by_gymnasium, gymnasium_fault
from helpers.lifecycle_envs import SOUND, opened_child, planted

CHECKS = {check.__name__: check for check in lifecycle_checks(gymnasium=True)}


@pytest.mark.parametrize('check, make', FAULTY_BY_GYMNASIUM, ids=lambda value: value if isinstance(value, str) else '')
def test_a_planted_fault_is_found_by_its_check(check, make, display, same_footprint):
    with pytest.raises(AssertionError):
        CHECKS[check](gymnasium_env(make), steps=20, cycles=2, time_limit_s=3.0)


@pytest.mark.parametrize('cls', SOUND, ids=lambda cls: cls.__name__)
def test_a_sound_environment_passes_without_a_finding(cls, display, same_footprint):
    report = check_lifecycle(gymnasium_env(by_gymnasium(cls)), steps=20, cycles=2)
    assert not [finding for finding in report if finding.state != 'pass'], str(report)
    assert [finding.check for finding in report] == list(CHECKS)


def test_gymnasiums_own_environment_passes(display, same_footprint):
    report = check_lifecycle(gymnasium_env(lambda: gymnasium.make('CartPole-v1')), steps=20, cycles=2)
    assert {finding.state for finding in report} == {'pass'}, str(report)


@pytest.mark.parametrize(
    'check, make, found',
    [
        ('works', lambda: None, 'it is a NoneType without reset, step, close'),
        ('works', gymnasium_fault(step=lambda env, action: (1, 2)), 'step returned (1, 2); expected obs, reward, term'),
        ('same_seed_same_episode', gymnasium_fault(reset=lambda env: (env.env.reset(), {})), 'reset(seed=7)'),
    ],
)
def test_a_finding_speaks_gymnasiums_language(check, make, found):
    report = check_lifecycle(gymnasium_env(make), steps=20, cycles=2)
    (finding,) = (finding for finding in report if finding.check == check)
    assert finding.state == 'fail' and found in finding.found and 'seed=None, options=None' in finding.fix


def test_what_gymnasium_leaves_to_the_caller_is_no_finding():
    report = check_lifecycle(gymnasium_env(by_gymnasium(planted(at_open=opened_child))), steps=5, cycles=2)
    assert report.passed


def test_a_key_that_the_last_info_lacks_is_a_warning():
    def step(env, action):
        *values, info = Converted.step(env, action)
        return (*values, {} if info else {'key': 1})

    env = gymnasium_fault(step=step)
    with pytest.warns(UserWarning, match='the info of the last step lacks key'):
        CHECKS['info_at_the_end'](gymnasium_env(env), steps=20)


def test_a_process_in_workers_that_are_daemons_is_a_warning():
    env = gymnasium_fault(at_init=lambda env: multiprocessing.Process(target=int).start())
    with pytest.warns(UserWarning, match='it works with daemon=False'):
        CHECKS['vector_envs'](gymnasium_env(env))


def test_the_window_needs_a_function_that_can_ask_for_it(display):
    with pytest.raises(unittest.SkipTest, match='takes no render_mode'):
        CHECKS['human_window'](gymnasium_env(lambda: Converted()))


@pytest.mark.parametrize('display, missing', [('', 'DISPLAY is not set'), (':0', 'pip install python-xlib')])
def test_the_window_needs_a_display_and_python_xlib(display, missing, monkeypatch):
    monkeypatch.setenv('DISPLAY', display)
    monkeypatch.setattr(windows, 'Display', None)
    with pytest.raises(unittest.SkipTest, match=missing):
        CHECKS['human_window'](gymnasium_env(by_gymnasium(SOUND[0])))


@pytest.mark.parametrize(
    'arguments',
    [['--gymnasium', 'game_of_mine:Mine'], ['--gymnasium', 'game_of_mine:Mine-v0']],
)
def test_the_command_takes_a_class_or_an_id(arguments, monkeypatch, tmp_path):
    (tmp_path / 'game_of_mine.py').write_text(
        'import gymnasium\n'
        'class Mine(gymnasium.Env):\n'
        '    observation_space = action_space = gymnasium.spaces.Discrete(2)\n'
        '    def reset(self, *, seed=None, options=None):\n'
        '        return 5, {}\n'
        '    def step(self, action):\n'
        '        return 5, 0.0, True, False, {}\n'
        "gymnasium.register('Mine-v0', Mine)\n"
    )
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, 'game_of_mine', raising=False)
    monkeypatch.delitem(gymnasium.registry, 'Mine-v0', raising=False)
    result = CliRunner().invoke(command, [*arguments, '--json'])
    assert result.exit_code == 1
    assert [row['check'] for row in json.loads(result.output) if row['state'] == 'fail'] == ['matches_spaces']


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['--gymnasium', 'Nothing-v1'], "Environment `Nothing` doesn't exist"),
        (['--gymnasium', 'no_module:Env'], "No module named 'no_module'"),
        (['--gymnasium', 'CartPole-v1', '--config', __file__], 'expected none for gymnasium'),
    ],
)
def test_the_command_names_what_gymnasium_cannot_make(arguments, expected):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2 and expected in result.output and 'Traceback' not in result.output


def test_something_else_than_a_function_is_an_error():
    with pytest.raises(ValueError, match=r"make='CartPole-v1'; expected a class or a function"):
        gymnasium_env('CartPole-v1')
