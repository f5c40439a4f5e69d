"""Readings of memory and descriptors count the workers, and a warning comes before memory runs out."""

import multiprocessing
import os
import subprocess
import sys

import psutil
import pytest

from breakout_env.utils.memory_limits import Room
from breakout_env.utils.resources import ResourceWatch, memory_bytes, sample

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


def test_readings_count_this_process_and_its_workers():
    before, memory_before = sample(), memory_bytes()
    assert before.resident_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    program = 'x = bytearray(b"x" * 30_000_000); print(); input()'
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen([sys.executable, '-c', program], **pipes) as worker:
        worker.stdout.readline()
        now = sample()
        assert now.threads > before.threads
        assert now.descriptors >= before.descriptors + 4  # two pipes, at both ends
        assert now.resident_bytes >= before.resident_bytes + 30 * MB
        assert memory_bytes() > memory_before + 20 * MB
        worker.communicate(b'\n')
    assert sample().threads < now.threads


def test_pages_that_a_worker_shares_count_once_in_memory_bytes():
    shared, before, resident_before = bytearray(b'x' * 100 * MB), memory_bytes(), sample().resident_bytes
    context, ends = multiprocessing.get_context('fork'), multiprocessing.Pipe()
    worker = context.Process(target=ends[1].recv)
    worker.start()
    try:
        assert memory_bytes() < before + len(shared) / 2
        assert sample().resident_bytes > resident_before + len(shared) / 2
    finally:
        ends[0].send(None)
        worker.join()
