"""Overlapped runs as a user starts them: stopped, killed, broken, resumed."""

import signal
import sys
from pathlib import Path

import pytest

from breakout_env.run.checkpoints import saves_in
from helpers.processes import Command
from helpers.runs import ENTRY, N_SAMPLE, NAME, UPDATES, check_saves, config_in, curves, expected_transitions


@pytest.mark.parametrize(
    'number, whole_group', [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, True)]
)
def test_an_ended_run_resumes_with_the_same_ratio(tmp_path, number, whole_group):
    """A kill may interrupt a save, which the learner's thread begins while games are played."""
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0.2)
    command = [*ENTRY, '-c', str(config), '--overlap']
    first = Command(command, tmp_path)
    first.wait_for(lambda: saves_in(folder))
    code = first.end(number, whole_group)
    assert code == (-number if number == signal.SIGKILL else 0) and 'Traceback' not in first.text, first.text
    stopped = check_saves(folder)[0]
    assert number == signal.SIGKILL or f'--overlap --resume {NAME}' in first.text

    second = Command([*command, '--env-step', str(stopped['env_step'] + 100), '--resume'], tmp_path)
    assert second.process.wait(120) == 0, second.text
    transitions = expected_transitions(stopped['iteration'])
    assert f'at {stopped["iteration"]:,} updates' in second.text and f'{transitions:,} transitions' in second.text
    ended = check_saves(folder)[0]
    assert ended['iteration'] >= stopped['iteration'] + UPDATES * (100 // N_SAMPLE - 2)
    assert curves(folder)[-1] == list(range(stopped['iteration'], ended['iteration']))


BREAKS = """
import os, runpy, signal, sys, time
from ding.policy import DQNPolicy
role, what = sys.argv.pop(1), sys.argv.pop(1)
whole, calls = getattr(DQNPolicy, role), 0
def broken(*args, **kwargs):
    global calls
    calls += 1
    if calls == 41 and what == 'error':
        raise ValueError(role + ' is broken')
    if calls == 41:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
    return whole(*args, **kwargs)
setattr(DQNPolicy, role, broken)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def breaking(config: Path, role: str, what: str) -> Command:
    """Our entry, in which a function of the policy fails at its 41st call, or gets Ctrl-C twice in it."""
    arguments = [role, what, *ENTRY[1:], '-c', str(config), '--overlap']
    return Command([sys.executable, '-c', BREAKS, *arguments], config.parent)


@pytest.mark.parametrize('role', ['_forward_collect', '_forward_learn'])
def test_an_error_in_either_thread_ends_the_run_and_is_the_last_output(tmp_path, role):
    config = config_in(tmp_path, 0)
    command = breaking(config, role, 'error')
    assert command.process.wait(120) == 1, command.text
    assert command.text.rstrip().endswith(f'ValueError: {role} is broken')
    assert command.text.count('Traceback') == 1
    newest = check_saves(tmp_path / NAME)[0]
    # up to the last complete step: a collection is 4 moves of 2 environments, and a broken one is not saved
    complete = 40 if role == '_forward_learn' else UPDATES * (40 * 2 // N_SAMPLE - 1)
    # a step is not saved while the save before it is under way
    assert newest['iteration'] in (complete, complete - UPDATES)


@pytest.mark.parametrize('role', ['_forward_collect', '_forward_learn'])
def test_a_second_ctrl_c_ends_the_run_at_once_and_leaves_no_partial_save(tmp_path, role):
    config = config_in(tmp_path, 0)
    command = breaking(config, role, 'stop')
    assert command.process.wait(120) == 128 + signal.SIGINT, command.text
    assert command.text.rstrip().endswith('stopped')
    assert 'Traceback' not in command.text and 'destroyed' not in command.text
    assert check_saves(tmp_path / NAME)
