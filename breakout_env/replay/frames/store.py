"""Each distinct frame once: found by its content, kept as long as it is referred to."""

import struct
from array import array
from collections.abc import Callable, Iterable

import numpy as np
import torch
import xxhash

from .compressed import CompressedFrames
from .raw import RawFrames
from .storage import FrameStorage

# The values of the option `storage`, and what makes them from bytes of a frame and folder.
STORAGES: dict[str, Callable[[int, str | None], FrameStorage]] = dict(
    compressed=lambda frame_bytes, folder: CompressedFrames(frame_bytes),
    ring=lambda frame_bytes, folder: RawFrames(frame_bytes),
    memmap=RawFrames,
)
_HALVES = struct.Struct('<QQ')
_RECENT = 256
_digest = xxhash.xxh3_128_digest


class FrameStore:
    """Takes frames of one size, gives out numbers, and keeps a frame as long as there are references to its number; its
    pixels are in a backend. Two frames are the same if their 128-bit xxh3 digests are: among a million frames in memory
    and ten billion pushed the chance of one mistake is below 1e-22, which is what content addressing elsewhere (git,
    backup tools) relies on.

    The table is a chained hash map in flat arrays: ``heads[bucket]`` is the first frame of a bucket and ``next[frame]``
    the one after it, 0 ends a chain. A Python dict would take over 150 bytes a frame for this, the arrays take about
    32. Single entries are read and written through memoryviews, which Python does twice as fast as numpy does.
    """

    def __init__(self, frame_bytes: int, expected_frames: int, storage: str, folder: str | None = None) -> None:
        self.frame_bytes = frame_bytes
        self._storage = STORAGES[storage](frame_bytes, folder)
        # more frames than expected only make searching slower
        buckets = 1 << max(10, (expected_frames - 1).bit_length())
        self._mask = buckets - 1
        self._heads = np.zeros(buckets, np.uint32).data
        self._recent: dict[bytes, int] = {}  # by digest, which finds most of a push's frames again, and sooner
        self._free = array('I')
        self._end = 1  # numbers from here on were never given out; 0 stands for no frame
        self._low, self._high, self._next, self._references = _columns(4096)

    @property
    def count(self) -> int:
        """Distinct frames."""
        return self._end - 1 - len(self._free)

    @property
    def references(self) -> np.ndarray:
        """How often each frame number is referred to; 0 for numbers not in use. Read only."""
        return np.asarray(self._references)[: self._end]

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""
        return self._storage.file_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use, tables included; pages that were never touched are not resident."""
        per_frame = sum(column.itemsize for column in (self._low, self._high, self._next, self._references))
        tables = self._heads.nbytes + self._end * per_frame + len(self._free) * self._free.itemsize
        return tables + self._storage.resident_bytes

    def add(self, pixels: memoryview, frames: list[int]) -> None:
        """Take any whole number of frames, one after the other, with one reference to each, and append their numbers to
        ``frames``. After an OSError, as the disk is full, the numbers before that frame are there.
        """
        size, references, recent = self.frame_bytes, self._references, self._recent
        for start in range(0, len(pixels), size):
            one = pixels[start : start + size]
            digest = _digest(one)
            frame = recent.get(digest)
            if frame is None:
                frame = self._find(digest)
                if not frame:
                    self._storage.put(self._next_number, one)
                    frame = self._insert(digest)
                    references = self._references  # it may have grown
                if len(recent) == _RECENT:
                    recent.clear()
                recent[digest] = frame
            references[frame] += 1
            frames.append(frame)

    def release(self, frames: Iterable[int]) -> None:
        """Remove a reference to each of these, and drop frames without a reference."""
        references, unused = self._references, []
        for frame in frames:
            left = references[frame] - 1
            references[frame] = left
            if not left:
                unused.append(frame)
        self._drop(unused)

    def gather(self, frames: np.ndarray, pinned: bool = False) -> torch.Tensor:
        """Frames by number, one in each row, in pinned memory or not."""
        shape = (len(frames), self.frame_bytes)
        if pinned:
            out = torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        else:  # torch takes ten times as long as numpy to allocate as much
            out = torch.from_numpy(np.empty(shape, np.uint8))
        self._storage.read(frames, out.numpy())
        return out

    def set_references(self, frames: np.ndarray) -> None:
        """After a load: each occurrence in ``frames`` is one reference, and there are no others."""
        self.references[:] = np.bincount(frames, minlength=self._end)
        self._drop((np.flatnonzero(self.references[1:] == 0) + 1).tolist())

    def close(self) -> None:
        """Release all memory, and the file."""
        self._storage.close()

    def _find(self, digest: bytes) -> int:
        """The number of the frame with this digest, or 0."""
        low, high = _HALVES.unpack(digest)
        frame = self._heads[low & self._mask]
        lows, highs, following = self._low, self._high, self._next
        while frame and not (lows[frame] == low and highs[frame] == high):
            frame = following[frame]
        return frame

    @property
    def _next_number(self) -> int:
        return self._free[-1] if self._free else self._end

    def _insert(self, digest: bytes) -> int:
        """Enter a stored frame into the table, by the next number, without a reference so far."""
        low, high = _HALVES.unpack(digest)
        frame = self._next_number
        if frame == len(self._low):
            # doubled: an occasional copy is cheap, and pages that nobody has written to are not resident
            grown = _columns(2 * frame)
            for column, old in zip(grown, (self._low, self._high, self._next, self._references)):
                column[:frame] = old
            self._low, self._high, self._next, self._references = grown
        if frame < self._end:
            self._free.pop()
        else:
            self._end += 1
        bucket = low & self._mask
        self._low[frame], self._high[frame], self._references[frame] = low, high, 0
        self._next[frame] = self._heads[bucket]
        self._heads[bucket] = frame
        return frame

    def _drop(self, unused: list[int]) -> None:
        """Drop unreferenced frames: unlink, free, then recycle the number, in this order."""
        heads, following = self._heads, self._next
        for frame in unused:
            self._recent.pop(_HALVES.pack(self._low[frame], self._high[frame]), None)
            bucket = self._low[frame] & self._mask
            before = heads[bucket]
            if before == frame:
                heads[bucket] = following[frame]
            else:
                while following[before] != frame:
                    before = following[before]
                following[before] = following[frame]
        if unused:
            self._storage.drop(unused)
            self._free.extend(unused)


def _columns(size: int) -> tuple[memoryview, memoryview, memoryview, memoryview]:
    low, high, following, references = (np.zeros(size, dtype).data for dtype in ('u8', 'u8', 'u4', 'u4'))
    return low, high, following, references
