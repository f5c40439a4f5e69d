"""Frames kept as they are on the learner's device, where batches are put together without crossing the bus."""

from typing import Dict, List, Tuple

import numpy as np
import torch

from .raw import UncompressedFrames

# Frames that wait on the host to be sent together: more than DI-engine's collectors push at a time.
_STAGED_FRAMES = 1024
# A device's memory can not grow in place, and a copy into a larger piece would need both at once. So it grows by an
# eighth of what is expected: few enough pieces for a look into each, and little that lies empty.
_CHUNKS = 8
_LEAST_CHUNK_BYTES = 16 * 1024 * 1024


class DeviceFrames(UncompressedFrames):
    """
    Overview:
        The storage ``device``: a frame takes its size there, and a batch is gathered there. New frames wait on the \
        host until a batch is drawn or 1,024 have come together, and are sent in one copy; the numbers of a batch's \
        frames are sent in another. Both go through pinned memory to a GPU, which fetches them while Python goes on.

        On a GPU everything is queued on the current stream of the thread that calls, as all PyTorch is: whoever \
        pushes on one stream and samples on another orders the two.
    Interfaces:
        ``put``, ``drop``, ``read``, ``gather``, ``codec_for_export``, ``export``, ``load``, ``close``.
    Properties:
        ``device``, ``stored_bytes``, ``resident_bytes``, ``device_bytes``, ``file_bytes``.
    """

    file_bytes = 0

    def __init__(self, frame_bytes: int, expected_frames: int, device: str) -> None:
        """
        Arguments:
            - frame_bytes (:obj:`int`): Size of a frame.
            - expected_frames (:obj:`int`): About how many there will be; for more it grows further.
            - device (:obj:`str`): Where, as PyTorch writes it.
        """
        super().__init__(frame_bytes)
        # with its index: 'cuda' alone is the current GPU of whichever thread asks, and a save has a thread of its own
        self.device = torch.empty(0, device=device).device
        # a little more than expected: first screens of games would otherwise begin a piece of their own
        rows = (expected_frames + expected_frames // 64) // _CHUNKS + 1
        self._chunk_rows = max(rows, _LEAST_CHUNK_BYTES // frame_bytes)
        self._chunks: List[torch.Tensor] = []
        self._staging = np.empty((_STAGED_FRAMES, frame_bytes), np.uint8)
        self._staging_view = memoryview(self._staging).cast('B')
        self._waiting: Dict[int, int] = {}  # frame -> its row there

    @property
    def resident_bytes(self) -> int:
        """Bytes of the host's memory: where frames wait."""
        return self._staging.nbytes

    @property
    def device_bytes(self) -> int:
        """Bytes taken from the device."""
        return len(self._chunks) * self._chunk_rows * self._frame_bytes

    def put(self, frame: int, pixels: memoryview) -> None:
        while frame >= len(self._chunks) * self._chunk_rows:
            self._grow()
        # a number that was dropped while it waited and given out anew has its row already
        row = self._waiting.get(frame)
        if row is None:
            if len(self._waiting) == len(self._staging):
                self._send_waiting()
            row = len(self._waiting)
        start = row * self._frame_bytes
        self._staging_view[start : start + self._frame_bytes] = pixels
        self._waiting[frame] = row
        self._frames += 1

    def gather(self, frames: np.ndarray) -> torch.Tensor:
        """
        Overview:
            Frames, by number, in one tensor on the device.
        Shapes:
            - frames: :math:`(N, )`
            - gathered: :math:`(N, frame_bytes)`, uint8
        """
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

    def read(self, frames: np.ndarray, out: np.ndarray, in_one_go: bool = False) -> None:
        """Copy frames, by number, into the rows of ``out``, on the host."""
        torch.from_numpy(out).copy_(self.gather(frames))

    def close(self) -> None:
        self._chunks = []
        self._staging, self._staging_view = np.empty((0, self._frame_bytes), np.uint8), memoryview(b'')

    def _grow(self) -> None:
        try:
            with torch.inference_mode(False):  # a push in that mode would make a tensor that no other may write to
                chunk = torch.empty((self._chunk_rows, self._frame_bytes), dtype=torch.uint8, device=self.device)
        except RuntimeError as error:  # as PyTorch reports memory that is full, on a GPU and elsewhere
            nbytes = self.device_bytes + self._chunk_rows * self._frame_bytes
            raise MemoryError(
                f'the replay buffer can not grow to {nbytes / 1e9:.2f} GB on {self.device}: '
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
            rows = self._sent(rows)
        else:
            rows, order = self._sent(np.stack([rows, order]))
            pixels = pixels.index_select(0, order)
        for chunk, start, end in self._parts(counts):
            chunk.index_copy_(0, rows[start:end], pixels[start:end])
        self._waiting.clear()

    def _by_chunk(self, frames: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An order in which frames of one chunk follow each other, their rows there in it, and how many each has."""
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
            # PyTorch keeps the pinned copy until the GPU has fetched it; the array may change at once
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)
