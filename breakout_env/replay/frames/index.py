"""Which frame is stored under which number: content in, number out, and how often each is referred to."""

import struct
from array import array
from typing import Iterable, List

import numpy as np

_HALVES = struct.Struct('<QQ')
_GROWTH = 4096


class FrameIndex(object):
    """
    Finds a frame by its content. Two frames are the same if their 128-bit xxh3 digests are: among a million
    frames in memory and ten billion pushed the chance of one mistake is below 1e-22, which is what content
    addressing elsewhere (git, backup tools) relies on.

    The table is a chained hash map in flat arrays: ``heads[bucket]`` is the first frame of a bucket and
    ``next[frame]`` the one after it, 0 ends a chain. A Python dict would take over 150 bytes a frame for this,
    the arrays take about 32. Single entries are read and written through memoryviews, which Python does twice as
    fast as numpy does.
    """

    def __init__(self, expected_frames: int) -> None:
        # more frames than expected only make searching slower
        buckets = 1 << max(10, (expected_frames - 1).bit_length())
        self._mask = buckets - 1
        self._heads_array = np.zeros(buckets, np.uint32)
        self._heads = self._heads_array.data
        self._free = array('I')
        self._end = 1  # numbers from here on were never given out; 0 stands for no frame
        self._arrays = [np.zeros(_GROWTH, dtype) for dtype in ('uint64', 'uint64', 'uint32', 'uint32')]
        self._view()

    def _view(self) -> None:
        self._low, self._high, self._next, self._references = (array.data for array in self._arrays)

    @property
    def count(self) -> int:
        """Distinct frames."""
        return self._end - 1 - len(self._free)

    @property
    def references(self) -> np.ndarray:
        """How often each frame number is referred to; 0 for those not in use. For looking at, not for writing."""
        return self._arrays[3][: self._end]

    @property
    def nbytes(self) -> int:
        """Bytes in use; pages that were never touched are not resident."""
        per_frame = sum(a.itemsize for a in self._arrays)
        return self._heads_array.nbytes + self._end * per_frame + len(self._free) * self._free.itemsize

    def find(self, digest: bytes) -> int:
        """The number of the frame with this digest, or 0."""
        low, high = _HALVES.unpack(digest)
        frame = self._heads[low & self._mask]
        lows, highs, following = self._low, self._high, self._next
        while frame and not (lows[frame] == low and highs[frame] == high):
            frame = following[frame]
        return frame

    def insert(self, digest: bytes) -> int:
        """A number for a frame that is not there yet, with no reference so far."""
        if self._free:
            frame = self._free.pop()
        else:
            frame = self._end
            if frame == len(self._low):
                self._grow()
            self._end += 1
        low, high = _HALVES.unpack(digest)
        bucket = low & self._mask
        self._low[frame] = low
        self._high[frame] = high
        self._next[frame] = self._heads[bucket]
        self._heads[bucket] = frame
        self._references[frame] = 0
        return frame

    def acquire(self, frames: Iterable[int]) -> None:
        """One more reference to each of these; a frame may be named several times."""
        references = self._references
        for frame in frames:
            references[frame] += 1

    def release(self, frames: Iterable[int]) -> List[int]:
        """One reference less to each of these; those without any are forgotten and returned."""
        references = self._references
        unused = []
        for frame in frames:
            left = references[frame] - 1
            references[frame] = left
            if left == 0:
                self._forget(frame)
                unused.append(frame)
        return unused

    def set_references(self, references: np.ndarray) -> List[int]:
        """Set how often each number is referred to; those without a reference are forgotten and returned."""
        counts = np.zeros(self._end, np.int64)
        counts[: len(references)] = references
        self._arrays[3][: self._end] = counts
        in_use = np.ones(self._end, np.bool_)
        in_use[0] = False
        in_use[np.array(self._free, np.int64)] = False
        unused = np.flatnonzero(in_use & (counts == 0)).tolist()
        for frame in unused:
            self._forget(frame)
        return unused

    def cancel(self, frame: int) -> None:
        """Undo an ``insert`` that nobody referred to yet."""
        self._forget(frame)

    def _forget(self, frame: int) -> None:
        following = self._next
        bucket = self._low[frame] & self._mask
        before = self._heads[bucket]
        if before == frame:
            self._heads[bucket] = following[frame]
        else:
            while following[before] != frame:
                before = following[before]
            following[before] = following[frame]
        self._free.append(frame)

    def _grow(self) -> None:
        # doubled: an occasional copy is cheap, and pages that nobody has written to are not resident
        size = len(self._low)
        for i, old in enumerate(self._arrays):
            self._arrays[i] = np.zeros(2 * size, old.dtype)
            self._arrays[i][:size] = old
        self._view()
