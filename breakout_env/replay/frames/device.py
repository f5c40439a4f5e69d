"""Frames kept unchanged on the learner's device, where batches are gathered without crossing the bus."""

from typing import Dict, List, Tuple

import numpy as np
import torch

from ...utils import streams
from .raw import UncompressedFrames

# Frames that wait on the host to be sent together: more than DI-engine's collectors push at a time.
_STAGED_FRAMES = 1024
# A device's memory cannot grow in place, and a copy into a larger chunk would need both at once. So it grows by an
# eighth of what is expected: few enough chunks to look into each, and little unused memory.
_CHUNKS = 8
_LEAST_CHUNK_BYTES = 16 * 1024 * 1024


class DeviceFrames(UncompressedFrames):
    """
    Overview:
        The storage ``device``: frames have their full size there, and batches are gathered there. New frames wait on \
        the host until a batch is gathered or there are 1,024, and are sent in one copy; the numbers of a batch's \
        frames are sent in another. Both reach a GPU through pinned memory, while Python continues.

        .. warning::
            On a GPU all work is queued on the current stream of the calling thread, as is all of PyTorch's: a program \
            that pushes on one stream and samples on another must order the two.
    """

    file_bytes = 0

    def __init__(self, frame_bytes: int, expected_frames: int, device: str) -> None:
        super().__init__(frame_bytes)
        # with its index: 'cuda' alone is the current GPU of whichever thread asks, and a save has a thread of its own
        self.device = torch.empty(0, device=device).device
        # a little more than expected: the first screens of games would otherwise begin another chunk
        rows = (expected_frames + expected_frames // 64) // _CHUNKS + 1
        self._chunk_rows = max(rows, _LEAST_CHUNK_BYTES // frame_bytes)
        self._chunks: List[torch.Tensor] = []
        self._staging = np.empty((_STAGED_FRAMES, frame_bytes), np.uint8)
        self._staging_view = self._staging.data.cast('B')
        self._waiting: Dict[int, int] = {}  # frame -> its row there

    @property
    def resident_bytes(self) -> int:
        return self._staging.nbytes

    @property
    def device_bytes(self) -> int:
        return len(self._chunks) * self._chunk_rows * self._frame_bytes

    def put(self, frame: int, pixels: memoryview) -> None:
        while frame >= len(self._chunks) * self._chunk_rows:
            self._grow()
        # a number that was dropped while it waited and given out again still has its row
        row = self._waiting.get(frame)
        if row is None:
            if len(self._waiting) == len(self._staging):
                self._send_waiting()
            row = len(self._waiting)
        start = row * self._frame_bytes
        self._staging_view[start : start + self._frame_bytes] = pixels
        self._waiting[frame] = row
        self._frames += 1

    def gather(self, frames: np.ndarray, pinned: bool = False, at_once: bool = False) -> torch.Tensor:
        self._send_waiting()
        order, rows, counts = self._by_chunk(frames)
        if counts.max(initial=0) == len(frames):
            return self._chunks[int(counts.argmax())].index_select(0, self._sent(rows))
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        rows, places = self._sent(np.stack([rows, places]))
        found = torch.empty((len(frames), self._frame_bytes), dtype=torch.uint8, device=self.device)
        for chunk, start, end in self._parts(counts):
            torch.index_select(chunk, 0, rows[start:end], out=found[start:end])
        return found.index_select(0, places)

    def read(self, frames: np.ndarray, out: np.ndarray, at_once: bool = False) -> None:
        torch.from_numpy(out).copy_(self.gather(frames))

    def close(self) -> None:
        self._chunks = []
        self._staging, self._staging_view = np.empty((0, self._frame_bytes), np.uint8), memoryview(b'')

    def _grow(self) -> None:
        try:
            # off: a push in this mode would create a tensor that pushes in other modes cannot write to
            with torch.inference_mode(False):
                chunk = torch.empty((self._chunk_rows, self._frame_bytes), dtype=torch.uint8, device=self.device)
        except RuntimeError as error:  # what PyTorch raises when memory is full, on a GPU and elsewhere
            nbytes = self.device_bytes + self._chunk_rows * self._frame_bytes
            raise MemoryError(
                f'the replay buffer cannot grow to {nbytes / 1e9:.2f} GB on {self.device}: '
                f'{str(error).splitlines()[0]} Choose a smaller `replay_buffer_size`, another `device`, or '
                "storage='compressed'"
            ) from None
        self._chunks.append(chunk)

    def _send_waiting(self) -> None:
        if not self._waiting:
            return
        order, rows, counts = self._by_chunk(np.fromiter(self._waiting, np.int64, len(self._waiting)))
        pixels = self._sent(self._staging[: len(order)])
        if counts.max() == len(order):
            places = self._sent(rows)
        else:
            places, sent_order = self._sent(np.stack([rows, order]))
            pixels = pixels.index_select(0, sent_order)
        for chunk, start, end in self._parts(counts):
            chunk.index_copy_(0, places[start:end], pixels[start:end])
        self._waiting.clear()

    def _by_chunk(self, frames: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An order that puts frames of one chunk side by side; their rows in it, in that order; frames by chunk."""
        if len(self._chunks) == 1:
            return np.arange(len(frames)), frames.astype(np.int64), np.array([len(frames)])
        chunks, rows = np.divmod(frames.astype(np.int64), self._chunk_rows)
        order = np.argsort(chunks, kind='stable')
        return order, rows[order], np.bincount(chunks, minlength=len(self._chunks))

    def _parts(self, counts: np.ndarray) -> List[Tuple[torch.Tensor, int, int]]:
        ends = np.cumsum(counts).tolist()
        return [(chunk, end - count, end) for chunk, end, count in zip(self._chunks, ends, counts.tolist()) if count]

    def _sent(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self.device.type == 'cuda':
            # the array may change immediately
            return streams.pinned(tensor).to(self.device, non_blocking=True)
        return tensor.to(self.device)
