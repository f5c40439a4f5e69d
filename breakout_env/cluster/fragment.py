"""
A rollout fragment as few bytes: each distinct screen once, compressed together with its neighbours.

DI-engine's own exchange sends transitions as they are, 56 kB of pixels each; eight in nine of their screens are in a
neighbouring transition, too. Unpacking executes nothing: the bytes are numbers, and JSON that describes them.
"""

import json
import struct
from typing import Any, Dict, List, Mapping, Sequence

import numpy as np
import safetensors.torch
import torch
import xxhash
import zstandard

from ..replay.batch import FrameBatch, UndecodedBatch
from ..replay.rows import Rows
from ..replay.structure import leaves_from, leaves_of

# zstd's. Most of the time goes into finding repeated screens, so that level 9 takes a fifth longer than level 3 and
# saves a tenth of the bytes.
LEVEL = 9
_HEAD = struct.Struct('<III')  # bytes of the description, the columns and the screens, before compression
_LARGEST_BYTES = 2**31
# Errors of reading damaged bytes.
_UNREADABLE = (
    struct.error, zstandard.ZstdError, KeyError, IndexError, TypeError, AttributeError, UnicodeDecodeError,
    OverflowError, RecursionError, MemoryError,
)  # fmt: skip


def pack(transitions: Sequence[Mapping]) -> bytes:
    """
    Overview:
        Pack transitions of one structure, as a replay buffer of type ``frame`` takes them, into bytes for ``unpack``.
    Raises:
        - ValueError, TypeError: As that buffer, if it could not store them.
    """
    rows = Rows(leaves_of(transitions[0]) if transitions else (), max(1, len(transitions)))
    screens: Dict[bytes, int] = {}
    pixels: List[bytes] = []
    size = int(np.prod(rows.frame_shape or 0))
    for i, transition in enumerate(transitions):
        rows.expect(transition)
        numbers = []
        for stack in rows.pixels(transition):
            for start in range(0, len(stack), size):
                screen = stack[start : start + size]
                digest = xxhash.xxh3_128_digest(screen)
                if digest not in screens:
                    screens[digest] = len(pixels)
                    pixels.append(bytes(screen))
                numbers.append(screens[digest])
        rows.prepare(0, i, transition, numbers)
        rows.table[i] = rows.fresh[0]
    copied = rows.copy(np.arange(len(transitions)))
    # column by column: neighbours in a column are alike
    table = b''.join(np.ascontiguousarray(column).tobytes() for column in copied.values())
    described = dict(count=len(transitions), leaves=[*rows.leaves, *rows.state_leaves], strings=list(rows.strings))
    described['states'] = len(copied.get('state0', ()))
    description, screens_bytes = json.dumps(described).encode(), b''.join(pixels)
    head = _HEAD.pack(len(description), len(table), len(screens_bytes))
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return head + compressor.compress(description + table + screens_bytes)


def unpack(payload: bytes) -> List[Dict[str, Any]]:
    """
    Overview:
        Unpack the transitions that ``pack`` was given, equal in every value and type. Those that shared a screen have \
        copies of it.
    Raises:
        - ValueError: If the bytes are damaged or not from ``pack``.
    """
    try:
        return _unpack(payload)
    except _UNREADABLE as error:
        raise ValueError(f'a rollout fragment cannot be read: {error}') from None


def _unpack(payload: bytes) -> List[Dict[str, Any]]:
    sizes = _HEAD.unpack_from(payload)
    if sum(sizes) > _LARGEST_BYTES:
        raise ValueError(f'it would unpack to {sum(sizes):,} bytes; expected at most {_LARGEST_BYTES:,}')
    content = zstandard.ZstdDecompressor().decompress(memoryview(payload)[_HEAD.size :], max_output_size=sum(sizes))
    if len(content) != sum(sizes):
        raise ValueError('it is incomplete')
    described = json.loads(content[: sizes[0]])
    count, leaves = int(described['count']), leaves_from(described['leaves'])
    rows = Rows(leaves, 1)
    pixels = np.frombuffer(content, np.uint8, sizes[2], sum(sizes[:2]))
    frame_bytes = int(np.prod(rows.frame_shape or 0))
    wanted = count * (rows.table.itemsize + rows.frames_each * frame_bytes)
    if not 0 <= wanted <= _LARGEST_BYTES or rows.table.itemsize > _LARGEST_BYTES:
        raise ValueError(f'its transitions would unpack to {wanted:,} bytes; expected at most {_LARGEST_BYTES:,}')
    at, copied = sizes[0], {}
    for length, table in ((count, rows.table), (int(described['states']), rows.states)):
        for name in table.dtype.names or ():
            dtype, shape = table[name].dtype, table[name].shape[1:]
            column = np.frombuffer(content, dtype, length * int(np.prod(shape)), at).reshape(length, *shape)
            copied[name] = column.copy()
            at += column.nbytes
    if at != sum(sizes[:2]):
        raise ValueError('its columns do not fit its description')
    rows.strings = {str(text): number for number, text in enumerate(described['strings'])}
    undecoded = UndecodedBatch(rows, copied, None)
    screens = pixels.reshape(-1, frame_bytes) if frame_bytes else pixels
    decoded = torch.from_numpy(screens[undecoded.frame_numbers()]) if rows.stacks else None
    return list(FrameBatch(undecoded, decoded, None))


def pack_weights(model: Mapping[str, torch.Tensor]) -> bytes:
    """A model's state, on any device, as safetensors: data and no code."""
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in model.items()})


def unpack_weights(content: bytes) -> Dict[str, torch.Tensor]:
    """The state that ``pack_weights`` was given, on the CPU."""
    return safetensors.torch.load(content)
