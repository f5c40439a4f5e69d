"""However a run ends, it shuts down gracefully: with a message, an exit code, and no process left behind."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

from breakout_env.agent.agent import save_agent
from breakout_env.run.paths import saves_in
from helpers.agents import small_network
from helpers.processes import BIN, Command, completed, wait_until
from helpers.runs import ENTRY, N_SAMPLE, NAME, OURS, UPDATES, check_saves, config_in, ding_serial, has_learned
from helpers.terminal import Terminal

BREAKOUT = [str(BIN / 'breakout')]
# the end of an episode changes how many moves a collection takes
WHOLE_GAMES = (r'frame_stack=4', 'frame_stack=4, episodic_life=False')
RANDOM = (r'random_collect_size=\d+', 'random_collect_size=2000')
ENDLESS_RANDOM = (r'random_collect_size=\d+', 'random_collect_size=1000000')
# nobody serves the ball, so that an evaluation takes half a minute
ENDLESS_GAMES = (r'random_action_probability=[\d.]+', 'random_action_probability=0.0, fire_on_life_loss=False')


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_terminal(command: List[str]) -> Terminal:
        opened.append(Terminal(command, tmp_path))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.kill()


def training(program: str, config: Path) -> List[str]:
    """The command that trains with this config, by our entry, by `breakout train` or by `ding`."""
    if program == 'ding':
        return ding_serial(config)
    if program == 'entry':
        return [*ENTRY, '-c', str(config)]
    return [*BREAKOUT, 'train', '-c', str(config), f'--{program}']


# ---------------------------------------------------------------- Ctrl-C, once


def test_ctrl_c_during_random_play_ends_a_run_gracefully(terminal, tmp_path):
    command = terminal(training('entry', config_in(tmp_path, 900, OURS, RANDOM)))
    command.wait_for(lambda: 'random play' in command.text).press_ctrl_c()
    assert command.exit_code() == 0
    assert 'Stopping: finishing what is under way' in command.text and 'Checkpoints, logs' in command.text


def test_ctrl_c_does_not_wait_for_the_end_of_an_evaluation(terminal, tmp_path):
    command = terminal(training('overlap', config_in(tmp_path, 900, OURS, ENDLESS_GAMES)))
    command.wait_for(lambda: command.plays(2)).press_ctrl_c()  # the evaluator's; the first two are the collector's
    assert command.exit_code() == 0 and 'Stopping: finishing what is under way' in command.text
    assert '"evaluation"' not in (tmp_path / NAME / 'log' / 'progress.jsonl').read_text()


@pytest.mark.parametrize('ending, code', [('Ctrl-C', 130), ('hang up', 129)])
def test_run_of_ding_is_saved_when_ctrl_c_is_pressed_or_its_terminal_closed(ending, code, terminal, tmp_path):
    command = terminal(training('ding', config_in(tmp_path, 900, OURS))).wait_for(has_learned(tmp_path))
    command.press_ctrl_c() if ending == 'Ctrl-C' else command.hang_up()
    assert command.exit_code() == code and saves_in(tmp_path / NAME)
    assert ending == 'hang up' or re.search('Saved at .* To resume it: the same command', command.text)


def test_ctrl_c_while_a_video_is_encoded_leaves_no_file(terminal, tmp_path):
    command = terminal([*BREAKOUT, 'record', '--out', 'game.mp4'])
    command.wait_for(lambda: any(part.stat().st_size for part in tmp_path.glob('*.part.mp4'))).press_ctrl_c()
    assert command.exit_code() == 130 and 'stopped' in command.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ['temporary']


def test_ctrl_c_ends_eval_and_its_workers(terminal, tmp_path):
    save_agent(tmp_path / 'agent', small_network().state_dict(), {})
    command = terminal([*BREAKOUT, 'eval', '--checkpoint', 'agent', '-n', '100000'])
    command.wait_for(lambda: command.plays(0)).press_ctrl_c()
    assert command.exit_code() == 130 and 'stopped' in command.text


# ---------------------------------------------------------------- Ctrl-C, again and again


@pytest.mark.parametrize('program, times', [('overlap', 12), ('ding', 2)])
def test_second_ctrl_c_forces_the_shutdown(program, times, terminal, tmp_path):
    command = terminal(training(program, config_in(tmp_path, 900, OURS, ENDLESS_RANDOM)))  # whose end one waits for
    command.wait_for(lambda: command.plays(0)).press_ctrl_c()
    # two that come before the program gets its turn are one to it
    assert wait_until(lambda: 'Stopping: ' in command.text), command.text
    command.press_ctrl_c(times - 1, 0.1)
    assert command.exit_code() in (130, -signal.SIGINT)  # the latter by the third one
    assert command.text.count('Stopping: ') == 1


def test_run_under_nohup_continues_without_its_terminal(tmp_path):
    command = Command(['nohup', *ENTRY, '-c', str(config_in(tmp_path, 900, OURS))], tmp_path)
    log = tmp_path / NAME / 'log' / 'learner' / 'learner_logger.txt'
    command.wait_for(has_learned(tmp_path))
    os.killpg(command.pid, signal.SIGHUP)
    before = log.stat().st_size
    command.wait_for(lambda: log.stat().st_size > before)
    assert command.end(signal.SIGTERM) == 0 and saves_in(tmp_path / NAME)


# ---------------------------------------------------------------- errors

BROKEN = """
import runpy, sys
import breakout_env, torch
from ding.policy import DQNPolicy
_, name, what = sys.argv[:3]
del sys.argv[:3]
whole, calls = getattr(DQNPolicy, name), 0
def broken(*args, **kwargs):
    global calls
    calls += 1
    if calls == 41:
        kinds = dict(interrupt=KeyboardInterrupt, memory=torch.OutOfMemoryError, error=ValueError)
        raise kinds[what]('it is broken')
    return whole(*args, **kwargs)
setattr(DQNPolicy, name, broken)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def broken_run(program: str, function: str, what: str, config: Path) -> Tuple[int, str]:
    """The exit code and output of a training in which this function fails at its 41st call."""
    command = [word for word in training(program, config) if word != sys.executable]
    done = completed([sys.executable, '-c', BROKEN, function, what, *command], config.parent, merged=True)
    assert 'Exception ignored' not in done.stdout and 'BrokenPipe' not in done.stdout
    return done.returncode, done.stdout.rstrip()


@pytest.mark.parametrize(
    'program, function',
    [('ding', '_forward_learn'), ('overlap', '_forward_collect'), ('overlap', '_forward_learn')],
)
def test_error_that_ended_a_run_is_the_last_thing_on_the_screen(program, function, tmp_path):
    code, output = broken_run(program, function, 'error', config_in(tmp_path, 0, OURS, WHOLE_GAMES))
    assert output.endswith(("ValueError('it is broken')", 'ValueError: it is broken')), output
    assert code == 1 and output.count('Traceback') == 1
    if program == 'overlap':
        newest = check_saves(tmp_path / NAME)[0]
        # A collection is 4 moves of 2 environments: the broken one is the eleventh, while the tenth is learned from.
        complete = 40 if function == '_forward_learn' else UPDATES * (40 * 2 // N_SAMPLE)
        # a step is not saved while the save before it is under way
        assert newest['iteration'] in (complete, complete - UPDATES)


@pytest.mark.parametrize(
    'program, what, last, expected',
    [
        ('entry', 'interrupt', 'stopped', 130),
        ('serial', 'memory', 'with a smaller policy.learn.batch_size or replay buffer', 1),
    ],
)
def test_interrupt_of_a_library_and_full_memory_end_a_run_without_a_traceback(program, what, last, expected, tmp_path):
    code, output = broken_run(program, '_forward_learn', what, config_in(tmp_path, 900, OURS))
    assert output.endswith(last) and code == expected and 'Traceback' not in output, output
    assert what == 'interrupt' or check_saves(tmp_path / NAME)[0]['iteration'] == 40
