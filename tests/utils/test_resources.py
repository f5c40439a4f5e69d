"""The memory of a run counts its workers, and a warning comes before it runs out."""

import multiprocessing

from breakout_env.utils.memory_limits import MemoryWatch, Room, memory_bytes

MB = 1_000_000


def test_a_warning_comes_once_below_a_tenth_of_the_limit_and_again_at_half_of_that():
    warned_at = []

    def look(free_mb: int) -> None:
        rooms.append(Room(free_mb * MB, 1000 * MB, 'the memory limit of the test'))
        watch.look()

    rooms = []
    watch = MemoryWatch(lambda text: warned_at.append(rooms[-1].free_bytes // MB), room=lambda: rooms[-1])
    for free_mb in (1000, 100, 99, 98, 60, 50, 49, 48, 25, 24, 500, 80):  # in the end some was freed and runs out again
        look(free_mb)
    assert warned_at == [99, 49, 24, 80]


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
