"""Frames compressed one by one, in memory that is filled like a log and cleaned as it empties."""

import itertools
from array import array
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import torch

from .codec import FrameCodec
from .growable_memory import GrowableMemory
from .storage import Exported, FrameStorage, gather_on_host

# Frames before the first dictionary is trained, and between attempts at a better one: play changes as the agent learns,
# and a dictionary full of bricks does not help to compress a wall that is gone.
_FIRST_TRAINING_FRAMES = 1024
_TRAINING_FRAMES = 1024
_FRAMES_BETWEEN_TRAININGS = 65536
_HELD_OUT_FRAMES = 128
# A new dictionary must reduce frames to this share of their size to be worth segments of its own.
_WORTHWHILE = 0.95
# Segments are cleaned when dead bytes are more than an eighth of the live ones.
_TOLERATED_DEAD = 8


class CompressedFrames(FrameStorage):
    """
    The storage ``compressed``. Compressed frames differ in length, so they are appended to segments of one size,
    as in a log-structured file system (Rosenblum and Ousterhout 1992): a segment whose last frame is dropped is
    free again, and when an eighth of what is stored is dead, the segment with the most dead bytes is emptied by
    copying its live frames. Memory thus never fragments, whatever is evicted in whatever order.

    Each segment belongs to one dictionary. The first is trained after 1,024 frames. Every 65,536 frames another
    one is trained, and used for new frames if it is better.
    """

    device_bytes = file_bytes = 0

    def __init__(self, frame_bytes: int, segment_bytes: int = 1 << 20) -> None:
        self._frame_bytes = frame_bytes
        while segment_bytes < 4 * frame_bytes:  # else much of a segment may stay empty
            segment_bytes *= 2
        self._segment_bytes = segment_bytes
        self._memory = GrowableMemory()
        self._offsets_array = np.zeros(4096, np.uint64)
        self._lengths_array = np.zeros(4096, np.uint32)
        self._offsets, self._lengths = self._offsets_array.data, self._lengths_array.data
        # by segment: its codec (None if it is free), bytes written to it, bytes of these that are alive
        self._codec_of: List[Optional[FrameCodec]] = []
        self._used: List[int] = []
        self._live: List[int] = []
        self._free: List[int] = []
        # by codec: how many segments it has, and the one that is written to
        self._segments_of: Dict[FrameCodec, int] = {}
        self._open: Dict[FrameCodec, int] = {}
        self._live_bytes = 0
        self._dead_bytes = 0
        self._rows = 0
        self._codec = FrameCodec(frame_bytes)
        self._recent = array('I')
        self._until_training = _FIRST_TRAINING_FRAMES

    @property
    def stored_bytes(self) -> int:
        return self._live_bytes

    @property
    def resident_bytes(self) -> int:
        per_frame = self._offsets_array.itemsize + self._lengths_array.itemsize
        return (len(self._used) - len(self._free)) * self._segment_bytes + self._rows * per_frame

    def put(self, frame: int, pixels: memoryview) -> None:
        if frame >= len(self._lengths):
            self._grow_tables(frame + 1)
        self._append(frame, self._codec.compress(pixels), self._codec)
        self._recent.append(frame)
        self._until_training -= 1
        if self._until_training <= 0:
            self._try_a_new_dictionary()

    def drop(self, frames: Sequence[int]) -> None:
        offsets, lengths = self._offsets, self._lengths
        for frame in frames:
            length = lengths[frame]
            lengths[frame] = 0
            self._live_bytes -= length
            self._dead_bytes += length
            segment = offsets[frame] // self._segment_bytes
            self._live[segment] -= length
            if self._live[segment] == 0:
                self._release(segment)
        if self._dead_bytes > max(2 * self._segment_bytes, self._live_bytes // _TOLERATED_DEAD):
            self._clean()

    def read(self, frames: np.ndarray, out: np.ndarray, at_once: bool = False) -> None:
        """
        Overview:
            See ``FrameStorage``; a frame that is wanted twice is decompressed once.
        Arguments:
            - at_once (:obj:`bool`): Whether one call that releases the GIL once decompresses all frames. One at a \
                time, each is copied while it is in the processor's cache, which takes a third less time; but the GIL \
                changes hands for each, and beside a busy thread every change may take milliseconds.
        """
        rows = np.argsort(frames, kind='stable')
        frames = frames[rows]
        starts = self._offsets_array[frames]
        ends = starts + self._lengths_array[frames]
        view, size, memory = out.data.cast('B'), self._frame_bytes, self._memory.view
        if len(self._segments_of) == 1:
            codecs: Iterable[Any] = itertools.repeat(next(iter(self._segments_of)))
        else:
            codecs = [self._codec_of[segment] for segment in (starts // self._segment_bytes).tolist()]
        starts, ends, frames = starts.tolist(), ends.tolist(), frames.tolist()
        if at_once:
            decompressed = self._decompress(frames, starts, ends, codecs)
            for row, frame in zip((rows * size).tolist(), frames):
                view[row : row + size] = decompressed[frame]
            return
        pixels: Any = None
        last = -1
        for row, frame, start, end, codec in zip((rows * size).tolist(), frames, starts, ends, codecs):
            if frame != last:
                pixels = codec.decompress_one(memory[start:end], size)
                last = frame
            view[row : row + size] = pixels

    def _decompress(
        self, frames: Iterable[int], starts: Iterable[int], ends: Iterable[int], codecs: Iterable[FrameCodec]
    ) -> Dict[int, Any]:
        places: Dict[FrameCodec, Dict[int, Tuple[int, int]]] = {}
        for frame, start, end, codec in zip(frames, starts, ends, codecs):
            places.setdefault(codec, {})[frame] = (start, end - start)
        pixels: Dict[int, Any] = {}
        for codec, of_this in places.items():
            them = codec.decompress(self._memory.view, np.array(list(of_this.values()), np.uint64))
            pixels.update(zip(of_this, them))
        return pixels

    def gather(self, frames: np.ndarray, pinned: bool, at_once: bool) -> torch.Tensor:
        return gather_on_host(self, frames, self._frame_bytes, pinned, at_once)

    def codec_for_export(self, frames: np.ndarray) -> None:
        return None

    def export(self, frames: np.ndarray, codec: Optional[FrameCodec]) -> Exported:
        offsets, lengths = self._offsets_array[frames], self._lengths_array[frames].tolist()
        codecs: List[Any] = [self._codec_of[segment] for segment in (offsets // self._segment_bytes).tolist()]
        offsets, view = offsets.tolist(), self._memory.view
        for codec in dict.fromkeys(codecs):
            of_this = [i for i, of_i in enumerate(codecs) if of_i is codec]
            yield frames[of_this], codec, [bytes(view[offsets[i] : offsets[i] + lengths[i]]) for i in of_this]

    def load(self, frames: List[int], codec: FrameCodec, blobs: List[memoryview], pixels: list) -> None:
        if max(frames) >= len(self._lengths):
            self._grow_tables(max(frames) + 1)
        for frame, blob in zip(frames, blobs):
            self._append(frame, blob, codec)
        if codec.dictionary:  # keep using it
            self._codec = codec
            self._until_training = _FRAMES_BETWEEN_TRAININGS

    def close(self) -> None:
        self._memory.close()

    def _append(self, frame: int, blob: Any, codec: FrameCodec) -> None:
        length = len(blob)
        segment = self._open.get(codec)
        if segment is None or self._used[segment] + length > self._segment_bytes:
            segment = self._new_segment(codec)
        offset = segment * self._segment_bytes + self._used[segment]
        self._memory.view[offset : offset + length] = blob
        self._used[segment] += length
        self._live[segment] += length
        self._live_bytes += length
        self._offsets[frame] = offset
        self._lengths[frame] = length
        self._rows = max(self._rows, frame + 1)

    def _new_segment(self, codec: FrameCodec) -> int:
        full = self._open.pop(codec, None)
        if self._free:
            segment = self._free.pop()
        else:
            segment = len(self._used)
            self._memory.reserve((segment + 1) * self._segment_bytes)
            self._used.append(0)
            self._live.append(0)
            self._codec_of.append(None)
        self._codec_of[segment] = codec
        self._segments_of[codec] = self._segments_of.get(codec, 0) + 1
        self._open[codec] = segment
        if full is not None and self._live[full] == 0:
            self._release(full)
        return segment

    def _release(self, segment: int) -> None:
        """A segment without live frames is free again, unless new frames are written to it."""
        codec = self._codec_of[segment]
        assert codec is not None
        if self._open.get(codec) == segment:
            if codec is self._codec:
                return
            del self._open[codec]
        self._segments_of[codec] -= 1
        if not self._segments_of[codec]:
            del self._segments_of[codec]
        self._dead_bytes -= self._used[segment]
        self._used[segment] = 0
        self._codec_of[segment] = None
        self._free.append(segment)
        self._memory.release(segment * self._segment_bytes, self._segment_bytes)

    def _clean(self) -> None:
        """Empty the segment with the most dead bytes by copying its live frames to the end of the log."""
        in_writing = set(self._open.values())
        sealed = [s for s, codec in enumerate(self._codec_of) if codec is not None and s not in in_writing]
        if not sealed:
            return
        segment = max(sealed, key=lambda s: self._used[s] - self._live[s])
        start = segment * self._segment_bytes
        inside = (self._offsets_array >= start) & (self._offsets_array < start + self._segment_bytes)
        codec = self._codec_of[segment]
        assert codec is not None
        for frame in np.flatnonzero(inside & (self._lengths_array > 0)).tolist():
            offset, length = self._offsets[frame], self._lengths[frame]
            self._live_bytes -= length
            self._dead_bytes += length
            self._append(frame, bytes(self._memory.view[offset : offset + length]), codec)
        self._live[segment] = 0
        self._release(segment)

    def _try_a_new_dictionary(self) -> None:
        self._until_training = _FRAMES_BETWEEN_TRAININGS
        recent = np.array(sorted(set(self._recent)), np.uint32)
        recent = recent[self._lengths_array[recent] > 0]
        self._recent = array('I')
        if len(recent) < 2 * _HELD_OUT_FRAMES:
            return
        spread = np.linspace(0, len(recent) - 1, min(len(recent), _TRAINING_FRAMES + _HELD_OUT_FRAMES)).astype(int)
        samples = self._copies(recent[spread])
        # every ninth is held out from the training, to judge the dictionary by
        held_out = samples[::9]
        codec = FrameCodec.train([s for i, s in enumerate(samples) if i % 9], self._frame_bytes)
        if codec is None:
            return
        now, then = (sum(len(c.compress(frame)) for frame in held_out) for c in (self._codec, codec))
        if then > _WORTHWHILE * now:
            return
        before, self._codec = self._codec, codec
        if not before.dictionary:
            # the frames from before the first dictionary are few, and three times as large as with it
            old = np.flatnonzero(self._lengths_array > 0)
            for frame, pixels in zip(old.tolist(), self._copies(old)):
                self.drop([frame])
                self._append(frame, codec.compress(pixels), codec)

    def _copies(self, frames: np.ndarray) -> List[bytes]:
        out = np.empty((len(frames), self._frame_bytes), np.uint8)
        self.read(frames, out)
        return [row.tobytes() for row in out]

    def _grow_tables(self, frames: int) -> None:
        size = max(frames, 2 * len(self._lengths))
        for name in ('_offsets', '_lengths'):
            old = getattr(self, f'{name}_array')
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, f'{name}_array', new)
            setattr(self, name, new.data)
