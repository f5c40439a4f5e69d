"""Collectors and evaluators whose workers have ended close silently; env_manager/test_processes.py ends workers."""

import pytest
from ding.worker import InteractionSerialEvaluator, SampleSerialCollector

from breakout_env import NstepCollector, ResumableEvaluator, RolloutCollector
from helpers.managers import build
from helpers.processes import is_there, wait_until
from helpers.resources import children


@pytest.mark.parametrize('upstream', [SampleSerialCollector, InteractionSerialEvaluator])
@pytest.mark.parametrize('worker_class', [NstepCollector, RolloutCollector, ResumableEvaluator])
def test_closing_without_workers_is_silent_which_upstream_still_prevents(upstream, worker_class):
    manager = build('subprocess', env_num=2)
    manager.launch()
    workers = children()
    for worker in workers:
        worker.kill()
    assert wait_until(lambda: not any(map(is_there, workers)))
    raising, silent = (cls.__new__(cls) for cls in (upstream, worker_class))
    for worker in (raising, silent):
        vars(worker).update(_env=manager, _tb_logger=None, _end_flag=False)
    with pytest.raises(OSError):  # else remove the workaround
        raising.close()
    silent.close()
