"""The lifecycle kit names each planted fault and finds none in sound environments."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import pytest
from click.testing import CliRunner

from breakout_cli.check_env import command
from breakout_env.testing import check_lifecycle, lifecycle, lifecycle_checks
from examples.minimal_env import MinimalEnv
from helpers.lifecycle_envs import (
    BROKEN,
    FAILING_CALLS,
    FAULTY,
    SOUND,
    planted,
    raise_if,
    raise_key_error,
    spaces_after_reset,
)
from helpers.processes import ROOT, Command
from helpers.resources import children

CHECKS = {check.__name__: check for check in lifecycle_checks()}
FIXES = {check.__name__: check.__doc__ for check in lifecycle.DING}


@pytest.mark.parametrize('check, env', FAULTY, ids=lambda value: value if isinstance(value, str) else '')
def test_a_planted_fault_is_found_by_its_check(check, env, same_footprint):
    with pytest.raises(AssertionError) as caught:
        CHECKS[check](env, steps=20, time_limit_s=3.0)
    assert ' '.join(FIXES[check].split('\n\n')[0].split()) in str(caught.value)


@pytest.mark.parametrize('env, found', BROKEN, ids=[found for _, found in BROKEN])
def test_an_environment_that_does_not_work_is_one_finding(env, found):
    (finding,) = report = check_lifecycle(env, steps=20, time_limit_s=3.0)
    assert finding.found.startswith('the environment does not work at all: ') and found in finding.found
    assert '--config' in finding.fix and '`lambda: MyEnv(cfg)`' in finding.fix
    assert str(report).endswith(f'\n1 of {len(CHECKS)} checks failed, {len(CHECKS) - 1} were skipped')


@pytest.mark.parametrize('env, check, found, fix', FAILING_CALLS, ids=[f'{row[1]}-{row[2]}' for row in FAILING_CALLS])
def test_a_call_that_fails_is_one_finding_with_its_own_advice(env, check, found, fix):
    report = check_lifecycle(env, steps=20, cycles=2, time_limit_s=3.0)
    assert report.failed == [check] and not report.passed, str(report)
    (finding,) = (finding for finding in report if finding.state == 'fail')
    assert finding.found.startswith(found) and fix in finding.fix
    assert f'skipped  as {check}: ' in str(report)


@pytest.mark.parametrize('check', ['close_in_time', 'lazy_constructor', 'managers'])
def test_a_single_check_leaves_what_does_not_work_to_works(check):
    env = planted(at_init=raise_key_error)
    with pytest.raises(unittest.SkipTest, match='does not work at all: the constructor raised KeyError'):
        CHECKS[check](env)
    with pytest.raises(AssertionError, match='does not work at all: the constructor raised KeyError'):
        CHECKS['works'](env)


@pytest.mark.parametrize(
    'allowed, call',
    [
        (lambda: os.getpid() == os.getsid(0), 'in another process, reset'),
        (lambda: not multiprocessing.current_process().daemon, 'reset of the subprocess manager'),
    ],
)
def test_an_error_in_child_processes_alone_has_advice_about_them(allowed, call):
    report = check_lifecycle(planted(at_reset=lambda env: raise_if(not allowed())), steps=20, cycles=2)
    (finding,) = (finding for finding in report if finding.state == 'fail')
    assert finding.found.startswith(f'{call} raised RuntimeError') and 'worker processes' in finding.fix


def test_the_example_in_the_docs_runs_alone_as_a_program(tmp_path):
    snippets = re.findall(r'```python\n(.*?)```', (ROOT / 'docs' / 'lifecycle.md').read_text(), re.S)
    (example,) = (code for code in snippets if 'print(' in code)
    (tmp_path / 'program.py').write_text(example)
    result = subprocess.run([sys.executable, 'program.py'], capture_output=True, text=True)
    assert result.stdout.endswith(f'\n0 of {len(CHECKS)} checks failed\n'), result.stderr


@pytest.mark.parametrize('env', SOUND, ids=lambda env: env.__name__)
def test_a_sound_environment_passes_without_a_finding(env, same_footprint):
    assert not [finding for finding in check_lifecycle(lambda: env(), steps=20) if finding.state != 'pass']


def test_the_minimal_example_passes_with_its_window(display, same_footprint):
    assert not [finding for finding in check_lifecycle(MinimalEnv) if finding.state != 'pass']


def test_shared_memory_of_other_programs_is_no_finding_and_stays():
    with tempfile.NamedTemporaryFile(dir='/dev/shm') as of_others:
        CHECKS['close_releases'](planted(at_open=lambda env: open(of_others.name, 'w').close()), steps=5)
        assert os.path.exists(of_others.name)


def test_spaces_that_come_with_reset_are_a_warning():
    with pytest.warns(UserWarning, match='observation_space'):
        CHECKS['spaces_before_reset'](spaces_after_reset)


def test_a_check_ends_with_the_program_that_is_killed(tmp_path):
    program = (
        'import signal\n'
        'from breakout_env import BreakoutEnv\n'
        'from breakout_env.testing import check_lifecycle\n'
        'class Hangs(BreakoutEnv):\n'
        '    def reset(self):\n'
        "        open('begun', 'w').close()\n"
        '        signal.pause()\n'
        'check_lifecycle(Hangs, time_limit_s=600)\n'
    )
    command = Command([sys.executable, '-c', program], tmp_path)
    command.wait_for((tmp_path / 'begun').exists)
    assert command.end(signal.SIGKILL) == -signal.SIGKILL


def test_the_command_has_findings_and_an_exit_code(monkeypatch, tmp_path):
    (tmp_path / 'mine.py').write_text(
        'from breakout_env import BreakoutEnv\n'
        'class Mine(BreakoutEnv):\n'
        '    def close(self):\n'
        "        if 'frame_stack=2' in repr(self):\n"
        "            raise RuntimeError('planted')\n"
        '        super().close()\n'
    )
    (tmp_path / 'config.py').write_text('main_config = dict(env=dict(collector_env_num=2, frame_stack=2))\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'mine', raising=False)  # of another test
    result = CliRunner().invoke(command, ['mine:Mine', '--json', '--config', 'config.py'])
    findings = json.loads(result.output)
    assert result.exit_code == 1 and [row['check'] for row in findings] == list(CHECKS)
    assert [row['found'] for row in findings if row['check'] == 'close_before_reset'] == [
        'close before the first reset raised RuntimeError: planted (mine.py:5)'
    ]
    assert not children()


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['mine'], 'expected PACKAGE.MODULE:CLASS'),
        (['mine:Missing'], "module 'mine' has no attribute 'Missing'"),
        (['mine:number'], 'mine:number cannot be called with cfg alone'),
        (['mine:Two'], 'mine:Two cannot be called with cfg alone'),
        (['mine:One', '--config', 'config.py'], 'mine:One cannot be called with cfg alone'),
        (['mine:Defaults'], "mine:Defaults does not take its config: KeyError: 'a key' (mine.py:6)"),
        (['broken:Env'], "broken:Env cannot be imported: NameError: name 'nothing' is not defined (broken.py:1)"),
        (['ends:Env'], 'ends:Env cannot be imported: SystemExit: 3 (ends.py:2)'),
        (['mine:Defaults', '--config', 'ends.py'], 'ends.py is not a config: SystemExit: 3'),
        (['mine:Defaults', '--config', 'mine.py'], "mine.py is not a config: KeyError: 'main_config'"),
    ],
)
def test_the_command_names_what_cannot_make_an_environment(arguments, expected, monkeypatch, tmp_path):
    (tmp_path / 'mine.py').write_text(
        'number = 3\n'
        'def Two(cfg, more): pass\n'
        'def One(size): pass\n'
        'class Defaults:\n'
        '    def default_config():\n'
        "        raise KeyError('a key')\n"
    )
    (tmp_path / 'config.py').write_text('main_config = dict(env=dict(size=2))\n')
    (tmp_path / 'broken.py').write_text('nothing\n')
    (tmp_path / 'ends.py').write_text('import sys\nsys.exit(3)\n')
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    for name in ('mine', 'broken', 'ends'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2 and expected in result.output and 'Traceback' not in result.output


@pytest.mark.parametrize('made', ['PendulumEnv', 'make'])
def test_the_command_asks_for_the_config_that_a_constructor_needs(made, monkeypatch, tmp_path):
    (tmp_path / 'pendulum.py').write_text(
        'from dizoo.classic_control.pendulum.envs import PendulumEnv\n'
        'def make(cfg=None):\n'
        '    return PendulumEnv(cfg or {})\n'
    )
    (tmp_path / 'config.py').write_text('main_config = dict(env=dict(collector_env_num=1, act_scale=True))\n')
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    result = CliRunner().invoke(command, [f'pendulum:{made}'])
    assert result.exit_code == 1 and 'act_scale' in result.output and '--config FILE' in result.output
    assert '1 of ' in result.output.splitlines()[-1] and len(result.output.splitlines()) == 3
    result = CliRunner().invoke(command, [f'pendulum:{made}', '--config', 'config.py', '--json'])
    assert next(row['state'] for row in json.loads(result.output)) == 'pass'
