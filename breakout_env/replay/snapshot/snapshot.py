"""
All of a replay memory as named arrays, and back: what a save, a load and a state dict have in common.

The names in saved files stay, so that old saves load. Three of them are older than our words: ``tickets`` and
``next_ticket`` for insertion ids, ``uses`` for sample counts.
"""

import json
from contextlib import closing
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from ...utils.atomic_file import DamagedFile
from ..frames.codec import FrameCodec
from ..memory import ReplayMemory
from ..schema import TransitionSchema
from ..size_check import DoesNotFit
from . import array_file

FORMAT = 'breakout_env replay memory'
VERSION = 1
_CHUNK_FRAMES = 8192


class Snapshot(object):
    """
    A memory as it is now, to be read later and from another thread, while the memory changes. It copies the rows
    (about 80 bytes a transition) and acquires the frames, which ``arrays`` reads a few thousand at a time; so
    memory and training never wait for a disk.
    """

    def __init__(self, memory: ReplayMemory, extra: Mapping[str, Any]) -> None:
        self._memory = memory
        self._store = memory._store
        with memory.lock:
            rows, table = memory.rows(), memory._table
            numbers = table.schema_of[rows]
            used = sorted(set(numbers.tolist()))
            self._tables: List[Tuple[str, np.ndarray]] = [
                ('tickets', memory._ring.low_ids[rows]),
                ('schema', np.searchsorted(used, numbers).astype(np.uint8)),
                ('uses', table.sample_counts[rows]),
            ]
            if memory._tree is not None:
                self._tables.append(('priorities', memory._tree.get(rows)))
            self._frames_of = []
            for i, number in enumerate(used):
                schema = table.schemas[number]
                of_this = rows[numbers == number]
                self._frames_of.append(schema.frames[of_this])
                self._tables += [(f'schema{i}.column{k}', c[of_this]) for k, c in enumerate(schema.columns)]
            self._acquired = np.zeros(0, np.uint32)
            if self._store is not None:
                self._acquired = np.flatnonzero(self._store.references).astype(np.uint32)
                self._store.acquire(self._acquired.tolist())
            self._meta = dict(
                format=FORMAT,
                version=VERSION,
                frame_shape=memory._frame_shape,
                next_ticket=memory.push_count,
                schemas=[table.schemas[number].to_json() for number in used],
                strings={str(k): v for k, v in table.strings.items()},
                priorities=memory.has_priorities,
                random=memory.random.bit_generator.state,
                more=dict(extra),
            )

    def arrays(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Names and arrays, the frames in pieces, which are released one by one."""
        dictionaries: Dict[bytes, int] = {}
        new_number = np.zeros(int(self._acquired.max(initial=0)) + 1, np.uint32)
        pieces = frames_so_far = 0
        codec = None
        while self._store is not None and len(self._acquired):
            with self._memory.lock:
                if self._memory._store is not self._store:
                    raise ValueError('the memory was cleared or loaded while it was being saved')
                if codec is None:
                    codec = self._store.storage.codec_for_export(self._acquired)
                chunk = self._acquired[:_CHUNK_FRAMES]
                exported = list(self._store.storage.export(chunk, codec))
                self._acquired = self._acquired[_CHUNK_FRAMES:]
                self._store.release(chunk.tolist())
            for frames, its_codec, blobs in exported:
                if its_codec.dictionary not in dictionaries:
                    dictionaries[its_codec.dictionary] = len(dictionaries)
                    yield f'dictionary{len(dictionaries) - 1}', np.frombuffer(its_codec.dictionary, np.uint8)
                new_number[frames] = np.arange(frames_so_far, frames_so_far + len(frames))
                frames_so_far += len(frames)
                yield f'frames{pieces}.dictionary', np.array([dictionaries[its_codec.dictionary]])
                yield f'frames{pieces}.lengths', np.array([len(blob) for blob in blobs], np.uint32)
                yield f'frames{pieces}.data', np.frombuffer(b''.join(blobs), np.uint8)
                pieces += 1
        yield from self._tables
        for i, frames in enumerate(self._frames_of):
            yield f'schema{i}.frames', new_number[frames]
        self._meta.update(pieces=pieces, frames=frames_so_far)
        yield 'meta', np.frombuffer(json.dumps(self._meta).encode(), np.uint8)

    def close(self) -> None:
        """Release the frames that are still acquired."""
        with self._memory.lock:
            # after a clear or a load it is another store, in which these numbers stand for other frames
            if self._store is not None and self._memory._store is self._store:
                self._store.release(self._acquired.tolist())
            self._acquired = self._acquired[:0]


def save(memory: ReplayMemory, path: str, extra: Mapping[str, Any]) -> None:
    """Save a memory, and what else to keep, to a file; see ``array_file.write``."""
    with closing(Snapshot(memory, extra)) as snapshot:
        array_file.write(path, snapshot.arrays())


def state_dict(memory: ReplayMemory, extra: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    """The arrays that ``save`` writes."""
    with closing(Snapshot(memory, extra)) as snapshot:
        return dict(snapshot.arrays())


def load(memory: ReplayMemory, path: str, warn: Callable[[str], None]) -> Dict[str, Any]:
    """Restore what ``save`` wrote; see ``array_file.read_newest``."""
    return array_file.read_newest(path, lambda arrays: restore(memory, arrays, path), warn)


def restore(memory: ReplayMemory, arrays: Mapping[str, np.ndarray], name: str) -> Dict[str, Any]:
    """
    Overview:
        Replace a memory's content by that of a snapshot. If the snapshot has more transitions than fit, the newest \
        are taken. A memory keeps its own storage, whatever storage the snapshot was taken from.
    Arguments:
        - memory (:obj:`ReplayMemory`): The memory; unchanged if this fails.
        - name (:obj:`str`): What to call the source in an error message.
    Returns:
        - extra (:obj:`Dict[str, Any]`): What else was kept.
    Raises:
        - DamagedFile: If it is no snapshot, or of another version, or inconsistent.
    """
    try:
        meta = json.loads(bytes(arrays['meta']))
        if meta['format'] != FORMAT:
            raise KeyError
        version = meta['version']
    except DamagedFile:
        raise
    except (KeyError, ValueError, TypeError):
        raise DamagedFile(f'{name} is no saved replay buffer') from None
    if version != VERSION:
        raise DamagedFile(f'{name} is a replay buffer of version {version}; this program reads version {VERSION}')
    fresh = memory.empty_copy()
    try:
        _fill(fresh, meta, arrays)
    except BaseException as error:
        fresh.close()
        is_ours = isinstance(error, (DamagedFile, DoesNotFit))
        if not is_ours and isinstance(error, (KeyError, ValueError, TypeError, IndexError, OverflowError)):
            raise DamagedFile(f'{name} is damaged: its parts do not fit together ({error})') from None
        raise
    memory.take_over(fresh)
    return meta['more']


def _fill(memory: ReplayMemory, meta: Dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    numbers, low_ids, sample_counts = arrays['schema'], arrays['tickets'], arrays['uses']
    priorities = arrays['priorities'] if meta['priorities'] else np.zeros(len(numbers))
    count = len(numbers)
    if any(column.shape != (count,) for column in (low_ids, sample_counts, priorities)):
        raise ValueError('tables of different length')
    kept = np.arange(max(0, count - memory.capacity), count)
    schemas = [TransitionSchema.from_json(text, memory._ring.rows) for text in meta['schemas']]
    if count and int(numbers.max()) >= len(schemas):
        raise ValueError('a transition of a kind that is not described')
    total = int(meta['frames'])
    of_frames = []
    for i, schema in enumerate(schemas):
        of_this = np.flatnonzero(numbers == i)
        wanted = of_this >= count - len(kept)
        to = of_this[wanted] - (count - len(kept))
        tables = [(schema.frames, arrays[f'schema{i}.frames'])]
        tables += [(column, arrays[f'schema{i}.column{k}']) for k, column in enumerate(schema.columns)]
        for column, table in tables:
            if table.shape != (len(of_this), *column.shape[1:]) or table.dtype != column.dtype:
                raise ValueError('a column of another shape or type than described')
            column[to] = table[wanted]
        frames = schema.frames[to]
        if frames.size and int(frames.max()) >= total:
            raise ValueError('a frame that is not there')
        of_frames.append((schema, to, frames))
    _fill_frames(memory, meta, arrays, of_frames)
    texts = {int(number): str(text) for number, text in meta['strings'].items()}
    memory._table.restore(schemas, numbers[kept].astype(np.uint8), sample_counts[kept].astype(np.uint32), texts)
    memory._ring.next_id = int(meta['next_ticket'])
    memory._ring.compacted(low_ids[kept].astype(np.uint32))
    memory.random.bit_generator.state = meta['random']
    if meta['priorities']:
        memory.track_priorities()
        memory.set_priorities(np.arange(len(kept)), priorities[kept])


def _fill_frames(memory: ReplayMemory, meta: Dict[str, Any], arrays: Mapping[str, np.ndarray], of_frames: list) -> None:
    shape = meta['frame_shape']
    total = int(meta['frames'])
    if shape is None:
        return
    memory._expect_frames_of((int(shape[0]), int(shape[1])))
    store = memory._store
    assert store is not None
    new_number = np.zeros(total, np.uint32)
    codecs: Dict[int, FrameCodec] = {}
    start = 0
    for piece in range(int(meta['pieces'])):
        dictionary = int(arrays[f'frames{piece}.dictionary'][0])
        if dictionary not in codecs:
            codecs[dictionary] = FrameCodec(store.frame_bytes, bytes(arrays[f'dictionary{dictionary}']))
        lengths = arrays[f'frames{piece}.lengths']
        numbers = store.load(codecs[dictionary], lengths, arrays[f'frames{piece}.data'])
        new_number[start : start + len(numbers)] = numbers
        start += len(numbers)
    if start != total:
        raise ValueError('frames are missing')
    references = np.zeros(int(new_number.max(initial=0)) + 1, np.int64)
    for schema, rows, frames in of_frames:
        schema.frames[rows] = new_number[frames]
        references += np.bincount(schema.frames[rows].ravel(), minlength=len(references))
    store.set_references(references)
