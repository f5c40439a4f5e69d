"""Frames kept unchanged, each in the row of its number: in memory, or in a file."""

from collections.abc import Sequence

import numpy as np

from .growable_memory import GrowableMemory


class RawFrames:
    """The storages ``ring`` (in memory) and ``memmap`` (in a file below ``folder``); see ``FrameStorage``."""

    def __init__(self, frame_bytes: int, folder: str | None = None) -> None:
        self._frame_bytes = frame_bytes
        self._memory = GrowableMemory(folder)
        self._in_file = folder is not None
        self._rows = 0

    @property
    def resident_bytes(self) -> int:
        return 0 if self._in_file else self._rows * self._frame_bytes

    @property
    def file_bytes(self) -> int:
        return self._memory.nbytes if self._in_file else 0

    def put(self, frame: int, pixels: memoryview) -> None:
        start = frame * self._frame_bytes
        self._memory.reserve(start + self._frame_bytes)
        self._memory.view[start : start + self._frame_bytes] = pixels
        self._rows = max(self._rows, frame + 1)

    def drop(self, frames: Sequence[int]) -> None:
        """Nothing to do: the next frames with these numbers overwrite their rows."""

    def read(self, frames: np.ndarray, out: np.ndarray) -> None:
        rows = np.frombuffer(self._memory.view, np.uint8, self._rows * self._frame_bytes)
        # mode='clip' because numpy copies once more in the mode that checks; all numbers are from the store
        np.take(rows.reshape(-1, self._frame_bytes), frames, axis=0, out=out, mode='clip')

    def close(self) -> None:
        self._memory.close()
