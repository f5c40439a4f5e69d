"""The memory behind the buffers of frames: transitions in rows, their screens taken apart into frames."""

import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import psutil

from ..utils.memory_limits import memory_room
from .batch import Extras, FrameBatch
from .frames.store import FrameStore
from .options import FOLDER, FrameStorageOptions
from .rows import Rows
from .size_check import check_room
from .structure import fields_of


class ClosedBuffer(RuntimeError):
    """Transitions are pushed to a replay buffer that is closed."""

    def __init__(self) -> None:
        super().__init__('the replay buffer is closed; expected no more transitions')


class ReplayMemory:
    """A bounded memory of transitions of one structure, that of the first. Their stacks of screens (``obs``,
    ``next_obs``) are taken apart into frames, each distinct frame is kept once, and a batch puts them together again,
    bit for bit. It knows nothing of pipelines.

    A transition is in a slot, which a later one overwrites when the memory is full: the oldest, or a uniformly random
    one. All of it is in flat arrays, without a Python object for each transition or frame: memory is what the arrays
    take, and the garbage collector has nothing to traverse.

    Examples:
        >>> memory, stack = ReplayMemory(capacity=100, seed=0), np.zeros((4, 84, 84), np.uint8)
        >>> memory.push([dict(obs=stack, next_obs=stack, action=i) for i in range(3)])  # slots
        [0, 1, 2]
        >>> memory.count, memory.frames
        (3, 1)
        >>> batch = memory.fetch(memory.order())
        >>> [transition['action'] for transition in batch], batch.collated()['obs'].shape
        ([0, 1, 2], torch.Size([3, 4, 84, 84]))
        >>> memory.close()
    """

    def __init__(
        self,
        capacity: int,
        storage: str = 'compressed',
        eviction: str = 'fifo',
        folder: str = FOLDER,
        seed: int | None = None,
    ) -> None:
        """
        Arguments:
            capacity: The most transitions it holds.
            seed: Seed of sampling and of random eviction.
            others: See ``FrameStorageOptions``.
        Raises:
            DoesNotFit: If there is no room for so many with the usual screens; a push raises it for larger ones.
        """
        check_room(capacity, storage, 84 * 84, folder)
        self.capacity = capacity
        self.storage = storage
        self.eviction = eviction
        self.random = np.random.default_rng(seed)
        self.next_id = 0  # of the next transition: ids are never reused
        self._folder = folder
        self._closed = False
        self._reset()

    @classmethod
    def from_options(cls, capacity: int, options: FrameStorageOptions, exp_name: str) -> 'ReplayMemory':
        """The memory of a buffer; its seed follows from numpy's, which pipelines set."""
        folder = options.folder or os.path.join(exp_name, FOLDER)
        seed = int(np.random.randint(2**31))
        return cls(capacity, options.storage, options.eviction, folder, seed)

    def _reset(self) -> None:
        self.rows: Rows | None = None  # with the first transition
        self.frame_store: FrameStore | None = None
        self.base_id = self.next_id  # the id of slot 0, unless ``delete`` moved some

    @property
    def count(self) -> int:
        """Transitions in it."""
        return min(self.next_id - self.base_id, self.capacity)

    @property
    def frames(self) -> int:
        """Distinct frames in it."""
        return self.frame_store.count if self.frame_store else 0

    def report(self) -> dict[str, float]:
        """What it costs now.

        Returns:
            ``bytes`` of memory in use, everything counted; ``file_bytes`` on the disk; ``bytes_per_transition``, of
            both; ``resident_bytes`` of the whole process, and ``free_bytes`` that it may still take.
        """
        nbytes = self.count * self.rows.nbytes if self.rows else 0
        nbytes += self.frame_store.nbytes if self.frame_store else 0
        file_bytes = self.frame_store.file_bytes if self.frame_store else 0
        return dict(
            transitions=self.count,
            bytes=nbytes,
            file_bytes=file_bytes,
            bytes_per_transition=(nbytes + file_bytes) / max(1, self.count),
            distinct_frames=self.frames,
            resident_bytes=psutil.Process().memory_info().rss,
            free_bytes=memory_room().free_bytes,
        )

    def order(self) -> np.ndarray:
        """All slots in use, that of the oldest transition first."""
        if self.eviction == 'random':
            return self.ids().argsort(kind='stable')
        return self.nth(np.arange(self.count))

    def nth(self, ranks: np.ndarray) -> np.ndarray:
        """Slots by rank in the order of pushing, the oldest first; under random eviction, by any fixed order."""
        if self.eviction == 'random' or self.count < self.capacity:
            return ranks
        return (self.next_id - self.base_id + ranks) % self.capacity

    def ids(self, slots: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The insertion ids of slots, by default of all in use."""
        ids = np.zeros(0, np.int64) if self.rows is None else self.rows.table['ids'][: self.count]
        return ids[slots]

    def find(self, insertion_id: int) -> int:
        """The slot of a transition. Raises KeyError if it is gone."""
        ids, slot = self.ids(), (insertion_id - self.base_id) % self.capacity
        if slot < len(ids) and ids[slot] == insertion_id:
            return slot
        if 0 <= insertion_id < self.next_id and insertion_id in ids:
            return int((ids == insertion_id).argmax())  # it was moved
        raise KeyError(insertion_id)

    def push(self, transitions: Sequence[Mapping]) -> list[int]:
        """Store transitions, dicts of tensors, arrays, numbers, and dicts of these; a full memory evicts as many. After
        an error (see ``FrameReplayBuffer.push``) none of them is stored. Returns their slots.
        """
        if self._closed:
            raise ClosedBuffer
        if not transitions:
            return []
        rows = self.rows or Rows(fields_of(transitions[0]), self.capacity)
        for transition in transitions:
            rows.expect(transition)
        self.start_with(rows)
        frames_of_each = self._add_frames(rows, transitions)
        slots = self._next_slots(len(transitions))
        evicted: list[int] = []
        for transition, slot, frames in zip(transitions, slots, frames_of_each):
            if slot < self.count:
                evicted += rows.frames[slot].tolist()
            rows.write(slot, self.next_id, transition, frames)
            self.next_id += 1
        if self.frame_store is not None:
            self.frame_store.release(evicted)
        return slots

    def start_with(self, rows: Rows) -> None:
        """Use these rows from the first transition on."""
        if self.frame_store is None and rows.stacks:
            frame_bytes = math.prod(rows.stacks[0].shape[1:])
            check_room(self.capacity, self.storage, frame_bytes, self._folder, rows.nbytes)
            self.frame_store = FrameStore(frame_bytes, self.capacity, self.storage, self._folder)
        self.rows = rows

    def _add_frames(self, rows: Rows, transitions: Sequence[Mapping]) -> list[list[int]]:
        """Put the screens of transitions into the store; the numbers of their frames. After an error none is kept."""
        added: list[list[int]] = [[] for _ in transitions]
        store = self.frame_store
        if store is None:
            return added
        try:
            for transition, frames in zip(transitions, added):
                for pixels in rows.pixels(transition):
                    store.add(pixels, frames)
        except BaseException:  # Ctrl-C in a notebook, too
            for frames in added:
                store.release(frames)
            raise
        return added

    def _next_slots(self, count: int) -> list[int]:
        capacity, first = self.capacity, self.next_id - self.base_id
        if self.eviction == 'random':
            at_random = self.random.integers(capacity, size=count).tolist()
            return [i if i < capacity else any_slot for i, any_slot in enumerate(at_random, first)]
        return [i % capacity for i in range(first, first + count)]

    def delete(self, slots: Sequence[int]) -> np.ndarray:
        """Remove the transitions in slots. The others move up: they are in the first slots then, in the order of
        pushing. Returns the slots where they were.
        """
        order = self.order()
        is_gone = np.isin(order, slots)
        if self.rows is None or not is_gone.any():
            return np.arange(len(order))
        gone, kept = self.rows.table[order[is_gone]], order[~is_gone]
        self.rows.table[: len(kept)] = self.rows.table[kept]
        self.base_id = self.next_id - len(kept)
        if self.frame_store is not None:
            self.frame_store.release(gone['frames'].ravel().tolist())
        return kept

    def clear(self) -> None:
        """Remove everything and release memory and file. Insertion ids continue."""
        if self.frame_store is not None:
            self.frame_store.close()
        self._reset()

    def close(self) -> None:
        """``clear``, and take no more transitions."""
        self._closed = True
        self.clear()

    def empty_copy(self) -> 'ReplayMemory':
        """An empty memory of the same settings, for ``take_over``."""
        return type(self)(self.capacity, self.storage, self.eviction, self._folder)

    def take_over(self, other: 'ReplayMemory') -> None:
        """Replace all content by that of another memory of the same settings, which is empty then."""
        self.clear()
        for name in ('rows', 'frame_store', 'random', 'next_id', 'base_id'):
            setattr(self, name, getattr(other, name))
        other._reset()

    def fetch(self, slots: np.ndarray, extras: Extras | None = None, pinned: bool = False) -> FrameBatch | list[dict]:
        """The transitions in slots, with ``extras`` added to each, in pinned memory or not."""
        if not len(slots):
            return []
        if self.rows is None or not (slots < self.count).all():
            raise IndexError(f'slots are {slots.tolist()}; expected numbers below {self.count}')
        copied, pixels = self.rows.copy(slots), None
        if self.frame_store is not None:
            pixels = self.frame_store.gather(self.rows.frame_numbers(copied), pinned)
        return FrameBatch(self.rows, copied, pixels, extras)
