"""Frames compressed one by one, in memory that is filled like a log and cleaned as it empties."""

from array import array
from collections.abc import Sequence

import numpy as np

from .codec import FrameCodec
from .growable_memory import GrowableMemory

# Segments are cleaned when dead bytes are more than an eighth of the live ones.
_TOLERATED_DEAD = 8
# A frame's address is one number of 8 bytes: where its blob starts, and the blob's length.
_LENGTH_BITS = 24
_LENGTH = (1 << _LENGTH_BITS) - 1


class _Segment:
    """A part of the log, for blobs of one codec."""

    __slots__ = ('start', 'codec', 'used', 'live')

    def __init__(self, start: int, codec: FrameCodec) -> None:
        self.start = start
        self.codec = codec
        self.used = 0  # bytes written to it; 0 while it is free
        self.live = 0  # bytes in use by frames


class CompressedFrames:
    """The storage ``compressed``; see ``FrameStorage``. Compressed frames differ in length, so they are appended to
    segments of one size, as in a log-structured file system (Rosenblum and Ousterhout 1992): a segment whose last frame
    is dropped is free again, and when an eighth of what is stored is dead, the segment with the most dead bytes is
    emptied by copying its live frames. Memory thus never fragments, whatever is evicted in whatever order.

    Each segment belongs to one dictionary. Play changes as the agent learns, and a dictionary full of bricks does not
    help to compress a wall that is gone: from time to time another one is trained.

    Arguments:
        frame_bytes: The size of a frame.
        segment_bytes: The size of a segment, whole pages.
        trained_on: The number of frames that a dictionary is trained on, and before the first training.
        trained_every: Frames between attempts at a better dictionary.
        worthwhile: A new dictionary must reduce frames to this share of their size to be worth another open segment.
    """

    file_bytes = 0

    def __init__(
        self,
        frame_bytes: int,
        segment_bytes: int = 1 << 20,
        trained_on: int = 1024,
        trained_every: int = 65536,
        worthwhile: float = 0.95,
    ) -> None:
        self._frame_bytes = frame_bytes
        while segment_bytes < 4 * frame_bytes:  # else much of a segment may stay empty
            segment_bytes *= 2
        self._segment_bytes = segment_bytes
        self._trained_on, self._trained_every, self._worthwhile = trained_on, trained_every, worthwhile
        self._memory = GrowableMemory()
        self._addresses = np.zeros(4096, np.uint64).data  # by frame; 0 if it is not stored
        self._rows = 0
        self._segments: list[_Segment] = []
        self._free: list[_Segment] = []
        self._open: dict[FrameCodec, _Segment] = {}  # the segments that are written to
        self._used_bytes = self._live_bytes = 0
        self._codec = FrameCodec(frame_bytes)
        self._recent = array('I')
        self._until_training = trained_on

    @property
    def resident_bytes(self) -> int:
        segments = len(self._segments) - len(self._free)
        return segments * self._segment_bytes + self._rows * self._addresses.itemsize

    def put(self, frame: int, pixels: memoryview) -> None:
        self._append(frame, self._codec.compress(pixels), self._codec)
        self._recent.append(frame)
        self._until_training -= 1
        if self._until_training <= 0:
            self._try_a_new_dictionary()

    def drop(self, frames: Sequence[int]) -> None:
        addresses = self._addresses
        for frame in frames:
            address = addresses[frame]
            addresses[frame] = 0
            self._forget(address)
        if self._used_bytes - self._live_bytes > max(2 * self._segment_bytes, self._live_bytes // _TOLERATED_DEAD):
            self._clean()

    def read(self, frames: np.ndarray, out: np.ndarray) -> None:
        order = np.argsort(frames, kind='stable')
        addresses = np.asarray(self._addresses)[frames[order]]
        starts = (addresses >> _LENGTH_BITS).tolist()
        lengths = (addresses & _LENGTH).tolist()
        segments, segment_bytes, size = self._segments, self._segment_bytes, self._frame_bytes
        view, memory = out.data.cast('B'), self._memory.view
        pixels = b''
        last = -1
        for row, start, length in zip((order * size).tolist(), starts, lengths):
            if start != last:  # a frame that is wanted twice is decompressed once
                codec = segments[start // segment_bytes].codec
                pixels = codec.decompress(memory[start : start + length], size)
                last = start
            view[row : row + size] = pixels

    def close(self) -> None:
        self._memory.close()

    def _append(self, frame: int, blob: bytes, codec: FrameCodec) -> None:
        length = len(blob)
        segment = self._open.get(codec)
        if segment is None or segment.used + length > self._segment_bytes:
            segment = self._new_segment(codec)
        start = segment.start + segment.used
        self._memory.view[start : start + length] = blob
        segment.used += length
        segment.live += length
        self._used_bytes += length
        self._live_bytes += length
        if frame >= len(self._addresses):
            grown = np.zeros(2 * frame, np.uint64)
            grown[: len(self._addresses)] = self._addresses
            self._addresses = grown.data
        self._addresses[frame] = start << _LENGTH_BITS | length
        if frame >= self._rows:
            self._rows = frame + 1

    def _forget(self, address: int) -> None:
        """A blob is dead."""
        segment, length = self._segments[(address >> _LENGTH_BITS) // self._segment_bytes], address & _LENGTH
        segment.live -= length
        self._live_bytes -= length
        if segment.live == 0:
            self._release(segment)

    def _new_segment(self, codec: FrameCodec) -> _Segment:
        full = self._open.pop(codec, None)
        if full is not None and full.live == 0:
            self._release(full)
        if self._free:
            segment = self._free.pop()
            segment.codec = codec
        else:
            segment = _Segment(len(self._segments) * self._segment_bytes, codec)
            self._memory.reserve(segment.start + self._segment_bytes)
            self._segments.append(segment)
        self._open[codec] = segment
        return segment

    def _release(self, segment: _Segment) -> None:
        """A segment without live frames is free again, unless new frames are written to it."""
        if self._open.get(segment.codec) is segment:
            if segment.codec is self._codec:
                return
            del self._open[segment.codec]
        self._used_bytes -= segment.used
        segment.used = segment.live = 0
        self._memory.release(segment.start, self._segment_bytes)
        self._free.append(segment)

    def _clean(self) -> None:
        """Empty the segment with the most dead bytes by copying its live frames to the end of the log."""
        in_writing = set(self._open.values())
        sealed = [segment for segment in self._segments if segment.used and segment not in in_writing]
        if not sealed:
            return
        segment = max(sealed, key=lambda s: s.used - s.live)
        addresses = np.asarray(self._addresses)
        starts = addresses >> _LENGTH_BITS
        inside = (addresses > 0) & (starts // self._segment_bytes == segment.start // self._segment_bytes)
        for frame in np.flatnonzero(inside).tolist():
            address = self._addresses[frame]
            start = address >> _LENGTH_BITS
            self._append(frame, bytes(self._memory.view[start : start + (address & _LENGTH)]), segment.codec)
            self._forget(address)

    def _try_a_new_dictionary(self) -> None:
        self._until_training = self._trained_every
        recent = np.array(sorted({frame for frame in self._recent if self._addresses[frame]}), np.uint32)
        self._recent = array('I')
        if len(recent) < self._trained_on // 4:
            return
        spread = np.linspace(0, len(recent) - 1, min(len(recent), self._trained_on * 9 // 8)).astype(int)
        pixels = np.empty((len(spread), self._frame_bytes), np.uint8)
        self.read(recent[spread], pixels)
        samples = [row.tobytes() for row in pixels]
        del pixels  # before a dictionary takes more memory
        # every ninth is held out from the training, to judge the dictionary by
        codec = FrameCodec.train([s for i, s in enumerate(samples) if i % 9], self._frame_bytes)
        if codec is None:
            return
        now, then = (sum(len(each.compress(frame)) for frame in samples[::9]) for each in (self._codec, codec))
        if then <= self._worthwhile * now:
            self._codec = codec
