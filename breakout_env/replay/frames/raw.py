"""Frames kept unchanged, each in the row of its number: in memory, or in a file. Only their saves are compressed."""

from typing import List, Optional, Sequence, Tuple

import numpy as np

from .codec import FrameCodec
from .growable_memory import GrowableMemory

# What a storage hands to a save: a codec, the frames that it compressed, their blobs.
Exported = List[Tuple[FrameCodec, np.ndarray, List[bytes]]]
_TRAINING_FRAMES = 1024


class RawFrames(object):
    """
    The storages ``ring`` (in memory) and ``memmap`` (in a file below ``folder``). Frames have numbers that
    ``FrameStore`` gives out and reuses.
    """

    def __init__(self, frame_bytes: int, folder: Optional[str] = None) -> None:
        self._frame_bytes = frame_bytes
        self._memory = GrowableMemory(folder)
        self._in_file = folder is not None
        self._rows = 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of the process's memory, tables included; a file's pages are the system's to take back."""
        return 0 if self._in_file else self._rows * self._frame_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""
        return self._memory.nbytes if self._in_file else 0

    def put(self, frame: int, pixels: memoryview) -> None:
        """Keep a frame. Raises OSError or MemoryError if there is no room; nothing has changed then."""
        start = frame * self._frame_bytes
        self._memory.reserve(start + self._frame_bytes)
        self._memory.view[start : start + self._frame_bytes] = pixels
        self._rows = max(self._rows, frame + 1)

    def drop(self, frames: Sequence[int]) -> None:
        """Forget frames; here, their rows are written over."""

    def read(self, frames: np.ndarray, out: np.ndarray) -> None:
        """
        Overview:
            Copy frames, by number, into the rows of ``out``.
        Shapes:
            - frames: :math:`(N, )`
            - out: :math:`(N, frame_bytes)`, uint8
        """
        rows = np.frombuffer(self._memory.view, np.uint8, self._rows * self._frame_bytes)
        # mode='clip' because numpy copies once more in the mode that checks; the numbers are our own
        np.take(rows.reshape(-1, self._frame_bytes), frames, axis=0, out=out, mode='clip')

    def export(self, frames: np.ndarray, codec: Optional[FrameCodec]) -> Exported:
        """
        Frames for a save, compressed whatever the storage, so that any storage can load it. ``codec`` is the one that
        the previous call returned, None at first; a storage that does not compress uses it again.
        """
        rows = np.empty((len(frames), self._frame_bytes), np.uint8)
        self.read(frames, rows)
        if codec is None:
            some = rows[:: max(1, len(frames) // _TRAINING_FRAMES)]
            codec = FrameCodec.train([bytes(row) for row in some], self._frame_bytes) or FrameCodec(self._frame_bytes)
        return [(codec, frames, [codec.compress(row) for row in rows])]

    def load(self, frames: List[int], codec: FrameCodec, blobs: List[memoryview], pixels: list) -> None:
        """Keep frames of a save; ``pixels`` are ``blobs`` decompressed."""
        for frame, one in zip(frames, pixels):
            self.put(frame, one)

    def close(self) -> None:
        """Release all memory."""
        self._memory.close()
