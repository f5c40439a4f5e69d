"""Each distinct frame once: found by its content, kept as long as it is referred to."""

from typing import Callable, Dict, Iterable, List, Optional

import numpy as np
import torch
import xxhash

from .codec import FrameCodec
from .compressed import CompressedFrames
from .index import FrameIndex
from .raw import RawFrames
from .storage import FrameStorage

# The values of the option `storage`, and what makes them from bytes of a frame and folder.
STORAGES: Dict[str, Callable[[int, Optional[str]], FrameStorage]] = dict(
    compressed=lambda frame_bytes, folder: CompressedFrames(frame_bytes),
    ring=lambda frame_bytes, folder: RawFrames(frame_bytes),
    memmap=RawFrames,
)


class DistinctFrames(object):
    """
    Takes frames of one size, gives out numbers, and keeps a frame as long as there are references to its number.

    A signal handler may raise between any two steps. They are in an order that leaves at worst a frame with too
    many references, which stays: pixels are stored before they are found, and found no more before they are dropped.
    """

    def __init__(self, frame_bytes: int, expected_frames: int, storage: str, folder: Optional[str] = None) -> None:
        self.frame_bytes = frame_bytes
        self._index = FrameIndex(expected_frames)
        self.storage = STORAGES[storage](frame_bytes, folder)

    @property
    def count(self) -> int:
        """Distinct frames."""
        return self._index.count

    @property
    def references(self) -> np.ndarray:
        """How often each frame number is referred to; 0 for those not in use."""
        return self._index.references

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use, tables included."""
        return self._index.nbytes + self.storage.resident_bytes

    def add(self, pixels: memoryview, known: Dict[bytes, int]) -> List[int]:
        """
        Overview:
            Take some frames, with one reference to each; returns their numbers.
        Arguments:
            - pixels (:obj:`memoryview`): Any whole number of frames, one after the other, as bytes.
            - known (:obj:`Dict[bytes, int]`): Frames of recent calls by digest, which saves looking them up again; \
                filled here. Valid as long as nothing is released.
        Raises:
            - OSError: If the disk is full. The frames before that one are released again.
        """
        index, size, digest_of = self._index, self.frame_bytes, xxhash.xxh3_128_digest
        frames: List[int] = []
        try:
            for start in range(0, len(pixels), size):
                one = pixels[start : start + size]
                digest = digest_of(one)
                frame = known.get(digest)
                if frame is None:
                    frame = index.find(digest)
                    if not frame:
                        frame = index.next_number
                        self.storage.put(frame, one)
                        index.insert(digest)
                    known[digest] = frame
                frames.append(frame)
        except BaseException:
            index.acquire(frames)
            self.release(frames)
            raise
        index.acquire(frames)
        return frames

    def acquire(self, frames: Iterable[int]) -> None:
        """One more reference to each of these."""
        self._index.acquire(frames)

    def release(self, frames: Iterable[int]) -> None:
        """One reference less to each; frames without any are dropped."""
        self._drop(self._index.release(frames))

    def gather(self, frames: np.ndarray, pinned: bool = False, at_once: bool = False) -> torch.Tensor:
        """
        Overview:
            Frames by number, in pinned memory or not; for ``at_once`` see ``FrameStorage.read``.
        Shapes:
            - frames: :math:`(N, )`
            - returned: :math:`(N, frame_bytes)`, uint8
        """
        shape = (len(frames), self.frame_bytes)
        if pinned:
            out = torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        else:  # torch takes ten times as long as numpy to allocate as much
            out = torch.from_numpy(np.empty(shape, np.uint8))
        self.storage.read(frames, out.numpy(), at_once)
        return out

    def load(self, codec: FrameCodec, lengths: np.ndarray, blobs: np.ndarray) -> List[int]:
        """
        Take compressed frames, one after the other, from a save; there is no reference to them yet. A ValueError says
        that these are no frames of this size, or that one of them is there already.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        if len(lengths) == 0 or lengths.min() == 0 or ends[-1] != len(blobs):
            raise ValueError('the lengths of compressed frames do not fit their data')
        places = np.ascontiguousarray(np.stack([ends - lengths, lengths], axis=1), np.uint64)
        view = np.ascontiguousarray(blobs).data
        pixels = codec.decompress(view, places)
        frames = []
        for one in pixels:
            if len(one) != self.frame_bytes:
                raise ValueError('a frame has another size than the file says')
            digest = xxhash.xxh3_128_digest(one)
            if self._index.find(digest):
                raise ValueError('a frame is there twice')
            frames.append(self._index.insert(digest))
        bounds = zip((ends - lengths).tolist(), ends.tolist())
        self.storage.load(frames, codec, [view[start:end] for start, end in bounds], pixels)
        return frames

    def set_references(self, references: np.ndarray) -> None:
        """Set how often each frame is referred to, after ``load``; frames without a reference are dropped."""
        self._drop(self._index.set_references(references))

    def _drop(self, unused: List[int]) -> None:
        if unused:
            self.storage.drop(unused)
            self._index.recycle(unused)

    def close(self) -> None:
        """Release all memory, and the file."""
        self.storage.close()
