"""Collectors and evaluators whose workers have ended close silently; env_manager/test_processes.py ends workers."""

import pytest
from ding.envs import get_env_manager_cls
from ding.worker import InteractionSerialEvaluator, SampleSerialCollector
from easydict import EasyDict

from breakout_env import NstepCollector, ResumableEvaluator, RolloutCollector
from helpers.managers import GameEnv
from helpers.processes import wait_until
from helpers.resources import children


@pytest.fixture
def lost():
    """A manager of DI-engine's whose workers were killed."""
    cls = get_env_manager_cls(EasyDict(type='subprocess'))
    manager = cls([lambda: GameEnv({})] * 2, EasyDict(cls.default_config()))
    manager.launch()
    for worker in children():
        worker.kill()
    assert wait_until(lambda: not any(process.is_alive() for process in manager._subprocesses.values()))
    return manager


def closed(worker_class, manager):
    worker = worker_class.__new__(worker_class)
    worker._env, worker._tb_logger, worker._end_flag = manager, None, False
    worker.close()


@pytest.mark.parametrize('upstream', [SampleSerialCollector, InteractionSerialEvaluator])
def test_upstream_still_raises(lost, upstream):
    with pytest.raises(OSError):
        closed(upstream, lost)


@pytest.mark.parametrize('worker_class', [NstepCollector, RolloutCollector, ResumableEvaluator])
def test_closing_without_workers_is_silent(lost, worker_class):
    closed(worker_class, lost)
