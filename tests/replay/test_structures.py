"""The parts of the replay memory that have an algorithm of their own: row ring, compressed frames."""

import mmap
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakout_env.replay import ReplayMemory, row_ring
from breakout_env.replay.frames import compressed as compressed_frames
from breakout_env.replay.frames.compressed import CompressedFrames
from breakout_env.replay.row_ring import RowRing
from helpers.replay import SIDE, Play, examples, screen


@pytest.fixture(autouse=True, scope='module')
def everything_happens_often():
    """Small blocks: rows are compacted; dictionaries are trained often and always used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ring, '_BLOCK', 4)
        patch.setattr(compressed_frames, '_FIRST_TRAINING_FRAMES', 60)
        patch.setattr(compressed_frames, '_TRAINING_FRAMES', 40)
        patch.setattr(compressed_frames, '_FRAMES_BETWEEN_TRAININGS', 70)
        patch.setattr(compressed_frames, '_HELD_OUT_FRAMES', 8)
        patch.setattr(compressed_frames, '_WORTHWHILE', 3.0)
        yield


@pytest.mark.parametrize('seed', range(3))
def test_compressed_frames_outlive_their_segments_and_dictionaries(seed):
    rng = np.random.default_rng(seed)
    storage, twin, free = CompressedFrames(SIDE * SIDE, mmap.PAGESIZE), {}, list(range(2000, 0, -1))
    dictionaries, cleaned, clean = 0, Counter(), storage._clean

    def counted_clean():
        cleaned[len(storage._segments_of) > 1] += 1
        clean()

    storage._clean = counted_clean
    for step in range(40):
        for _ in range(rng.integers(1, 60)):
            frame, pixels = free.pop(), screen(rng, 10**6).tobytes()
            storage.put(frame, memoryview(pixels))
            twin[frame] = pixels
        numbers = rng.permutation(sorted(twin))
        dropped = numbers[: int(len(numbers) * (rng.random() * 0.4 if step % 10 else 0.9))].tolist()
        for frame in dropped:
            storage.drop([frame])
            del twin[frame]
        free += dropped
        wanted = rng.permutation(list(twin) * 2)
        for at_once in (False, True):
            out = np.empty((len(wanted), SIDE * SIDE), np.uint8)
            storage.read(wanted, out, at_once)
            assert [row.tobytes() for row in out] == [twin[frame] for frame in wanted.tolist()]
        dictionaries = max(dictionaries, len(storage._segments_of))
        assert storage.stored_bytes == sum(storage._lengths[frame] for frame in twin)
    assert dictionaries > 2 and cleaned[True] > 2, 'this test does not reach what it is to test'
    # an eighth of it may be dead, two segments, and one for each dictionary is being filled
    segments = len(storage._used) - len(storage._free)
    assert segments * mmap.PAGESIZE < storage.stored_bytes * 1.3 + (4 + dictionaries) * mmap.PAGESIZE
    storage.drop(list(twin))
    assert storage.stored_bytes == 0 and len(storage._used) - len(storage._free) <= 1
    storage.close()


@examples(60)
@given(
    capacity=st.integers(1, 40),
    steps=st.lists(st.one_of(st.just('push'), st.floats(0, 1, exclude_max=True)), max_size=250),
)
def test_rows_stay_in_the_order_of_pushing_whatever_is_removed(capacity, steps):
    ring = RowRing(capacity)
    twin = []  # (insertion id, row)
    for step in steps:
        if step == 'push':
            if len(twin) == capacity:
                ring.remove(twin.pop(0)[1])
            if not ring.room:
                order = ring.live()
                assert order.tolist() == [row for _, row in twin]
                ring.compacted(ring.low_ids[order])
                twin = [(insertion_id, row) for row, (insertion_id, _) in enumerate(twin)]
            row = ring.append()
            assert row not in [other for _, other in twin]
            twin.append((ring.next_id - 1, row))
        elif twin:
            ring.remove(twin.pop(int(step * len(twin)))[1])
        rows = [row for _, row in twin]
        assert ring.count == len(twin)
        assert ring.nth(np.arange(len(twin))).tolist() == rows == ring.live().tolist()
        assert not twin or ring.oldest == rows[0]
    for insertion_id in range(max(0, ring.next_id - 60), ring.next_id + 2):
        for guess in (-1, insertion_id % ring.rows):
            assert ring.find(insertion_id, guess) == dict(twin).get(insertion_id, -1)


def test_insertion_ids_are_right_beyond_two_to_the_32():
    memory = ReplayMemory(6)
    memory._ring.next_id = 2**32 - 20
    play = Play(2, 1, np.random.default_rng(0))
    pushed = []
    for number in range(40):
        pushed += memory.push([{**play.transition(), 'id': number}])
        if number % 3 == 0:
            memory.remove(pushed[-2:][:1])
        there = memory.insertion_ids(memory.rows())
        assert there == [2**32 - 20 + t['id'] for t in memory.fetch(memory.rows())]
        assert [memory.find(insertion_id) for insertion_id in there] == memory.rows().tolist()
