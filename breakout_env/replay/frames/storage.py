"""What a storage of frames does; ``compressed.py`` and ``raw.py`` have the storages."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from .codec import FrameCodec


class Exported(NamedTuple):
    """Frames for a save, compressed by one codec."""

    codec: FrameCodec
    frames: np.ndarray
    blobs: list[bytes]


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
        """
        Overview:
            Copy frames, by number, into the rows of ``out``.
        Shapes:
            - frames: :math:`(N, )`
            - out: :math:`(N, frame_bytes)`, uint8
        """

    def export(self, frames: np.ndarray, codec: FrameCodec | None) -> list[Exported]:
        """
        Frames for a save, compressed whatever the storage, so that any storage can load it. ``codec`` is the last one
        that the previous call returned, None at first; a storage that does not compress uses it again.
        """

    def load(self, frames: list[int], codec: FrameCodec, blobs: list[memoryview], pixels: list[bytes]) -> None:
        """Keep frames of a save; ``pixels`` are ``blobs`` decompressed."""

    def close(self) -> None:
        """Release all memory and the file."""
