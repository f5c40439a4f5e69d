"""Which frame is stored under which number: content in, number out, and how often each is referred to."""

import struct
from array import array
from typing import Iterable, List, Tuple

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
        self._heads = np.zeros(buckets, np.uint32).data
        self._free = array('I')
        self._end = 1  # numbers from here on were never given out; 0 stands for no frame
        self._low, self._high, self._next, self._references = _columns(_GROWTH)

    @property
    def count(self) -> int:
        """Frames in the index."""
        return self._end - 1 - len(self._free)

    @property
    def references(self) -> np.ndarray:
        """How often each frame number is referred to; 0 for those not in use. For looking at, not for writing."""
        return np.asarray(self._references)[: self._end]

    @property
    def nbytes(self) -> int:
        """Bytes in use; pages that were never touched are not resident."""
        per_frame = sum(c.itemsize for c in (self._low, self._high, self._next, self._references))
        return self._heads.nbytes + self._end * per_frame + len(self._free) * self._free.itemsize

    def find(self, digest: bytes) -> int:
        """The number of the frame with this digest, or 0."""
        low, high = _HALVES.unpack(digest)
        frame = self._heads[low & self._mask]
        lows, highs, following = self._low, self._high, self._next
        while frame and not (lows[frame] == low and highs[frame] == high):
            frame = following[frame]
        return frame

    @property
    def next_number(self) -> int:
        """The number that ``insert`` gives out next."""
        return self._free[-1] if self._free else self._end

    def insert(self, digest: bytes) -> int:
        """Give ``next_number`` to a frame that is stored and not in the index yet. Nothing refers to it so far."""
        low, high = _HALVES.unpack(digest)
        frame = self.next_number
        if frame == len(self._low):
            self._grow()
        if frame < self._end:
            self._free.pop()
        else:
            self._end += 1
        bucket = low & self._mask
        self._low[frame], self._high[frame], self._references[frame] = low, high, 0
        self._next[frame] = self._heads[bucket]
        self._heads[bucket] = frame
        return frame

    def acquire(self, frames: Iterable[int]) -> None:
        """One more reference to each of these; a frame may be named several times."""
        references = self._references
        for frame in frames:
            references[frame] += 1

    def release(self, frames: Iterable[int]) -> List[int]:
        """
        One reference less to each of these. Those without any are not found any more, and returned; ``recycle`` them
        when their pixels are gone.
        """
        references = self._references
        unused = []
        for frame in frames:
            left = references[frame] - 1
            references[frame] = left
            if not left:
                self._unlink(frame)
                unused.append(frame)
        return unused

    def set_references(self, references: np.ndarray) -> List[int]:
        """Set how often each number is referred to, after a load; those without a reference as in ``release``."""
        self.references[: len(references)] = references
        unused = (np.flatnonzero(self.references[1:] == 0) + 1).tolist()
        for frame in unused:
            self._unlink(frame)
        return unused

    def recycle(self, frames: List[int]) -> None:
        """Numbers that may be given out again."""
        self._free.extend(frames)

    def _unlink(self, frame: int) -> None:
        following = self._next
        bucket = self._low[frame] & self._mask
        before = self._heads[bucket]
        if before == frame:
            self._heads[bucket] = following[frame]
        else:
            while following[before] != frame:
                before = following[before]
            following[before] = following[frame]

    def _grow(self) -> None:
        # doubled: an occasional copy is cheap, and pages that nobody has written to are not resident
        grown = _columns(2 * len(self._low))
        for column, old in zip(grown, (self._low, self._high, self._next, self._references)):
            column[: len(old)] = old
        self._low, self._high, self._next, self._references = grown


def _columns(size: int) -> Tuple[memoryview, memoryview, memoryview, memoryview]:
    low, high, following, references = (np.zeros(size, dtype).data for dtype in ('u8', 'u8', 'u4', 'u4'))
    return low, high, following, references
