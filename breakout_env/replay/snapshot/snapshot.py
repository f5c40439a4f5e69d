"""All of a replay memory as named arrays, and back: what a save, a load and a state dict have in common."""

import json
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from ...utils.atomic_file import DamagedFile
from ..frames.codec import FrameCodec
from ..memory import ReplayMemory
from ..room import DoesNotFit
from ..schema import TransitionSchema
from ..sum_tree import PriorityTree

FORMAT = 'breakout_env replay memory'
VERSION = 1
_CHUNK_FRAMES = 8192


class MemoryImage(object):
    """
    Overview:
        A memory as it is at this moment, to be read later and from another thread while it goes on changing. Making \
        one copies the rows (about 80 bytes a transition) and holds the frames, which are only read, a few thousand at \
        a time, as the image is; so memory and training never wait for a disk.
    Interfaces:
        ``arrays``, ``close``.
    """

    def __init__(self, memory: ReplayMemory, more: Mapping[str, Any]) -> None:
        """
        Arguments:
            - memory (:obj:`ReplayMemory`): The memory.
            - more (:obj:`Mapping[str, Any]`): What else to keep, as JSON can hold it.
        """
        self._memory = memory
        self._store = memory._store
        with memory.lock:
            rows = memory.rows()
            numbers = memory._schema_of[rows]
            used = sorted(set(numbers.tolist()))
            self._tables: List[Tuple[str, np.ndarray]] = [
                ('tickets', memory._ring.tickets[rows]),
                ('schema', np.searchsorted(used, numbers).astype(np.uint8)),
                ('uses', memory._uses[rows]),
            ]
            if memory.has_priorities:
                self._tables.append(('priorities', memory._tree.get(rows)))
            self._frames_of = []
            for i, number in enumerate(used):
                schema = memory._schemas[number]
                of_this = rows[numbers == number]
                self._frames_of.append(schema.frames[of_this])
                self._tables += [(f'schema{i}.column{k}', c[of_this]) for k, c in enumerate(schema.columns)]
            self._held = np.zeros(0, np.uint32)
            if memory._store is not None:
                self._held = np.flatnonzero(memory._store.references).astype(np.uint32)
                memory._store.hold(self._held.tolist())
            self._meta = dict(
                format=FORMAT,
                version=VERSION,
                frame_shape=memory._frame_shape,
                next_ticket=memory.push_count,
                schemas=[memory._schemas[number].to_json() for number in used],
                strings={str(k): v for k, v in memory._strings.items()},
                priorities=memory.has_priorities,
                random=memory.random.bit_generator.state,
                more=dict(more),
            )

    def arrays(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Names and arrays, the large ones in pieces."""
        memory = self._memory
        dictionaries: Dict[bytes, int] = {}
        new_number = np.zeros(int(self._held.max(initial=0)) + 1, np.uint32)
        pieces = frames_so_far = 0
        codec = None
        while len(self._held):
            with memory.lock:
                if memory._store is not self._store:
                    raise ValueError('the memory was cleared or loaded while it was being saved')
                if codec is None:
                    codec = self._store.codec_for_export(self._held)
                chunk = self._held[:_CHUNK_FRAMES]
                exported = list(self._store.export(chunk, codec))
                self._held = self._held[_CHUNK_FRAMES:]
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
        """Let go of the frames that are still held."""
        if len(self._held):
            with self._memory.lock:
                # after a clear or a load it is another store, whose frames of these numbers are others
                if self._memory._store is self._store:
                    self._store.release(self._held.tolist())
        self._held = self._held[:0]


def restore(memory: ReplayMemory, arrays: Mapping[str, np.ndarray], name: str) -> Dict[str, Any]:
    """
    Overview:
        Put what an image holds into a memory, in place of what it holds. If the image has more transitions than fit, \
        the newest are taken. A memory keeps its own storage, whatever the image was made from.
    Arguments:
        - memory (:obj:`ReplayMemory`): The memory; as it was before if this fails.
        - arrays (:obj:`Mapping[str, np.ndarray]`): The arrays of a ``MemoryImage``.
        - name (:obj:`str`): What to call the source in an error.
    Returns:
        - more (:obj:`Dict[str, Any]`): What else was kept.
    Raises:
        - DamagedFile: If it is no image, or of another version, or does not fit together.
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
    fresh = memory.like_this()
    try:
        _fill(fresh, meta, arrays)
    except (DamagedFile, DoesNotFit):
        fresh.close()
        raise
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        fresh.close()
        raise DamagedFile(f'{name} is damaged: its parts do not fit together ({error})') from None
    except BaseException:  # memory or disk is full
        fresh.close()
        raise
    memory.become(fresh)
    return meta['more']


def _fill(memory: ReplayMemory, meta: Dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    numbers, tickets, uses = arrays['schema'], arrays['tickets'], arrays['uses']
    priorities = arrays['priorities'] if meta['priorities'] else None
    count = len(numbers)
    for other in (tickets, uses) if priorities is None else (tickets, uses, priorities):
        if other.shape != (count,):
            raise ValueError('tables of different length')
    kept = np.arange(max(0, count - memory.capacity), count)
    rows = np.arange(len(kept))
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
    memory.take_over(
        schemas, numbers[kept].astype(np.uint8), uses[kept].astype(np.uint32), tickets[kept].astype(np.uint32), meta
    )
    if priorities is not None:
        memory._tree = PriorityTree(memory._ring.rows)
        memory._tree.set(rows, priorities[kept])


def _fill_frames(memory: ReplayMemory, meta: Dict[str, Any], arrays: Mapping[str, np.ndarray], of_frames: list) -> None:
    shape = meta['frame_shape']
    total = int(meta['frames'])
    if shape is None:
        return
    memory._expect_frames_of((int(shape[0]), int(shape[1])))
    store = memory._store
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
