"""However a run ends, by a signal, a kill or an error: it says why, leaves no process, and can be resumed."""

import os
import random
import signal
import sys
import time

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

pytestmark = pytest.mark.process

# the end of an episode changes how many moves a collection takes
WHOLE_GAMES = (r'frame_stack=4', 'frame_stack=4, episodic_life=False')


def test_run_under_nohup_continues_without_its_terminal(tmp_path):
    command = Command(['nohup', *ENTRY, '-c', str(config_in(tmp_path, 900, OURS))], tmp_path)
    log = tmp_path / NAME / 'log' / 'learner' / 'learner_logger.txt'
    command.wait_for(has_learned(tmp_path))
    os.killpg(command.pid, signal.SIGHUP)
    before = log.stat().st_size
    command.wait_for(lambda: log.stat().st_size > before)
    assert 'Stopping' not in command.text
    assert command.end(signal.SIGTERM) == 0 and saves_in(tmp_path / NAME)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_all_processes_of_ding_saves_without_a_traceback(number, tmp_path):
    """As schedulers send it: DI-engine's workers end by it."""
    command = Command(ding_serial(config_in(tmp_path)), tmp_path)
    command.wait_for(has_learned(tmp_path))
    assert command.end(number, whole_group=True) == 128 + number and saves_in(tmp_path / NAME)
    assert 'Traceback' not in command.text and 'Exception ignored' not in command.text, command.text


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
    curves = [[event.step for event in events(log, 'learner_iter/total_loss_avg')] for log in logs]
    assert [steps[0] for steps in curves] == [0, *resumed_at]
    assert all(steps == list(range(steps[0], steps[0] + len(steps))) for steps in curves)
    # no gap, but for what TensorBoard's own thread had not taken yet
    assert all(steps[-1] >= until - 1 - 2 * UPDATES for steps, until in zip(curves, resumed_at))
    assert curves[-1][-1] == ended['iteration'] - 1


# the 41st call of this function of the policy fails
BROKEN = """
import runpy, sys
import breakout_env, torch
from ding.policy import DQNPolicy
_, name, error = sys.argv[:3]
del sys.argv[:3]
whole, calls = getattr(DQNPolicy, name), []
def broken(*args, **kwargs):
    calls.append(name)
    if len(calls) == 41:
        raise eval(error)('it is broken')
    return whole(*args, **kwargs)
setattr(DQNPolicy, name, broken)
runpy.run_path(sys.argv[0], run_name='__main__')
"""
ENDS = {
    'ValueError': ("ValueError('it is broken')", 'ValueError: it is broken'),
    'torch.OutOfMemoryError': 'with a smaller policy.learn.batch_size or replay buffer',
}


@pytest.mark.parametrize(
    'program, function, error',
    [
        ('ding', '_forward_learn', 'ValueError'),
        ('overlap', '_forward_collect', 'ValueError'),
        ('overlap', '_forward_learn', 'ValueError'),
        ('serial', '_forward_learn', 'torch.OutOfMemoryError'),
    ],
)
def test_an_error_that_ends_a_run_is_shown_last_and_the_run_is_saved(program, function, error, tmp_path):
    is_memory = error == 'torch.OutOfMemoryError'  # which has the run saved; the others leave the saves before them
    config = config_in(tmp_path, 900 if is_memory else 0, OURS, WHOLE_GAMES)
    done = completed([sys.executable, '-c', BROKEN, function, error, *training(program, config)], tmp_path, merged=True)
    output = done.stdout.rstrip()
    assert done.returncode == 1 and output.endswith(ENDS[error]), output
    assert output.count('Traceback') == (not is_memory) and 'Exception ignored' not in output
    # A collection is 4 moves of 2 environments: the broken one is the eleventh, while the tenth is learned from.
    complete = 40 if function == '_forward_learn' else UPDATES * (40 * 2 // N_SAMPLE)
    assert check_saves(tmp_path / NAME)[0]['iteration'] == complete
