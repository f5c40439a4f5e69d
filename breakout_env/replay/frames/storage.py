"""What a storage of frames does, whatever it keeps them in."""

from typing import List, Optional, Protocol, Sequence, Tuple

import numpy as np

from .codec import FrameCodec

# What a storage hands to a save: a codec, the frames that it compressed, their blobs.
Exported = List[Tuple[FrameCodec, np.ndarray, List[bytes]]]


class FrameStorage(Protocol):
    """Keeps the pixels of frames under numbers that ``DistinctFrames`` gives out and reuses."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of the frames themselves, as stored."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of the process's memory, tables included; a file's pages are the system's to take back."""

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""

    def put(self, frame: int, pixels: memoryview) -> None:
        """Keep a frame. Raises OSError or MemoryError if there is no room; nothing has changed then."""

    def drop(self, frames: Sequence[int]) -> None:
        """Forget frames."""

    def read(self, frames: np.ndarray, out: np.ndarray, at_once: bool = False) -> None:
        """
        Overview:
            Copy frames, by number, into the rows of ``out``. ``at_once`` releases the GIL once for all frames, as \
            suits a thread of its own.
        Shapes:
            - frames: :math:`(N, )`
            - out: :math:`(N, frame_bytes)`, uint8
        """

    def export(self, frames: np.ndarray, codec: Optional[FrameCodec]) -> Exported:
        """
        Frames for a save, compressed whatever the storage, so that any storage can load it. ``codec`` is the last one
        of the call before; a storage that does not compress uses it again.
        """

    def load(self, frames: List[int], codec: FrameCodec, blobs: List[memoryview], pixels: list) -> None:
        """Keep frames of a save; ``pixels`` are ``blobs`` decompressed."""

    def close(self) -> None:
        """Release all memory."""
