"""How much memory a run may take, how much it takes with its workers, and the warning before it runs out."""

import multiprocessing
import sys

import pytest

from breakout_env.utils.memory_limits import MemoryWatch, Room, memory_bytes, memory_room
from helpers.processes import run

MB = 1_000_000


def room_in(folder, membership, files):
    for name, content in {**files, '../membership': membership}.items():
        path = folder / 'cgroup' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{content}\n')
    return memory_room(str(folder / 'cgroup'), str(folder / 'membership'))


@pytest.mark.parametrize(
    'membership, files, expected',
    [
        (  # docker: the limit is the group's own
            '0::/box',
            {'box/memory.max': 10**8, 'box/memory.current': 6 * 10**7, 'box/memory.stat': 'anon 1\ninactive_file 10'},
            (4 * 10**7 + 10, 10**8),
        ),
        (  # Slurm: the limit is of the job, above the step
            '0::/job/step',
            {
                'job/step/memory.max': 'max',
                'job/step/memory.current': 5,
                'job/memory.max': 10**8,
                'job/memory.current': 10**7,
                'job/memory.stat': 'inactive_file 0',
            },
            (9 * 10**7, 10**8),
        ),
    ],
)
def test_the_limit_of_a_container_or_job_is_found(tmp_path, membership, files, expected):
    room = room_in(tmp_path, membership, files)
    assert (room.free_bytes, room.limit_bytes) == expected and 'control group' in room.whose


def test_without_a_limit_the_machines_memory_counts(tmp_path):
    room = room_in(tmp_path, '0::/box', {'box/memory.max': 'max', 'box/memory.current': 5})
    assert 0 < room.free_bytes <= room.limit_bytes and room.whose == "the machine's memory"


LIMITED = """
import resource
import psutil
from breakout_env import FrameReplayBuffer
resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 4 * 10**8,) * 2)
try:
    FrameReplayBuffer(dict(replay_buffer_size=1_000_000, storage='memmap', folder='.'))
except ValueError as error:
    print(error)
"""


def test_the_limit_of_the_address_space_counts(tmp_path):
    """SGE and PBS set it, as ``ulimit -v`` does."""
    output = run([sys.executable, '-c', LIMITED], tmp_path)
    assert 'ulimit -v' in output and (' 0.4' in output or ' 0.3' in output), output


def test_a_warning_comes_below_a_tenth_of_the_limit_and_at_half_of_that():
    warned_at = []

    def look(free_mb: int) -> None:
        rooms.append(Room(free_mb * MB, 1000 * MB, 'the memory limit of the test'))
        watch.poll()

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
