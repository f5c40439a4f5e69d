"""Clocks for DI-engine's workers that wait for no GPU and share nothing between threads; a workaround."""

import time
from typing import Any

from ding.utils import EasyTimer


class PlainTimer(object):
    """
    Overview:
        What DI-engine's ``EasyTimer`` is for: ``with timer: ...``, then ``timer.value``, in seconds.
    Interfaces:
        ``value``, and use as a context.
    """

    def __init__(self) -> None:
        self.value = 0.0
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(self, *error: Any) -> None:
        self.value = time.perf_counter() - self._start_s


def use_plain_timers(*workers: Any) -> None:
    """
    Overview:
        Put plain clocks in the place of DI-engine's. Its ``EasyTimer`` waits for the GPU at both ends of what it \
        times, which is twice an update in the learner and several times a step in the collector, so that neither \
        copies nor the other one's work can go on meanwhile. Without a GPU all its timers share one start, which two \
        threads set.
    Arguments:
        - workers (:obj:`Any`): Learner, collector, evaluator.
    """
    for worker in workers:
        for name, value in list(vars(worker).items()):
            if isinstance(value, EasyTimer):
                setattr(worker, name, PlainTimer())
