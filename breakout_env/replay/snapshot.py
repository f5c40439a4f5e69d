"""All of a replay memory as named arrays, and back: what a save, a load and a state dict have in common.

``ids``, ``frames`` (numbers of saved frames) and ``column0`` ... are the rows; ``frames0``, ``frames1`` ... the saved
frames, a thousand in each, compressed together, as neighbours are alike.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import zstandard

from .frames.store import FrameStore
from .memory import ReplayMemory
from .rows import Columns, Rows
from .saved_arrays import describe, read_description
from .structure import fields_from

FORMAT = 'replay buffer of frames'
_CHUNK_FRAMES = 1024


class Restored(NamedTuple):
    """What a save holds besides the memory."""

    more: dict[str, Any]
    priorities: np.ndarray | None  # by slot
    order: np.ndarray  # for each slot, its index in the saved order, for lists in ``more``


class Snapshot:
    """A memory as it is now, to be read later and from another thread, while the memory changes. It copies the rows
    (about 80 bytes a transition) and acquires the frames, which are read a thousand at a time; so memory and training
    never wait for a disk. ``more`` is JSON, ``priorities`` a number for each slot.

    Whoever takes it has the memory's lock; the methods take the lock themselves.
    """

    def __init__(self, memory: ReplayMemory, more: Mapping[str, object], priorities: np.ndarray | None = None) -> None:
        self._memory = memory
        self._acquired = np.zeros(0, np.uint32)
        self._frame_store, rows = memory.frame_store, memory.rows
        self._rows: Columns = {} if rows is None else rows.copy(np.arange(memory.count))
        if priorities is not None:
            self._rows['priorities'] = priorities
        if self._frame_store is not None:
            self._acquired = np.flatnonzero(self._frame_store.references).astype(np.uint32)
            self._frame_store.acquire(self._acquired)
        self._meta = dict(
            fields=None if rows is None else rows.fields,
            frames=len(self._acquired),
            next_id=memory.next_id,
            slots=[memory.capacity, memory.eviction, memory.base_id],
            priorities=priorities is not None,
            random=memory.random.bit_generator.state,
            more=dict(more),
        )

    def __iter__(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and arrays, the frames in chunks, which are released one by one."""
        yield describe(FORMAT, self._meta)
        position = np.zeros(int(self._acquired.max(initial=0)) + 1, np.uint32)  # of each frame among the saved ones
        position[self._acquired] = np.arange(len(self._acquired))
        for name, array in self._rows.items():
            yield name, position[array] if name == 'frames' else array
        compressor, chunks = zstandard.ZstdCompressor(), 0
        while self._frame_store is not None and len(self._acquired):
            with self._memory.lock:
                if self._memory.frame_store is not self._frame_store:
                    raise ValueError('the memory was cleared or loaded while it was being saved')
                chunk = self._acquired[:_CHUNK_FRAMES]
                pixels = self._frame_store.gather(chunk).numpy()
                self._acquired = self._acquired[_CHUNK_FRAMES:]
                self._frame_store.release(chunk.tolist())
            yield f'frames{chunks}', np.frombuffer(compressor.compress(pixels.data), np.uint8)
            chunks += 1

    def close(self) -> None:
        """Release the frames that are still acquired."""
        with self._memory.lock:
            # After a clear or a load the memory has another store, where these numbers stand for other frames.
            if self._frame_store is not None and self._memory.frame_store is self._frame_store:
                self._frame_store.release(self._acquired.tolist())
            self._acquired = self._acquired[:0]


def restore(memory: ReplayMemory, arrays: Mapping[str, np.ndarray], name: str) -> Restored:
    """Replace a memory's content by that of a snapshot; after an error it is unchanged. If the snapshot has more
    transitions than fit, the newest are taken. A memory keeps its storage, whatever storage the snapshot was taken
    from.

    Raises:
        DamagedFile: If the arrays are not a snapshot, or one of another version.
        Exception: Nearly any, if they do not fit together.
    """
    meta = read_description(FORMAT, arrays, name)
    with closing(memory.empty_copy()) as fresh:
        restored = _fill(fresh, meta, arrays)
        memory.take_over(fresh)
    return restored


def _fill(memory: ReplayMemory, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Restored:
    ids = arrays['ids'] if meta['fields'] is not None else np.zeros(0, np.int64)
    capacity, eviction, base_id = meta['slots']
    memory.next_id = meta['next_id']
    # slots are kept where that is possible, so that the same random numbers sample the same transitions
    order = np.arange(len(ids))
    if [capacity, eviction] == [memory.capacity, memory.eviction]:
        memory.base_id = base_id
    else:
        order = ids.argsort(kind='stable')[max(0, len(ids) - memory.capacity) :]
        memory.base_id = memory.next_id - len(order)
    if memory.count != len(order):
        raise ValueError('transitions are missing')
    if meta['fields'] is not None:
        rows = Rows(fields_from(meta['fields']), memory.capacity)
        memory.start_with(rows)
        columns = {name: arrays[name][order] for name in rows.table.dtype.names or ()}
        if memory.frame_store is not None:
            columns['frames'] = _load_frames(memory.frame_store, meta['frames'], arrays)[columns['frames']]
            memory.frame_store.set_references(columns['frames'].ravel())
        rows.fill(columns)
    memory.random.bit_generator.state = meta['random']
    priorities = arrays['priorities'][order] if meta['priorities'] else None
    return Restored(meta['more'], priorities, order)


def _load_frames(store: FrameStore, count: int, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The numbers that the saved frames have now."""
    decompressor = zstandard.ZstdDecompressor()
    numbers: list[int] = []
    for chunk in range(-(-count // _CHUNK_FRAMES)):
        store.add(memoryview(decompressor.decompress(arrays[f'frames{chunk}'].tobytes())), numbers)
    if not store.count == len(numbers) == count:
        raise ValueError('frames are missing, or there twice')
    return np.array(numbers, np.uint32)
