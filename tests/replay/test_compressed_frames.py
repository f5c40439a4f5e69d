"""Storage ``compressed`` beside a dict of plain copies, while segments are cleaned and dictionaries trained."""

import mmap
from collections import Counter

import numpy as np
import pytest

from breakout_env.replay.frames.compressed import CompressedFrames
from helpers.replay import SIDE, screen


@pytest.mark.parametrize('seed', range(3))
def test_compressed_frames_outlive_their_segments_and_dictionaries(seed, frequent_training):
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
