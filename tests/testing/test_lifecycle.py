"""The lifecycle kit names each planted fault and finds none in sound environments."""

import json
import os
import signal
import sys
import tempfile

import pytest
from click.testing import CliRunner

from breakout_env.cli.check_env_command import command
from breakout_env.testing import check_lifecycle, lifecycle_checks
from examples.minimal_env import MinimalEnv
from helpers.lifecycle_envs import FAULTY, SOUND, no_reset_after_close, planted, spaces_after_reset
from helpers.processes import Command
from helpers.resources import children

CHECKS = {check.__name__: check for check in lifecycle_checks()}


@pytest.mark.parametrize('check, env', FAULTY, ids=lambda value: value if isinstance(value, str) else '')
def test_a_planted_fault_is_found_by_its_check(check, env, same_footprint):
    with pytest.raises(AssertionError) as caught:
        CHECKS[check](env, steps=20, time_limit_s=3.0)
    assert 'docs/lifecycle.md#' in str(caught.value)


@pytest.mark.parametrize('env', SOUND, ids=lambda env: env.__name__)
def test_a_sound_environment_passes_without_a_finding(env, same_footprint):
    assert not [finding for finding in check_lifecycle(lambda: env(), steps=20) if finding.state != 'pass']


def test_the_minimal_example_passes_with_its_window(display, same_footprint):
    assert not [finding for finding in check_lifecycle(MinimalEnv) if finding.state != 'pass']


def test_shared_memory_of_other_programs_is_no_finding_and_stays():
    with tempfile.NamedTemporaryFile(dir='/dev/shm') as of_others:
        CHECKS['close_releases'](planted(at_open=lambda env: open(of_others.name, 'w').close()), steps=5)
        assert os.path.exists(of_others.name)


def test_a_call_that_failed_is_reported_once():
    report = check_lifecycle(no_reset_after_close, steps=5, cycles=2)
    assert report.failed == ['reset_after_close'] and not report.passed
    states = {finding.check: finding.state for finding in report}
    assert states['close_after_error'] == 'skipped' and 'reset_after_close' in str(report)


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
    result = CliRunner().invoke(command, ['mine:Mine', '--json', '--config', 'config.py'])
    findings = json.loads(result.output)
    assert result.exit_code == 1 and [row['check'] for row in findings] == list(CHECKS)
    assert [row['found'] for row in findings if row['check'] == 'close_before_reset'] == [
        'close before the first reset raised RuntimeError: planted (mine.py:5)'
    ]
    assert 'PACKAGE.MODULE:CLASS' in CliRunner().invoke(command, ['mine']).output and not children()
