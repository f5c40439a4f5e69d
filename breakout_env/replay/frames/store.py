"""Each distinct frame once: found by its content, counted by who refers to it, stored in one of four ways."""

from typing import Callable, Dict, Iterable, List, Optional

import numpy as np
import torch
import xxhash

from .codec import Exported, FrameCodec
from .compressed import CompressedFrames
from .device import DeviceFrames
from .index import FrameIndex
from .raw import RawFrames

STORAGES: Dict[str, Callable] = dict(
    compressed=lambda frame_bytes, expected_frames, folder, device: CompressedFrames(frame_bytes),
    ring=lambda frame_bytes, expected_frames, folder, device: RawFrames(frame_bytes),
    memmap=lambda frame_bytes, expected_frames, folder, device: RawFrames(frame_bytes, folder),
    device=lambda frame_bytes, expected_frames, folder, device: DeviceFrames(frame_bytes, expected_frames, device),
)


class FrameStore(object):
    """
    Overview:
        Takes frames of one size, gives out numbers, and keeps a frame as long as there are references to its number.
    Interfaces:
        ``add``, ``hold``, ``release``, ``read``, ``gather``, ``export``, ``load``, ``close``.
    Properties:
        ``count``, ``nbytes``, ``stored_bytes``, ``device_bytes``, ``file_bytes``.
    """

    def __init__(
        self,
        frame_bytes: int,
        expected_frames: int,
        storage: str,
        folder: Optional[str] = None,
        device: str = 'cuda',
    ) -> None:
        """
        Arguments:
            - frame_bytes (:obj:`int`): Size of a frame.
            - expected_frames (:obj:`int`): About how many there will be.
            - storage (:obj:`str`): One of ``STORAGES``.
            - folder (:obj:`Optional[str]`): Where storage 'memmap' keeps its file.
            - device (:obj:`str`): Where storage 'device' keeps frames.
        """
        self.frame_bytes = frame_bytes
        self._index = FrameIndex(expected_frames)
        self._storage = STORAGES[storage](frame_bytes, expected_frames, folder, device)

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
        return self._index.nbytes + self._storage.resident_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the frames themselves, as stored."""
        return self._storage.stored_bytes

    @property
    def device_bytes(self) -> int:
        """Bytes on the device of storage 'device'."""
        return self._storage.device_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""
        return self._storage.file_bytes

    def add(self, pixels: memoryview, known: Dict[bytes, int]) -> List[int]:
        """
        Overview:
            Take some frames, with one reference to each.
        Arguments:
            - pixels (:obj:`memoryview`): Any whole number of frames, one after the other, as bytes.
            - known (:obj:`Dict[bytes, int]`): Frames met a moment ago, by digest, which saves looking them up again; \
                filled here. Valid as long as nothing is released.
        Returns:
            - frames (:obj:`List[int]`): Their numbers.
        Raises:
            - OSError: If the disk is full. What was taken before that frame is released again.
        """
        index, size, digest_of = self._index, self.frame_bytes, xxhash.xxh3_128_digest
        frames = []
        for start in range(0, len(pixels), size):
            one = pixels[start : start + size]
            digest = digest_of(one)
            frame = known.get(digest)
            if frame is None:
                frame = known[digest] = index.find(digest)
            if not frame:
                frame = index.insert(digest)
                try:
                    self._storage.put(frame, one)
                except BaseException:  # a full disk, or Ctrl-C: as if this call had not been
                    index.cancel(frame)
                    index.take(frames)
                    self.release(frames)
                    raise
                known[digest] = frame
            frames.append(frame)
        index.take(frames)
        return frames

    def hold(self, frames: Iterable[int]) -> None:
        """One more reference to each of these."""
        self._index.take(frames)

    def release(self, frames: Iterable[int]) -> None:
        """One reference less to each; frames without any are dropped."""
        gone = self._index.drop(frames)
        if gone:
            self._storage.drop(gone)

    def read(self, frames: np.ndarray, out: np.ndarray, in_one_go: bool = False) -> None:
        """
        Overview:
            Copy frames, by number, into the rows of ``out``, on the host.
        Arguments:
            - in_one_go (:obj:`bool`): Whether to release the GIL once for all frames, as suits a thread of its own.
        Shapes:
            - frames: :math:`(N, )`
            - out: :math:`(N, frame_bytes)`, uint8
        """
        self._storage.read(frames, out, in_one_go)

    def gather(self, frames: np.ndarray, pinned: bool = False, in_one_go: bool = False) -> torch.Tensor:
        """
        Overview:
            Frames, by number, in one tensor: on the device of storage 'device', else on the host.
        Arguments:
            - pinned (:obj:`bool`): Whether on the host it is pinned memory, from where a GPU copies without waiting.
            - in_one_go (:obj:`bool`): See ``read``.
        Shapes:
            - frames: :math:`(N, )`
            - gathered: :math:`(N, frame_bytes)`, uint8
        """
        if self._storage.device is not None:
            return self._storage.gather(frames)
        shape = (len(frames), self.frame_bytes)
        # numpy's memory where it will do: torch takes ten times as long to hand out as much
        if pinned:
            out = torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        else:
            out = torch.from_numpy(np.empty(shape, np.uint8))
        self._storage.read(frames, out.numpy(), in_one_go)
        return out

    def codec_for_export(self, frames: np.ndarray) -> Optional[FrameCodec]:
        """To be passed to ``export``, made once for all frames of a save."""
        return self._storage.codec_for_export(frames)

    def export(self, frames: np.ndarray, codec: Optional[FrameCodec]) -> Exported:
        """Frames for a save, in pieces: their numbers, the codec, and each compressed, whatever the storage."""
        return self._storage.export(frames, codec)

    def load(self, codec: FrameCodec, lengths: np.ndarray, blobs: np.ndarray) -> List[int]:
        """
        Overview:
            Take frames from a save, without a reference to them yet.
        Arguments:
            - codec (:obj:`FrameCodec`): What they are compressed with.
            - lengths (:obj:`np.ndarray`): Bytes of each.
            - blobs (:obj:`np.ndarray`): The compressed frames, one after the other.
        Returns:
            - frames (:obj:`List[int]`): Their numbers.
        Raises:
            - ValueError: If these are not such frames.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        if len(lengths) == 0 or lengths.min() == 0 or ends[-1] != len(blobs):
            raise ValueError('the lengths of compressed frames do not fit their data')
        places = np.ascontiguousarray(np.stack([ends - lengths, lengths], axis=1), np.uint64)
        view = memoryview(np.ascontiguousarray(blobs))
        pixels = codec.decompress(view, places)
        frames = []
        for one in pixels:
            if len(one) != self.frame_bytes:
                raise ValueError('a frame has another size than the file says')
            digest = xxhash.xxh3_128_digest(one)
            if self._index.find(digest):
                raise ValueError('a frame is there twice')
            frames.append(self._index.insert(digest))
        starts, ends = (ends - lengths).tolist(), ends.tolist()
        self._storage.load(frames, codec, [view[start:end] for start, end in zip(starts, ends)], pixels)
        return frames

    def set_references(self, references: np.ndarray) -> None:
        """Say how often each frame is referred to, after ``load``; those that nobody refers to are dropped."""
        gone = self._index.set_references(references)
        if gone:
            self._storage.drop(gone)

    def close(self) -> None:
        self._storage.close()
