"""Transitions in rows, their screens in a frame store, their priorities in a sum tree."""

import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import sampling
from .batch import Extras, FrameBatch
from .frames.store import FrameStore
from .memory_lock import MemoryLock
from .options import ReplayOptions
from .row_ring import RowRing
from .selection import Selection
from .size_check import check_room
from .sum_tree import SumTree
from .table import TransitionTable

_CHUNK = 64
# What a memory holds, as opposed to its settings.
_CONTENT = ('_store', '_frame_shape', '_ring', '_table', '_tree')


class MemoryUsage(NamedTuple):
    """What a memory takes."""

    memory_bytes: int  # of the process
    device_bytes: int  # of storage 'device'
    file_bytes: int  # of storage 'memmap'
    stored_frame_bytes: int  # of these, the frames themselves
    unpacked_frame_bytes: int  # all stacks, uncompressed
    frame_references: int  # frames of all stacks, each counted as often as it occurs


class ReplayMemory(object):
    """
    Overview:
        A bounded memory of transitions. Their stacks of screens (``obs``, ``next_obs``) are taken apart into frames, \
        each distinct frame is kept once, and a batch puts them together again, bit for bit. It knows nothing of \
        pipelines.

        All of it is in flat arrays, without a Python object for each transition or frame: memory is what the arrays \
        take, and the garbage collector has nothing to traverse.

        Several threads may use it, and signal handlers may raise: a call that has begun is finished first.
    Examples:
        >>> memory, stack = ReplayMemory(capacity=100, seed=0), np.zeros((4, 84, 84), np.uint8)
        >>> memory.push([dict(obs=stack, next_obs=stack, action=i) for i in range(3)])  # insertion ids
        [0, 1, 2]
        >>> memory.count, memory.frames
        (3, 1)
        >>> batch = memory.fetch(memory.sample(3))
        >>> sorted(transition['action'] for transition in batch), batch.collated()['obs'].shape
        ([0, 1, 2], torch.Size([3, 4, 84, 84]))
        >>> memory.close()
    """

    def __init__(
        self,
        capacity: int,
        storage: str = 'compressed',
        eviction: str = 'fifo',
        folder: Optional[str] = None,
        seed: Optional[int] = None,
        before_first_frame: Callable[[int], None] = lambda frame_bytes: None,
        device: str = 'cuda',
    ) -> None:
        """
        Arguments:
            - capacity (:obj:`int`): The most transitions it holds.
            - seed (:obj:`Optional[int]`): Seed of sampling and of random eviction.
            - before_first_frame (:obj:`Callable`): Called with the size of a frame before the first one is stored; \
                may raise.
            - others: See ``ReplayOptions``.
        """
        self.capacity = capacity
        self.storage = storage
        self.eviction = eviction
        self.lock = MemoryLock()
        self.random = np.random.default_rng(seed)
        self._folder = folder
        self._device = device
        self._before_first_frame = before_first_frame
        self._reset()

    @classmethod
    def from_options(cls, options: ReplayOptions, exp_name: str) -> 'ReplayMemory':
        """The memory of a buffer, if there is room for it; its seed follows from numpy's, which pipelines set."""
        folder = options.folder or os.path.join(exp_name, 'replay')
        check_room(options, 84 * 84, folder)  # with the usual screens; others are checked at the first one
        return cls(
            options.replay_buffer_size,
            options.storage,
            options.eviction,
            folder if options.storage == 'memmap' else None,
            int(np.random.randint(2**31)),
            lambda frame_bytes: check_room(options, frame_bytes, folder),
            options.device,
        )

    def _reset(self) -> None:
        self._store: Optional[FrameStore] = None
        self._frame_shape: Optional[Tuple[int, int]] = None
        self._ring = RowRing(self.capacity)
        self._table = TransitionTable(self._ring.rows)
        self._tree: Optional[SumTree] = None

    @property
    def count(self) -> int:
        """Transitions in it."""
        return self._ring.count

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._ring.next_id

    @property
    def frames(self) -> int:
        """Distinct frames in it."""
        return self._store.count if self._store else 0

    def usage(self) -> MemoryUsage:
        """What it takes, everything counted."""
        with self.lock:
            nbytes = self._ring.nbytes + self._table.nbytes(self._ring.touched)
            nbytes += self._tree.nbytes if self._tree else 0
            if self._store is None:
                return MemoryUsage(nbytes, 0, 0, 0, 0, 0)
            storage, references = self._store.storage, self._table.frame_references(self._ring.live())
            sizes = (storage.device_bytes, storage.file_bytes, storage.stored_bytes)
            return MemoryUsage(nbytes + self._store.nbytes, *sizes, references * self._store.frame_bytes, references)

    def push(self, transitions: Sequence[Mapping], priorities: Optional[np.ndarray] = None) -> List[int]:
        """
        Overview:
            Store transitions, dicts of tensors, arrays, numbers, strings, and dicts of these; a full memory evicts as \
            many. Their ``priorities``, the sampling weights, are used once priorities are tracked.
        Returns:
            - insertion_ids (:obj:`List[int]`): A number for each, never reused, to find it by.
        Raises:
            - TypeError, ValueError: If a transition cannot be stored; none is stored then.
            - OSError: If the disk is full. The transitions before that one are stored.
        """
        with self.lock:
            numbers = [self._table.schema_number(transition, self._expect_frames_of) for transition in transitions]
            insertion_ids: List[int] = []
            chunk = min(_CHUNK, self.capacity)
            for start in range(0, len(transitions), chunk):
                part = slice(start, start + chunk)
                # room for the whole chunk first: then nothing is released while its frames are looked up
                for _ in range(self.count + len(transitions[part]) - self.capacity):
                    self._evict()
                # and rows for the whole chunk: then none of them moves before it has its priority
                if self._ring.room < len(transitions[part]):
                    self._compact()
                known: Dict[bytes, int] = {}
                rows: List[int] = []
                try:
                    for transition, number in zip(transitions[part], numbers[part]):
                        frames = self._add_frames(transition, number, known)
                        row = self._ring.append()
                        self._table.write(row, number, transition, frames)
                        self._table.sample_counts[row] = 0
                        rows.append(row)
                finally:  # when the disk is full, those already stored are sampled, too
                    insertion_ids.extend(range(self._ring.next_id - len(rows), self._ring.next_id))
                    if self._tree is not None and rows:
                        weights = np.ones(len(rows)) if priorities is None else priorities[part][: len(rows)]
                        self._tree.set(np.array(rows), weights)
            return insertion_ids

    def _expect_frames_of(self, shape: Tuple[int, int]) -> None:
        if self._store is None:
            frame_bytes = shape[0] * shape[1]
            self._before_first_frame(frame_bytes)
            self._frame_shape = shape
            self._store = FrameStore(frame_bytes, self.capacity, self.storage, self._folder, self._device)
        elif shape != self._frame_shape:
            holds, has = (f'{height}x{width}' for height, width in (self._frame_shape or (0, 0), shape))
            raise ValueError(
                f'the replay buffer holds screens of {holds} pixels; a transition has {has} (env option screen_size)'
            )

    def _add_frames(self, transition: Mapping, number: int, known: Dict[bytes, int]) -> List[int]:
        frames: List[int] = []
        try:
            for pixels in self._table.schemas[number].pixels(transition):
                assert self._store is not None, 'a schema with stacks comes with a store'
                frames += self._store.add(pixels, known)
        except BaseException:  # a full disk, or Ctrl-C
            self._release_frames(frames)
            raise
        return frames

    def _release_frames(self, frames: List[int]) -> None:
        if self._store is not None:
            self._store.release(frames)

    def _evict(self) -> None:
        if self.eviction == 'fifo':
            self._remove_row(self._ring.oldest)
        else:
            self._remove_row(int(self._ring.nth(self.random.integers(self.count, size=1))[0]))

    def _remove_row(self, row: int) -> None:
        frames = self._table.clear(row)
        if self._tree is not None:
            self._tree.set(np.array([row]), np.zeros(1))
        self._ring.remove(row)
        self._release_frames(frames)

    def _compact(self) -> None:
        order = self._ring.live()
        self._table.move(order)
        if self._tree is not None:
            weights, self._tree = self._tree.get(order), SumTree(self._ring.rows)
            self._tree.set(np.arange(len(order)), weights)
        self._ring.compacted(self._ring.low_ids[order])

    def find(self, insertion_id: int, guess: int = -1) -> int:
        """The row of a transition, or -1 if it was removed; ``guess`` is where it was."""
        with self.lock:
            return self._ring.find(insertion_id, guess)

    def insertion_ids(self, rows: np.ndarray) -> List[int]:
        """The insertion ids of rows."""
        with self.lock:
            return self._ring.insertion_ids(rows)

    def remove(self, insertion_ids: Iterable[int]) -> int:
        """Remove transitions, passing over those that are gone; how many were there."""
        with self.lock:
            removed = 0
            for insertion_id in insertion_ids:
                row = self._ring.find(insertion_id)
                if row >= 0:
                    self._remove_row(row)
                    removed += 1
            return removed

    def replace(self, row: int, transition: Mapping) -> None:
        """Store another transition in a row; it keeps its place, its insertion id and its priority."""
        with self.lock:
            number = self._table.schema_number(transition, self._expect_frames_of)
            frames = self._add_frames(transition, number, {})
            old_frames = self._table.clear(row)
            self._table.write(row, number, transition, frames)
            self._release_frames(old_frames)

    def update(self, row: int, values: Mapping) -> bool:
        """Overwrite some values of a row if their structure is that of the present ones; whether it was."""
        with self.lock:
            return self._table.update(row, values)

    def clear(self) -> None:
        """Remove everything and release the memory. Insertion ids continue."""
        with self.lock:
            next_id, has_priorities = self._ring.next_id, self.has_priorities
            self.close()
            self._ring.next_id = next_id
            if has_priorities:
                self.track_priorities()

    def close(self) -> None:
        """Release memory and file. It may be called at any time, any number of times."""
        with self.lock:
            if self._store is not None:
                self._store.close()
            self._reset()

    def empty_copy(self) -> 'ReplayMemory':
        """An empty memory with the same settings."""
        settings = (self.capacity, self.storage, self.eviction, self._folder, None, self._before_first_frame)
        return ReplayMemory(*settings, self._device)

    def take_over(self, other: 'ReplayMemory') -> None:
        """Replace the content by that of another memory, which is empty afterwards."""
        with self.lock:
            self.close()
            for name in _CONTENT:
                setattr(self, name, getattr(other, name))
            self.random.bit_generator.state = other.random.bit_generator.state
            other._reset()

    def rows(self) -> np.ndarray:
        """All rows, in the order of pushing."""
        with self.lock:
            return self._ring.live()

    def rows_at(self, positions: Sequence[int]) -> np.ndarray:
        """Rows by position in the order of pushing."""
        with self.lock:
            return self._ring.nth(np.asarray(positions, np.int64))

    def column(self, path: Tuple[str, ...], rows: np.ndarray, default: Any) -> list:
        """The values under a key, and keys below it, in rows; ``default`` where a transition has none."""
        with self.lock:
            return self._table.column(path, rows, default)

    # ---------------------------------------------------------------- sampling

    def sample(self, size: int, replace: bool = False, sample_range: Optional[slice] = None) -> np.ndarray:
        """Rows, uniformly at random; with ``sample_range`` only among these, in the order of pushing."""
        with self.lock:
            return sampling.uniform(self.random, self._ring, size, replace, sample_range)

    def sample_by_priority(self, size: int, sample_range: Optional[slice] = None) -> np.ndarray:
        """Rows in proportion to their priorities; one may occur twice."""
        with self.lock:
            return sampling.proportional(self.random, self._ring, self._priorities(), size, sample_range)

    @property
    def has_priorities(self) -> bool:
        """Whether priorities are tracked."""
        return self._tree is not None

    def track_priorities(self) -> None:
        """Track priorities from now on; present transitions get priority 1."""
        with self.lock:
            if self._tree is None:
                rows = self._ring.live()
                self._tree = SumTree(self._ring.rows)
                self._tree.set(rows, np.ones(len(rows)))

    def _priorities(self) -> SumTree:
        assert self._tree is not None, 'track_priorities comes first'
        return self._tree

    def set_priorities(self, rows: np.ndarray, priorities: np.ndarray) -> None:
        """Set what rows are sampled in proportion to, all above 0."""
        with self.lock:
            self._priorities().set(rows, priorities)

    def priorities(self, rows: np.ndarray) -> Tuple[np.ndarray, float]:
        """The priorities of rows, and the smallest of all rows."""
        with self.lock:
            return self._priorities().get(rows).astype(np.float64), self._priorities().smallest

    def count_samples(self, rows: np.ndarray, distinct: bool) -> np.ndarray:
        """Count one more sample of each row, faster if they are known to be distinct; how often each was sampled."""
        with self.lock:
            if distinct:
                counts = self._table.sample_counts[rows] + 1
                self._table.sample_counts[rows] = counts
                return counts
            np.add.at(self._table.sample_counts, rows, 1)
            return self._table.sample_counts[rows]

    # ---------------------------------------------------------------- batches

    def select(self, rows: np.ndarray, acquire: bool = True) -> Selection:
        """
        All of some rows but the pixels. Their frames are acquired, so that ``decode`` finds them whatever happens
        to the rows in between. ``decode`` or ``release`` must follow.
        """
        with self.lock:
            rows = np.asarray(rows, np.int64)
            parts = self._table.copy(rows)
            if acquire and self._store is not None:
                for part in parts:
                    self._store.acquire(part.frames.ravel().tolist())
            return Selection(len(rows), parts, self._store if acquire else None)

    def release(self, selection: Selection) -> None:
        """Release the frames that ``select`` acquired."""
        with self.lock:
            # after a clear or a load it is another store, in which these numbers stand for other frames
            if selection.store is not None and selection.store is self._store:
                for part in selection.parts:
                    self._store.release(part.frames.ravel().tolist())

    def decode(
        self, selection: Selection, extras: Optional[Extras] = None, pinned: bool = False, at_once: bool = False
    ) -> FrameBatch:
        """
        The batch of a selection, which is released. ``extras`` are added to each transition; for ``pinned`` and
        ``at_once`` see ``FrameStorage.gather``.
        """
        pixels = None
        try:
            frames = selection.frames()
            if frames is not None:
                with self.lock:
                    if self._store is None or selection.store not in (None, self._store):
                        raise ValueError('the memory was cleared or loaded after this selection')
                    pixels = self._store.storage.gather(frames, pinned, at_once)
        finally:
            if selection.store is not None:
                self.release(selection)
        return selection.batch(pixels, extras)

    def fetch(self, rows: np.ndarray) -> FrameBatch:
        """The transitions in rows."""
        with self.lock:  # throughout, so no frame has to be acquired
            return self.decode(self.select(rows, acquire=False))
