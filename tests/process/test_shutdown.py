"""However a run ends, by a signal, a kill or an error: it says why, leaves no process, and can be resumed."""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Tuple

import pytest

from breakout_env.run.paths import saves_in
from helpers.processes import Command, completed, run
from helpers.runs import (
    ENTRY,
    N_SAMPLE,
    NAME,
    OURS,
    UPDATES,
    check_saves,
    config_in,
    ding_serial,
    events,
    has_learned,
    training,
)

# the end of an episode changes how many moves a collection takes
WHOLE_GAMES = (r'frame_stack=4', 'frame_stack=4, episodic_life=False')


def test_run_under_nohup_continues_without_its_terminal(tmp_path):
    command = Command(['nohup', *ENTRY, '-c', str(config_in(tmp_path, 900, OURS))], tmp_path)
    log = tmp_path / NAME / 'log' / 'learner' / 'learner_logger.txt'
    command.wait_for(has_learned(tmp_path))
    os.killpg(command.pid, signal.SIGHUP)
    before = log.stat().st_size
    command.wait_for(lambda: log.stat().st_size > before)
    assert command.end(signal.SIGTERM) == 0 and saves_in(tmp_path / NAME)


# ---------------------------------------------------------------- SIGKILL


def test_run_killed_at_random_moments_and_resumed_ends_as_if_it_was_not(tmp_path):
    """It saves all the time, so that most kills interrupt a save."""
    rng = random.Random(0)
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0)
    resumed_at = []
    for _ in range(2):
        command = Command(ding_serial(config), tmp_path)
        saved = folder / 'resume' / 'pairs.json'
        listed = saved.stat().st_mtime_ns if saved.exists() else 0
        command.wait_for(lambda: saved.exists() and saved.stat().st_mtime_ns > listed)  # noqa: B023
        time.sleep(rng.uniform(0, 1))
        assert command.end(signal.SIGKILL, whole_group=True) == -signal.SIGKILL
        resumed_at.append(check_saves(folder)[0]['iteration'])
    assert resumed_at == sorted(set(resumed_at))
    run(ding_serial(config, check_saves(folder)[0]['env_step'] + 60), tmp_path)
    ended = check_saves(folder)[0]
    logs = sorted((folder / 'log' / 'serial').glob('events*'), key=lambda path: int(path.name.split('.')[3]))
    # the iterations in the curve of each process
    curves = [[event.step for event in events(log, 'learner_iter/total_loss_avg')] for log in logs]
    assert [steps[0] for steps in curves] == [0, *resumed_at]
    assert all(steps == list(range(steps[0], steps[0] + len(steps))) for steps in curves)
    # no gap, but for what TensorBoard's own thread had not taken yet
    assert all(steps[-1] >= until - 1 - 2 * UPDATES for steps, until in zip(curves, resumed_at))
    assert curves[-1][-1] == ended['iteration'] - 1
    left = {path.name for path in (folder / 'resume').iterdir()}
    assert left == {'pairs.json', 'best_score.json', *(Path(save['buffer']).name for save in saves_in(folder))}


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
        raise dict(memory=torch.OutOfMemoryError, error=ValueError)[what]('it is broken')
    return whole(*args, **kwargs)
setattr(DQNPolicy, name, broken)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def broken_run(program: str, function: str, what: str, config: Path) -> Tuple[int, str]:
    """The exit code and output of a training in which this function fails at its 41st call."""
    command = [sys.executable, '-c', BROKEN, function, what, *training(program, config)]
    done = completed(command, config.parent, merged=True)
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


def test_full_memory_ends_a_run_with_a_message_and_a_save(tmp_path):
    code, output = broken_run('serial', '_forward_learn', 'memory', config_in(tmp_path, 900, OURS))
    assert output.endswith('with a smaller policy.learn.batch_size or replay buffer'), output
    assert code == 1 and 'Traceback' not in output and check_saves(tmp_path / NAME)[0]['iteration'] == 40
