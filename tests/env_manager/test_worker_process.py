"""Workers as real processes: what a lost one holds, and what passes between the processes."""

import contextlib
import itertools
import os
import time
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest

from breakout_env.env_manager import pool
from breakout_env.env_manager.errors import WorkerLost
from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.utils.busy_cores import waits_more_than_it_runs
from helpers.managers import MAIN_PID, RAISE, RAISE_AWKWARD, GameEnv, PlantedError, build, kill_worker_of, launched
from helpers.processes import wait_until
from helpers.resources import children

pytestmark = pytest.mark.usefixtures('memory_for_reuse')


class FailingInWorkers(GameEnv):
    def __init__(self, cfg):
        super().__init__(cfg)
        if os.getpid() != MAIN_PID:  # not the one that is made for its spaces
            raise PlantedError('planted')


class NoTimesteps(GameEnv):
    def step(self, action):
        return super().step(action)[:3]


@pytest.mark.parametrize(
    'env_class, action, error, message',
    [
        (GameEnv, RAISE, PlantedError, 'in go_wrong.*planted'),
        (GameEnv, RAISE_AWKWARD, Exception, 'in go_wrong.*planted'),
        (NoTimesteps, 0, AttributeError, "in _step.*no attribute 'info'"),
        (FailingInWorkers, 0, Exception, '^environment . raised PlantedError: .*in __init__.*planted'),
    ],
)
def test_an_error_is_raised_with_the_environments_traceback(env_class, action, error, message, same_footprint):
    manager = build(env_class=env_class, worker_num=2)
    with pytest.raises(error, match=f'(?s){message}'):
        manager.launch()
        manager.step({0: 0, 1: action, 2: 0, 3: action})
    assert manager.closed and not children()


def test_workers_start_in_a_program_that_has_used_opencvs_threads():
    states = [path / 'stat' for path in Path('/proc/self/task').iterdir()]
    cv2.GaussianBlur(np.zeros((1080, 1920, 3), np.uint8), (5, 5), 0)
    pool = [path / 'stat' for path in Path('/proc/self/task').iterdir() if path / 'stat' not in states]
    assert wait_until(lambda: all(') S' in path.read_text() for path in pool)), 'they spin for a while'
    with launched(worker_num=2, connect_timeout=10.0) as manager:
        assert len(manager.ready_obs) == 4


class FakeWorker:
    """A worker that never answers. ``calls`` has the number of returned calls at each look."""

    env_ids, pid = [0], 1

    def __init__(self, calls=(), computes=False):
        self.waited_s, self.calls, self.computes = 0.0, iter(calls), computes

    def send(self, *command):
        return 1

    def receive(self, number, wait_s):
        self.waited_s += wait_s

    def call_count(self):
        return next(self.calls, 0)

    def is_computing(self):
        return self.computes


def test_workers_are_given_up_together_after_a_time_without_progress():
    # of the first, four environments are reset, one every 9 seconds, then none
    workers = [FakeWorker(i // 9 if i < 36 else 4 for i in itertools.count(1)), FakeWorker(), FakeWorker()]
    options = EnvManagerOptions(reset_timeout=10.0)
    replies = pool.replies_to([pool.send(worker, options, 'reset_timeout', 'reset') for worker in workers])
    for worker, result, error in replies:
        assert type(error) is WorkerLost and result is None and worker in workers
        assert str(error).endswith('did not answer within 10 s without progress (env.manager.reset_timeout)')
    assert [worker.waited_s for worker in workers] == pytest.approx([46, 0, 0], abs=1)


@pytest.mark.parametrize('limit, waited_s', [('reset_timeout', 100), ('close_timeout', 10)])
def test_a_worker_that_computes_has_ten_times_as_long_unless_it_closes(limit, waited_s):
    worker = FakeWorker(computes=True)
    pool.replies_to([pool.send(worker, EnvManagerOptions(reset_timeout=10.0, close_timeout=10.0), limit, 'reset')])
    assert worker.waited_s == pytest.approx(waited_s, abs=1)


def compute(env):
    end_s = time.process_time() + 0.5
    while time.process_time() < end_s:
        pass


def test_a_real_workers_progress_is_its_calls_and_its_computing():
    with launched(env_num=2, worker_num=1) as manager:
        (worker,) = manager.pool.workers
        before = worker.call_count()
        manager.step({0: 0, 1: 0})
        assert worker.call_count() == before + 2
        assert wait_until(lambda: not worker.is_computing())
        number = worker.send('apply', [0], compute)
        assert wait_until(worker.is_computing)
        assert worker.receive(number, 60.0) is not None


def test_each_environment_has_its_own_time_to_close(tmp_path):
    events = tmp_path / 'events'
    with launched(env_cfg=dict(events=str(events), close_takes_s=0.7), worker_num=1, close_timeout=2.0):
        pass
    assert events.read_text().count('close') == 4 and not children()


@pytest.mark.parametrize('env_cfg', [{}, dict(failing_close=True)])
def test_close_closes_the_environments_even_beside_another_manager(env_cfg, tmp_path):
    events = [tmp_path / 'first', tmp_path / 'second']
    first, second = (build(env_cfg=dict(env_cfg, events=str(path)), worker_num=2) for path in events)
    with contextlib.ExitStack() as stack:
        stack.enter_context(launched(first))
        stack.enter_context(launched(second))  # its workers are forked later and inherit the first one's descriptors
        for manager, path in ((first, events[0]), (second, events[1])):
            manager.close()
            assert path.read_text().count('close') == 4
    assert not children()


@pytest.mark.parametrize('loses', [False, True])
def test_the_workers_of_a_manager_that_is_dropped_end(loses, same_footprint):
    manager = build(worker_num=2)
    manager.launch()
    if loses:  # errors that the manager caught do not keep it
        kill_worker_of(manager, 0)
        manager.step({0: 0})
    assert len(children()) == (1 if loses else 2)
    del manager
    assert wait_until(lambda: not children())


@pytest.mark.parametrize('counts, nice', [('100 10 7', 3), ('100 1000 7', 0), ('not counted', 3)])
def test_workers_are_not_nice_where_other_programs_keep_the_cores(counts, nice, tmp_path, monkeypatch):
    schedstat = tmp_path / 'schedstat'
    schedstat.write_text(counts)
    monkeypatch.setattr(pool, 'waits_more_than_it_runs', partial(waits_more_than_it_runs, str(schedstat)))
    with launched(env_num=2, worker_num=1, nice=3) as manager:
        before = os.nice(0)
        assert psutil.Process(manager.pid[0]).nice() == before + nice
