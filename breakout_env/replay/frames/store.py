"""Each distinct frame once: found by its content, kept as long as it is referred to."""

from typing import Callable, Dict, Iterable, List, Optional

import numpy as np
import xxhash

from .codec import FrameCodec
from .compressed import CompressedFrames
from .device import DeviceFrames
from .index import FrameIndex
from .raw import RawFrames
from .storage import FrameStorage

STORAGES: Dict[str, Callable[[int, int, Optional[str], str], FrameStorage]] = dict(
    compressed=lambda frame_bytes, expected_frames, folder, device: CompressedFrames(frame_bytes),
    ring=lambda frame_bytes, expected_frames, folder, device: RawFrames(frame_bytes),
    memmap=lambda frame_bytes, expected_frames, folder, device: RawFrames(frame_bytes, folder),
    device=lambda frame_bytes, expected_frames, folder, device: DeviceFrames(frame_bytes, expected_frames, device),
)


class FrameStore(object):
    """Takes frames of one size, gives out numbers, and keeps a frame as long as there are references to its number."""

    def __init__(
        self, frame_bytes: int, expected_frames: int, storage: str, folder: Optional[str] = None, device: str = 'cuda'
    ) -> None:
        self.frame_bytes = frame_bytes
        self._index = FrameIndex(expected_frames)
        self.storage = STORAGES[storage](frame_bytes, expected_frames, folder, device)

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
        for start in range(0, len(pixels), size):
            one = pixels[start : start + size]
            digest = digest_of(one)
            frame = known.get(digest)
            if frame is None:
                frame = known[digest] = index.find(digest)
            if not frame:
                frame = index.insert(digest)
                try:
                    self.storage.put(frame, one)
                except BaseException:  # a full disk, or Ctrl-C: undo this call
                    index.cancel(frame)
                    index.acquire(frames)
                    self.release(frames)
                    raise
                known[digest] = frame
            frames.append(frame)
        index.acquire(frames)
        return frames

    def acquire(self, frames: Iterable[int]) -> None:
        """One more reference to each of these."""
        self._index.acquire(frames)

    def release(self, frames: Iterable[int]) -> None:
        """One reference less to each; frames without any are dropped."""
        unused = self._index.release(frames)
        if unused:
            self.storage.drop(unused)

    def load(self, codec: FrameCodec, lengths: np.ndarray, blobs: np.ndarray) -> List[int]:
        """
        Take compressed frames, one after the other, from a save; there is no reference to them yet. A ValueError says
        that these are no frames of this size, or that the store has one of them.
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
        unused = self._index.set_references(references)
        if unused:
            self.storage.drop(unused)

    def close(self) -> None:
        self.storage.close()
