"""Frames kept as they are, each in the row of its number: in memory, or in a file."""

from typing import Iterable, List, Optional

import numpy as np

from .codec import Exported, FrameCodec
from .growable_memory import GrowingMemory

_TRAINING_FRAMES = 1024


class UncompressedFrames(object):
    """
    Overview:
        What storages have in common that keep frames as they are: no time to decode, and a frame is as large as it \
        is. Those that follow add ``put``, ``read`` and ``close``, and have the interface of ``CompressedFrames``.
    Interfaces:
        ``drop``, ``codec_for_export``, ``export``, ``load``.
    Properties:
        ``stored_bytes``.
    """

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._frames = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of the frames themselves, as stored."""
        return self._frames * self._frame_bytes

    def drop(self, frames: Iterable[int]) -> None:
        self._frames -= len(list(frames))

    def codec_for_export(self, frames: np.ndarray) -> FrameCodec:
        """What ``export`` is to compress with: a dictionary made from some of these frames."""
        some = frames[:: max(1, len(frames) // _TRAINING_FRAMES)]
        trained = FrameCodec.train([bytes(row) for row in self._copies(some)], self._frame_bytes)
        return trained or FrameCodec(self._frame_bytes)

    def export(self, frames: np.ndarray, codec: FrameCodec) -> Exported:
        """Frames for a save: their numbers, and each compressed, as a save is the same for every storage."""
        yield frames, codec, [codec.compress(row) for row in self._copies(frames)]

    def load(self, frames: List[int], codec: FrameCodec, blobs: List[memoryview], pixels: list) -> None:
        """Take over what ``export`` gave; ``pixels`` are the same frames decompressed."""
        for frame, one in zip(frames, pixels):
            self.put(frame, one)

    def _copies(self, frames: np.ndarray) -> np.ndarray:
        out = np.empty((len(frames), self._frame_bytes), np.uint8)
        self.read(frames, out)
        return out


class RawFrames(UncompressedFrames):
    """
    Overview:
        The storages ``ring`` (in memory) and ``memmap`` (in a file).
    Interfaces:
        ``put``, ``drop``, ``read``, ``codec_for_export``, ``export``, ``load``, ``close``.
    Properties:
        ``device``, ``stored_bytes``, ``resident_bytes``, ``device_bytes``, ``file_bytes``.
    """

    device = None  # none but the host
    device_bytes = 0

    def __init__(self, frame_bytes: int, folder: Optional[str] = None) -> None:
        """
        Arguments:
            - frame_bytes (:obj:`int`): Size of a frame.
            - folder (:obj:`Optional[str]`): Where the file goes; None to stay in memory.
        """
        super().__init__(frame_bytes)
        self._memory = GrowingMemory(folder)
        self._in_file = folder is not None
        self._rows = 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of memory this takes at most; a file's pages are the system's to take back."""
        return 0 if self._in_file else self._rows * self._frame_bytes

    @property
    def file_bytes(self) -> int:
        return self._memory.nbytes if self._in_file else 0

    def put(self, frame: int, pixels: memoryview) -> None:
        start = frame * self._frame_bytes
        self._memory.reserve(start + self._frame_bytes)
        self._memory.view[start : start + self._frame_bytes] = pixels
        self._frames += 1
        self._rows = max(self._rows, frame + 1)

    def read(self, frames: np.ndarray, out: np.ndarray, in_one_go: bool = False) -> None:
        """Copy frames, by number, into the rows of ``out``."""
        # mode='clip', as numpy copies once more in the mode that checks; the numbers are our own
        np.take(self._all_rows(), frames, axis=0, out=out, mode='clip')

    def _all_rows(self) -> np.ndarray:
        rows = np.frombuffer(self._memory.view, np.uint8, self._rows * self._frame_bytes)
        return rows.reshape(-1, self._frame_bytes)

    def close(self) -> None:
        self._memory.close()
