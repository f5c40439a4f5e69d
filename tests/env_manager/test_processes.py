"""The env manager's processes against the clock: signals, hangs, interruptions, and the end of the program."""

import os
import signal
import sys
import time

import psutil
import pytest

from helpers.managers import SLEEP, assert_consistent, build, launched
from helpers.processes import Command, alarm_that_raises, completed, is_there, wait_until
from helpers.resources import children, footprint, grown_since

pytestmark = [pytest.mark.process, pytest.mark.alone, pytest.mark.usefixtures('memory_for_reuse')]

CLOSE_WITHIN_S = 10


@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_ends_or_hangs_costs_only_its_own_environments(how, same_footprint):
    with launched(env_num=5, worker_num=2, step_timeout=1.0) as manager:
        pids, actions = manager.pid, dict.fromkeys(range(5), 0)
        manager.step(actions)
        os.kill(pids[4], how)
        assert wait_until(lambda: psutil.Process(pids[4]).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED))
        timesteps = manager.step(actions)
        assert [i for i, timestep in timesteps.items() if timestep.info.get('abnormal')] == [3, 4]
        manager.reset({3: None, 4: None})
        assert [manager.pid[i] == pids[i] for i in range(5)] == [True, True, True, False, False]
        assert manager.ticks == [2, 2, 2, 0, 0] and not psutil.pid_exists(pids[4])
        assert_consistent(manager)


def interrupt(call, *args):
    """A Ctrl-C in a call that waits for a worker."""
    with alarm_that_raises(KeyboardInterrupt(), 0.5), pytest.raises(KeyboardInterrupt):
        call(*args)


@pytest.mark.parametrize('how', [None, signal.SIGSTOP, signal.SIGKILL])
def test_close_releases_everything(how, tmp_path):
    """After a launch that was interrupted, or when all workers have been stopped or killed."""
    faults = tmp_path / 'faults'

    def scenario():
        faults.write_text('hang\n' if how is None else '')
        cfgs = [{}, {}, {}, dict(reset_faults=str(faults))]
        manager = build(env_cfg=cfgs, worker_num=2, retry_waiting_time=0.01, close_timeout=1.0)
        if how is None:
            interrupt(manager.launch)
        else:
            manager.launch()
            manager.step({i: 0 for i in range(4)})
            for pid in set(manager.pid):
                os.kill(pid, how)
        start = time.monotonic()
        manager.close()
        assert manager.closed and time.monotonic() - start < CLOSE_WITHIN_S and not children()
        faults.write_text('')
        with launched(manager):
            manager.step({i: 0 for i in range(4)})
            assert_consistent(manager)

    scenario()  # not counted: multiprocessing keeps a little for reuse
    before = footprint()
    scenario()
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


def test_play_continues_after_an_interrupted_step():
    with launched(worker_num=2) as manager:
        interrupt(manager.step, {0: SLEEP, 1: 0, 3: 0})
        manager.reset()
        assert manager.ready_obs_id == [0, 1, 2, 3] and manager.ticks == [0] * 4
        timesteps = manager.step({i: 0 for i in range(4)})
        assert all(timesteps[i].info['ticks'] == 1 for i in range(4))
        assert_consistent(manager)


PROGRAM = """
from functools import partial
from breakout_env import BreakoutEnv, GroupEnvManager

manager = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=2))
manager.launch()
print('workers', *(worker.pid for worker in manager.pool.workers), flush=True)
"""
BUSY = 'while True: manager.step({0: 0})  # the other worker is idle'


def has_ended(pid):
    return not psutil.pid_exists(pid) or not is_there(psutil.Process(pid))


def test_workers_end_when_the_managers_process_is_killed(tmp_path):
    command = Command([sys.executable, '-c', PROGRAM + BUSY], tmp_path)
    command.wait_for(lambda: 'workers' in command.text)
    assert command.end(signal.SIGKILL) == -signal.SIGKILL and all(map(has_ended, map(int, command.text.split()[1:])))
    assert wait_until(lambda: not any(str(command.pid) in name for name in os.listdir('/dev/shm')))


def test_a_program_without_close_ends_silently_and_leaves_no_process():
    result = completed([sys.executable, '-c', PROGRAM])
    pids = [int(word) for word in result.stdout.split()[1:]]
    assert result.returncode == 0 and len(set(pids)) == 2, result.stderr
    assert not any(word in result.stderr for word in ('Traceback', 'Exception', 'leaked'))
    assert wait_until(lambda: all(map(has_ended, pids)))
