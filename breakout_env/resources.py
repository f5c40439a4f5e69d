"""What this process and its workers take of the machine, and a word in time when it only ever grows."""

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional, Tuple

import psutil
import torch

from .replay.held_memory import held
from .replay.limits import gpu_room, memory_room
from .resource_trend import Rise, Trend

logger = logging.getLogger(__name__)

# Growth within 7 minutes (at 5 seconds between samples) below which nothing is said: a leak of 1 MB, or of one
# descriptor, a minute makes more of it, and what allocators do by themselves makes less.
_LEAST_GROWTH_BYTES = 5_000_000
_LEAST_GROWTH_COUNT = 5
# A second warning of the same growth waits until there is half as much of it again.
_AGAIN = 1.5

Worker = Tuple[int, float]  # process number and start: numbers are given out again


@dataclass(frozen=True)
class Resources:
    """
    Overview:
        What this process and its workers (the processes below it) take, at one moment.

        Resident bytes are those that ``top`` shows. Pages that forked workers share are counted in each of them; to \
        tell them apart (PSS, USS) the kernel walks over all pages of a process: tens of milliseconds for a gigabyte, \
        while the process can allocate nothing. Nor would it serve the search for leaks: a forked worker's own part \
        grows for hours as pages stop being shared, with nothing leaking.

        Anonymous bytes are the part of them that belongs to no file and to no shared memory. Pages of files are \
        given back when memory is short, and shared memory shows as descriptors.
    """

    time_s: float
    resident_bytes: int
    workers_resident_bytes: int
    descriptors: int
    threads: int
    processes: int
    # of PyTorch's tensors on all GPUs, as this process sees them; None before it has used one
    gpu_bytes: Optional[int]
    anonymous_bytes: int
    workers_anonymous_bytes: Mapping[Worker, int]


def sample(time_s: Optional[float] = None) -> Resources:
    """
    Overview:
        Look at this process and its workers: a millisecond or two for 8 workers. CUDA is not initialised by it.
    Arguments:
        - time_s (:obj:`Optional[float]`): When this is, on the caller's clock; ``time.monotonic`` by default.
    """
    this = psutil.Process()
    resident_bytes = anonymous_bytes = workers_resident_bytes = descriptors = threads = 0
    workers: Dict[Worker, int] = {}
    for process in [this, *this.children(recursive=True)]:
        # a worker may end while it is looked at, and one that has ended has nothing to look at
        with contextlib.suppress(psutil.Error), process.oneshot():
            memory, its_descriptors, its_threads = process.memory_info(), process.num_fds(), process.num_threads()
            descriptors, threads = descriptors + its_descriptors, threads + its_threads
            if process is this:
                resident_bytes, anonymous_bytes = memory.rss, memory.rss - memory.shared
            else:
                workers_resident_bytes += memory.rss
                workers[process.pid, process.create_time()] = memory.rss - memory.shared
    gpu_bytes = None
    if torch.cuda.is_initialized():
        gpu_bytes = sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))
    return Resources(
        time.monotonic() if time_s is None else time_s,
        resident_bytes,
        workers_resident_bytes,
        descriptors,
        threads,
        1 + len(workers),
        gpu_bytes,
        anonymous_bytes,
        workers,
    )


def memory_bytes() -> Optional[int]:
    """
    Overview:
        Memory of this process and its workers together, with each page that they share counted once (Linux's \
        proportional set size): what the machine would have more of without them. The kernel walks over all pages for \
        it, tens of milliseconds, so it is for people, once a minute or so. None where it can not be told.
    """
    this = psutil.Process()
    total = 0
    for process in [this, *this.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except AttributeError:  # not Linux
            return None
        except psutil.Error:  # it ended meanwhile
            continue
    return total


class ResourceWatch(object):
    """
    Overview:
        Looks at what this process and its workers take, every few seconds, and warns when some of it grows for good; \
        see ``Trend`` for what that means. It has no thread and holds nothing open. Growth is found within 120 samples \
        (10 minutes at 5 seconds between them), and of the first 24 nothing is judged. Of a worker it counts what it \
        has grown by since it was first seen, so that workers may come and go.

        It warns once of each resource, and again when there is half as much growth again.
    Interfaces:
        ``look``.
    Properties:
        ``last``: the newest ``Resources``, None before the first.
    """

    def __init__(
        self,
        interval_s: float = 5.0,
        explained_bytes: Callable[[], int] = lambda: held().memory_bytes,
        warn: Callable[[str], None] = logger.warning,
        clock: Callable[[], float] = time.monotonic,
        take: Callable[[float], Resources] = sample,
        explained_gpu_bytes: Callable[[], int] = lambda: held().gpu_bytes,
    ) -> None:
        """
        Arguments:
            - interval_s (:obj:`float`): Seconds between two samples, more than 0.
            - explained_bytes (:obj:`Callable`): Memory of this process that is held on purpose, by default what our \
                replay buffers hold. Growth that comes with it is no leak, even if it is a fifth more.
            - warn (:obj:`Callable`): Told a sentence.
            - clock (:obj:`Callable`): Seconds.
            - take (:obj:`Callable`): Takes a sample, given the time.
            - explained_gpu_bytes (:obj:`Callable`): As ``explained_bytes``, of the GPUs' memory.
        Raises:
            - ValueError: If the interval is not more than 0.
        """
        if not interval_s > 0:
            raise ValueError(f'the interval_s of ResourceWatch is {interval_s!r}; expected more than 0 seconds')
        self.last: Optional[Resources] = None
        self._interval_s = interval_s
        self._explained_bytes = explained_bytes
        self._explained_gpu_bytes = explained_gpu_bytes
        self._warn = warn
        self._clock = clock
        self._take = take
        self._due_s = clock()
        self._resources = [
            _Watched(name, least, in_bytes)
            for name, least, in_bytes in (
                ('the memory of process {pid}', _LEAST_GROWTH_BYTES, True),
                ('the memory of the workers of process {pid}', _LEAST_GROWTH_BYTES, True),
                ('the memory of process {pid} on GPUs', _LEAST_GROWTH_BYTES, True),
                ('the number of descriptors of process {pid} and its workers', _LEAST_GROWTH_COUNT, False),
                ('the number of threads of process {pid} and its workers', _LEAST_GROWTH_COUNT, False),
                ('the number of processes below process {pid}', _LEAST_GROWTH_COUNT, False),
            )
        ]
        self._first_seen: Dict[Worker, int] = {}

    def look(self) -> None:
        """
        Overview:
            Take a sample if it is time, and judge it. Call it often: it costs a look at the clock when it is not.
        """
        now_s = self._clock()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._interval_s
        self.last = now = self._take(now_s)
        workers = now.workers_anonymous_bytes
        self._first_seen = {worker: self._first_seen.get(worker, nbytes) for worker, nbytes in workers.items()}
        workers_growth = sum(workers.values()) - sum(self._first_seen.values())
        figures = (
            (now.anonymous_bytes, self._explained_bytes(), now.resident_bytes),
            (workers_growth, 0, now.workers_resident_bytes),
            (now.gpu_bytes, self._explained_gpu_bytes() if now.gpu_bytes else 0, now.gpu_bytes),
            (now.descriptors, 0, now.descriptors),
            (now.threads, 0, now.threads),
            (now.processes - 1, 0, now.processes - 1),
        )
        for watched, (value, explained_value, shown) in zip(self._resources, figures):
            if value is not None:
                rise = watched.is_news(now_s, value, explained_value)
                if rise is not None:
                    self._warn(watched.sentence(now_s, rise, shown, explained_value))


class _Watched(object):
    """A resource: its trend, and what has been said about it."""

    def __init__(self, name: str, least_growth: float, in_bytes: bool) -> None:
        self._name = name
        self._in_bytes = in_bytes
        self._trend = Trend(least_growth)
        self._first: Optional[Rise] = None
        self._told_growth = self._told_s = 0.0

    def is_news(self, time_s: float, value: float, explained: float) -> Optional[Rise]:
        """Take a sample; what grows, if that is to be told, counted from where this growth was first seen."""
        rise = self._trend.add(time_s, value, explained)
        if rise is None:
            return None
        given_back = (
            self._first is not None
            and rise.since_s > self._told_s
            and rise.since_value < self._first.since_value + self._told_growth / 2
        )
        if self._first is None or given_back:  # what grows now is another growth
            self._first, self._told_growth = rise, 0.0
        growth = rise.value - self._first.since_value
        if growth < _AGAIN * self._told_growth:
            return None
        self._told_growth, self._told_s = growth, time_s
        return rise._replace(since_s=self._first.since_s, since_value=self._first.since_value)

    def sentence(self, now_s: float, rise: Rise, shown: float, explained: float) -> str:
        """The warning."""
        since = time.strftime('%H:%M', time.localtime(time.time() - (now_s - rise.since_s)))
        minute = rise.per_s * 60
        if not self._in_bytes:
            rate, growth, now = f'{minute:.2g}', f'{rise.value - rise.since_value:.0f}', f'{shown:.0f}'
        else:
            rate, growth, now = f'{minute / 1e6:.2g} MB', _megabytes(rise.value - rise.since_value), _megabytes(shown)
        text = f'{self._name.format(pid=os.getpid())} grows by {rate} a minute'
        if explained:
            text += f' beyond the {_megabytes(explained)} that replay buffers hold'
        text += f': {growth} more since {since} ({_duration(now_s - rise.since_s)} ago), {now} now'
        if self._in_bytes:
            room = gpu_room('cuda') if 'GPU' in self._name else memory_room()
            left = _duration(room.free_bytes / rise.per_s)
            text += f'. It would reach the limit of {room.limit_bytes / 1e9:.0f} GB ({room.whose}) in about {left}'
        return text


def _megabytes(nbytes: float) -> str:
    return f'{nbytes / 1e6:,.0f} MB'


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f'{seconds:.0f} seconds'
    return f'{seconds / 60:.0f} minutes' if seconds < 7200 else f'{seconds / 3600:.0f} hours'


_watches: Dict[Tuple[int, float], ResourceWatch] = {}


def watch_of_process(interval_s: float) -> ResourceWatch:
    """
    Overview:
        The watch that all environments in this process share. It outlives them: what a project loses by opening and \
        closing environments is found, too.
    Arguments:
        - interval_s (:obj:`float`): Seconds between two samples.
    """
    key = (os.getpid(), interval_s)  # a forked process has copies of its parent's
    if key not in _watches:
        _watches[key] = ResourceWatch(interval_s)
    return _watches[key]
