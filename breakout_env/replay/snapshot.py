"""All of a replay memory as named arrays, and back: what a save, a load and a state dict have in common.

``ids``, ``frames`` (numbers of saved frames) and ``column0`` ... are the rows; ``frames0``, ``frames1`` ... the saved
frames, a thousand in each, compressed together, as neighbours are alike.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
import zstandard

from .frames.store import FrameStore
from .memory import ReplayMemory
from .rows import Rows
from .saved_arrays import Arrays, describe, read_description
from .structure import fields_from

FORMAT = 'replay buffer of frames'
_CHUNK_FRAMES = 1024


def snapshot(memory: ReplayMemory, more: Mapping[str, object]) -> Arrays:
    """The arrays of a memory, which are views of it where that is possible. ``more`` is JSON."""
    rows, store = memory.rows, memory.frame_store
    frames = np.zeros(0, np.uint32) if store is None else np.flatnonzero(store.references).astype(np.uint32)
    yield describe(
        FORMAT,
        dict(
            fields=None if rows is None else rows.fields,
            frames=len(frames),
            next_id=memory.next_id,
            slots=[memory.capacity, memory.eviction, memory.base_id],
            random=memory.random.bit_generator.state,
            more=more,
        ),
    )
    if rows is not None:
        position = np.zeros(int(frames.max(initial=0)) + 1, np.uint32)  # of each frame among the saved ones
        position[frames] = np.arange(len(frames))
        for name in rows.table.dtype.names or ():
            column = rows.table[name][: memory.count]
            yield name, position[column] if name == 'frames' else column
    if store is not None:
        compressor = zstandard.ZstdCompressor()
        for chunk, start in enumerate(range(0, len(frames), _CHUNK_FRAMES)):
            pixels = store.gather(frames[start : start + _CHUNK_FRAMES]).numpy()
            yield f'frames{chunk}', np.frombuffer(compressor.compress(pixels.data), np.uint8)


def restore(memory: ReplayMemory, arrays: Mapping[str, np.ndarray], name: str) -> tuple[dict[str, Any], np.ndarray]:
    """Replace a memory's content by that of a snapshot; after an error it is unchanged. If the snapshot has more
    transitions than fit, the newest are taken. A memory keeps its storage, whatever storage the snapshot was taken
    from.

    Returns:
        ``more`` of the snapshot, and for each slot the one where its transition was.
    Raises:
        DamagedFile: If the arrays are not a snapshot, or one of another version.
        Exception: Nearly any, if they do not fit together.
    """
    meta = read_description(FORMAT, arrays, name)
    with closing(memory.empty_copy()) as fresh:
        order = _fill(fresh, meta, arrays)
        memory.take_over(fresh)
    return meta['more'], order


def _fill(memory: ReplayMemory, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    ids = arrays.get('ids', np.zeros(0, np.int64))
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
        for name in rows.table.dtype.names or ():
            column = arrays[name][order]
            if name == 'frames' and memory.frame_store is not None:
                column = _load_frames(memory.frame_store, meta['frames'], arrays)[column]
                memory.frame_store.set_references(column.ravel())
            rows.table[name][: len(order)] = column
    memory.random.bit_generator.state = meta['random']
    return order


def _load_frames(store: FrameStore, count: int, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The numbers that the saved frames have now."""
    decompressor = zstandard.ZstdDecompressor()
    numbers: list[int] = []
    for chunk in range(-(-count // _CHUNK_FRAMES)):
        store.add(memoryview(decompressor.decompress(arrays[f'frames{chunk}'].tobytes())), numbers)
    if not store.count == len(numbers) == count:
        raise ValueError('frames are missing, or there twice')
    return np.array(numbers, np.uint32)
