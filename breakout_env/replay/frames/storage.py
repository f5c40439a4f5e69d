"""What a storage of frames does; ``compressed.py`` and ``raw.py`` have the storages."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class FrameStorage(Protocol):
    """Keeps the pixels of frames of one size, by the numbers that ``FrameStore`` gives out and reuses."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of the process's memory, tables included; the system can take back the pages of a file."""

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""

    def put(self, frame: int, pixels: memoryview) -> None:
        """Keep a frame. Raises OSError or MemoryError if there is no room; nothing has changed then."""

    def drop(self, frames: Sequence[int]) -> None:
        """Forget frames."""

    def read(self, frames: np.ndarray, out: np.ndarray) -> None:
        """Copy frames, by number, into the rows of ``out``."""

    def close(self) -> None:
        """Release all memory and the file."""
