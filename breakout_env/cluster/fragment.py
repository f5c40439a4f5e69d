"""
What passes between an actor and the learner, as data: rollout fragments, weights, and events for TensorBoard.

A fragment has each distinct screen once, compressed together with its neighbours. DI-engine's own exchange sends
transitions as they are, 56 kB of pixels each; eight in nine of their screens are in a neighbouring transition, too.
"""

import json
import struct
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import safetensors.torch
import torch
import xxhash
import zstandard

from ..replay.batch import FrameBatch
from ..replay.rows import Rows
from ..replay.structure import leaves_from, leaves_of

Event = Tuple[str, float, int]
# zstd's. Most of the time goes into finding repeated screens, so that level 9 takes a fifth longer than level 3 and
# saves a tenth of the bytes.
LEVEL = 9
_HEAD = struct.Struct('<III')  # bytes of the description, the columns and the screens, before compression


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
    Unpack the transitions that ``pack`` was given, equal in every value and type. Those that shared a screen have
    copies of it.
    """
    sizes = _HEAD.unpack_from(payload)
    content = zstandard.ZstdDecompressor().decompress(memoryview(payload)[_HEAD.size :], max_output_size=sum(sizes))
    described = json.loads(content[: sizes[0]])
    rows = Rows(leaves_from(described['leaves']), 1)
    at, copied = sizes[0], {}
    for length, table in ((described['count'], rows.table), (described['states'], rows.states)):
        for name in table.dtype.names or ():
            dtype, shape = table[name].dtype, table[name].shape[1:]
            column = np.frombuffer(content, dtype, length * int(np.prod(shape)), at).reshape(length, *shape)
            copied[name] = column.copy()
            at += column.nbytes
    rows.strings = {text: number for number, text in enumerate(described['strings'])}
    decoded = None
    if rows.stacks:
        screens = np.frombuffer(content, np.uint8, sizes[2], at).reshape(-1, int(np.prod(rows.frame_shape or 0)))
        decoded = torch.from_numpy(screens[rows.frame_numbers(copied)])
    return list(FrameBatch(rows, copied, decoded))


def pack_weights(model: Mapping[str, torch.Tensor]) -> bytes:
    """A model's state, on any device, as safetensors: data and no code."""
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in model.items()})


def unpack_weights(content: bytes) -> Dict[str, torch.Tensor]:
    """The state that ``pack_weights`` was given, on the CPU."""
    return safetensors.torch.load(content)


class EventRecorder(object):
    """
    Stands where DI-engine's workers expect a ``SummaryWriter``, and keeps the arguments of ``add_scalar``: the learner
    has the log.
    """

    def __init__(self) -> None:
        self._events: List[Event] = []

    def add_scalar(self, tag: str, value: Any, step: int) -> None:
        self._events.append((tag, float(value), int(step)))

    def take(self) -> List[Event]:
        """What was written since the last call."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is open."""
