"""The time limits of commands to workers, which count the time without progress."""

from collections.abc import Callable
from typing import NamedTuple

from .options import TimeLimit

# A timeout is counted in slices of waiting: a process that was stopped (Ctrl-Z) or suspended with its machine does not
# count that time against its workers.
SLICE_S = 1.0
# How much a second counts in which a worker computed, or waited for a core to compute on.
COMPUTING_COUNTS = 0.1


class Progress(NamedTuple):
    """What a worker has done so far: calls of its environments that returned, and seconds of CPU time."""

    calls: int
    cpu_s: float
    waits_for_core: bool


class IdleTimer:
    """The time that a worker has made no progress on a command, in seconds. A call of an environment that returns
    begins it anew. A second in which the worker computes counts a tenth, as on a busy machine it may wait long for a
    core; so an endless loop ends, too.
    """

    def __init__(self, progress: Callable[[], Progress], limit: TimeLimit) -> None:
        self._progress, self._limit = progress, limit
        self._idle_s = 0.0
        self._seen: Progress | None = None

    @property
    def is_up(self) -> bool:
        """Whether the worker has to be given up."""
        return self._idle_s >= self._limit.seconds

    @property
    def slice_s(self) -> float:
        """How long to wait for the reply before the next ``count``; 0 to take only one that is there."""
        return 0.0 if self.is_up else min(SLICE_S, self._limit.seconds / 10)

    def count(self, waited_s: float) -> None:
        """Count a time of waiting in which no reply came."""
        before, self._seen = self._seen, self._progress()
        if before is None:
            self._idle_s += waited_s
        elif self._seen.calls != before.calls:
            self._idle_s = 0.0
        elif self._seen.waits_for_core or self._seen.cpu_s > before.cpu_s:
            self._idle_s += COMPUTING_COUNTS * waited_s
        else:
            self._idle_s += waited_s

    def __str__(self) -> str:
        return f'did not answer within {self._limit.seconds:g} s without progress (env.manager.{self._limit.option})'
