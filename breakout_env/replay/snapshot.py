"""All of a replay memory as named arrays, and back: what a save, a load and a state dict have in common.

``ids``, ``frames`` (numbers of saved frames) and ``column0`` ... are the rows; ``frames0``, ``frames1`` ... the saved
frames, a thousand in each, compressed together, as neighbours are alike; ``meta`` is JSON that describes them.

A file is numpy's own ``.npz``. Nothing in it is pickled, so loading it runs no code. The zip container has a CRC-32 for
each array, which finds damaged bytes.
"""

import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
import zstandard

from ..utils.atomic_file import DamagedFile, atomic_write
from .frames.store import FrameStore
from .memory import ReplayMemory
from .rows import Columns, Rows
from .size_check import DoesNotFit
from .structure import fields_from

FORMAT = 'breakout_env replay memory'
VERSION = 1
_CHUNK_FRAMES = 1024


class Restored(NamedTuple):
    """What a save holds besides the memory."""

    more: dict[str, Any]
    priorities: np.ndarray | None  # by slot
    order: np.ndarray  # for each slot, its index in the saved order, for lists in ``more``


class Snapshot:
    """A memory as it is now, to be read later and from another thread, while the memory changes. It copies the rows
    (about 80 bytes a transition) and acquires the frames, which ``arrays`` reads a thousand at a time; so memory and
    training never wait for a disk. ``more`` is JSON, ``priorities`` a number for each slot.

    Whoever takes it has the memory's lock; the methods take the lock themselves.
    """

    def __init__(self, memory: ReplayMemory, more: Mapping[str, Any], priorities: np.ndarray | None = None) -> None:
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
            format=FORMAT,
            version=VERSION,
            fields=None if rows is None else rows.fields,
            frames=len(self._acquired),
            next_id=memory.next_id,
            slots=[memory.capacity, memory.eviction, memory.base_id],
            priorities=priorities is not None,
            random=memory.random.bit_generator.state,
            more=dict(more),
        )

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and arrays, the frames in chunks, which are released one by one."""
        yield 'meta', np.frombuffer(json.dumps(self._meta).encode(), np.uint8)
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

    def write(self, path: str) -> None:
        """Write it to a file, see ``write_arrays``, and close it."""
        with closing(self):
            write_arrays(path, self.arrays())

    def as_dict(self) -> dict[str, np.ndarray]:
        """All arrays, by name; it is closed."""
        with closing(self):
            return dict(self.arrays())

    def close(self) -> None:
        """Release the frames that are still acquired."""
        with self._memory.lock:
            # After a clear or a load the memory has another store, where these numbers stand for other frames.
            if self._frame_store is not None and self._memory.frame_store is self._frame_store:
                self._frame_store.release(self._acquired.tolist())
            self._acquired = self._acquired[:0]


def write_arrays(path: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write arrays to a file, completely or not at all. The arrays are asked for one at a time and need not be in
    memory together.

    Raises:
        OSError: If it cannot be written, as on a full disk; the old file is still there.
    """
    with atomic_write(path) as file:
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays:
                with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


class SavedArrays(Mapping):
    """The arrays of a file, each read when it is asked for; ``DamagedFile`` if the file or the array cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.exists(path):
            raise FileNotFoundError(f'there is no saved replay buffer at {path}')
        with self._damage_named('it is not a saved replay buffer, or cut off'):
            self._archive = zipfile.ZipFile(path)
        self._names = [name[:-4] for name in self._archive.namelist() if name.endswith('.npy')]
        self.close = self._archive.close

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        info = self._archive.getinfo(f'{name}.npy')
        with self._damage_named(name):
            with self._archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = head(member)
            # before numpy allocates memory for it
            if math.prod(shape) * dtype.itemsize > info.file_size or info.compress_type != zipfile.ZIP_STORED:
                raise ValueError('it claims to be larger than it is, or is compressed')
            with self._archive.open(info) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
                # the checksum is compared at the end of the data, which an array of no elements does not reach
                if member.read(1):
                    raise ValueError('more data than the array has')
        return array

    @contextmanager
    def _damage_named(self, part: str) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # depending on the damage, zipfile and numpy raise nearly anything
            raise DamagedFile(f'{self._path} is damaged ({part}: {error})') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load(memory: ReplayMemory, path: str) -> Restored:
    """Restore what ``Snapshot.write`` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFile: If it cannot be restored. The memory is unchanged.
    """
    with closing(SavedArrays(path)) as arrays:
        return restore(memory, arrays, path)


def restore(memory: ReplayMemory, arrays: Mapping[str, np.ndarray], name: str) -> Restored:
    """Replace a memory's content by that of a snapshot. If the snapshot has more transitions than fit, the newest are
    taken. A memory keeps its own storage, whatever storage the snapshot was taken from.

    Raises:
        DamagedFile: If it is not a snapshot, has another version, or is inconsistent. The memory is unchanged.
    """
    try:
        meta = json.loads(bytes(arrays['meta']))
        if meta['format'] != FORMAT:
            raise KeyError
        version = meta['version']
    except DamagedFile:
        raise
    except (KeyError, ValueError, TypeError):
        raise DamagedFile(f'{name} is not a saved replay buffer') from None
    if version != VERSION:
        raise DamagedFile(f'{name} is a replay buffer of version {version}; this program reads version {VERSION}')
    fresh = memory.empty_copy()
    try:
        restored = _fill(fresh, meta, arrays)
        memory.swap(fresh)
        return restored
    except (DamagedFile, DoesNotFit):
        raise
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, zstandard.ZstdError) as error:
        raise DamagedFile(f'{name} is damaged: its parts do not fit together ({error})') from None
    finally:
        fresh.close()


def _fill(memory: ReplayMemory, meta: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Restored:
    ids = arrays['ids'] if meta['fields'] is not None else np.zeros(0, np.int64)
    if ids.dtype != np.int64 or ids.ndim != 1 or (ids < 0).any():
        raise ValueError('there are no ids')
    capacity, eviction, base_id = meta['slots']
    count = len(ids)
    memory.next_id = int(meta['next_id'])
    if count > int(capacity) or (count and memory.next_id <= int(ids.max())):
        raise ValueError('more transitions than there can be')
    # slots are kept where that is possible, so that the same random numbers sample the same transitions
    order = np.arange(count)
    if [capacity, eviction] == [memory.capacity, memory.eviction]:
        memory.base_id = int(base_id)
    else:
        order = ids.argsort(kind='stable')[max(0, count - memory.capacity) :]
        memory.base_id = memory.next_id - len(order)
    if memory.count != len(order):
        raise ValueError('transitions are missing')
    if meta['fields'] is not None:
        rows = Rows(fields_from(meta['fields']), memory.capacity)
        memory.start_with(rows)
        columns = {name: _of_length(count, arrays[name])[order] for name in rows.table.dtype.names or ()}
        if memory.frame_store is not None:
            columns['frames'] = _load_frames(memory.frame_store, int(meta['frames']), arrays)[columns['frames']]
            memory.frame_store.set_references(columns['frames'].ravel())
        rows.fill(columns)
    memory.random.bit_generator.state = meta['random']
    priorities = _of_length(count, arrays['priorities'])[order] if meta['priorities'] else None
    return Restored(meta['more'], priorities, order)


def _of_length(count: int, table: np.ndarray) -> np.ndarray:
    if len(table) != count:
        raise ValueError('tables of different length')
    return table


def _load_frames(store: FrameStore, count: int, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The numbers that the saved frames have now."""
    decompressor = zstandard.ZstdDecompressor()
    numbers: list[int] = []
    for chunk, start in enumerate(range(0, count, _CHUNK_FRAMES)):
        compressed = arrays[f'frames{chunk}'].tobytes()
        expected_bytes = min(_CHUNK_FRAMES, count - start) * store.frame_bytes
        if zstandard.frame_content_size(compressed) != expected_bytes:  # before memory is allocated for it
            raise ValueError('frames are missing')
        store.add(memoryview(decompressor.decompress(compressed)), numbers)
    if store.count != count:
        raise ValueError('a frame is there twice')
    return np.array(numbers, np.uint32)
