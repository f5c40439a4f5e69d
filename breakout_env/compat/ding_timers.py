"""DI-engine 0.5.3: ``EasyTimer`` synchronises with the GPU at both ends, so that neither copies nor another thread's
work overlap with what it times. Without a GPU all timers share one start time.
"""

import time

from ding.utils import EasyTimer


class PlainTimer:
    """``EasyTimer``'s interface: ``with timer: ...``, then ``timer.value``, in seconds."""

    def __init__(self) -> None:
        self.value = 0.0
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.value = time.perf_counter() - self._start_s


def use_plain_timers(*workers: object) -> None:
    """Replace the timers of a learner, a collector, an evaluator."""
    for worker in workers:
        for name, value in list(vars(worker).items()):
            if isinstance(value, EasyTimer):
                setattr(worker, name, PlainTimer())
