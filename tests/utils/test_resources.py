"""The memory of a run counts its workers, and a warning comes before it runs out."""

import multiprocessing
import os

from breakout_env.utils.memory_limits import Room
from breakout_env.utils.resources import ResourceWatch, memory_bytes

MB = 1_000_000


class Watched(object):
    """A watch with a clock and a memory limit of 1,000 MB that are set by hand."""

    def __init__(self) -> None:
        self.now_s, self.free_mb, self.warnings = 0.0, 1000, []
        self.watch = ResourceWatch(5.0, self.warnings.append, lambda: self.now_s, self.room)

    def room(self) -> Room:
        return Room(self.free_mb * MB, 1000 * MB, 'the memory limit of the test')

    def warnings_with(self, *free_mb: int) -> int:
        """How many warnings come while so much memory is left, one reading each."""
        before = len(self.warnings)
        for self.free_mb in free_mb:
            self.watch.look()
            self.now_s += 5
        return len(self.warnings) - before


def test_a_warning_comes_once_below_a_tenth_of_the_limit_and_again_at_half_of_that():
    watched = Watched()
    assert watched.warnings_with(1000, 100) == 0
    assert watched.warnings_with(99, 98, 60, 50) == 1
    watched.now_s -= 1
    assert watched.warnings_with(40) == 0  # it is not time to look yet
    watched.now_s += 1
    assert watched.warnings_with(49, 48, 25) == 1
    assert watched.warnings_with(24) == 1
    assert watched.warnings_with(500, 80) == 1  # memory was freed and runs out again
    warning = watched.warnings[-1]
    assert 'memory is running out: 0.08 GB left of the 1.00 GB that the memory limit of the test allows' in warning
    assert f'process {os.getpid()} and its workers use ' in warning and 'replay_buffer_size' in warning


def test_memory_counts_the_workers_and_the_pages_that_they_share_once():
    shared, before = bytearray(b'x' * 100 * MB), memory_bytes()
    context, ends = multiprocessing.get_context('fork'), multiprocessing.Pipe()

    def work() -> None:
        own = bytearray(b'x' * 30 * MB)
        ends[1].send(len(own))
        ends[1].recv()

    worker = context.Process(target=work)
    worker.start()
    try:
        ends[0].recv()
        assert before + 20 * MB < memory_bytes() < before + len(shared) / 2 + 30 * MB
    finally:
        ends[0].send(None)
        worker.join()
