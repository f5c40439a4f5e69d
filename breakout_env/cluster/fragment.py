"""What passes between an actor and the learner, as data: rollout fragments and weights.

A fragment has each distinct screen once, compressed together with its neighbours. DI-engine's own exchange sends
transitions as they are, 56 kB of pixels each.
"""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import safetensors.torch
import torch
import zstandard

from ..replay.batch import FrameBatch
from ..replay.memory import ReplayMemory
from ..replay.rows import Rows
from ..replay.structure import fields_from

PackedWeights = tuple[bytes, dict[str, Any]]


def pack(transitions: Sequence[Mapping]) -> bytes:
    """Pack transitions of one structure, as a replay buffer of type ``frame`` takes them, into bytes for ``unpack``.

    Raises:
        ValueError, TypeError: As that buffer, if it could not store them.
    """
    with closing(ReplayMemory(max(1, len(transitions)), storage='ring')) as memory:
        memory.push(transitions)
        rows, store = memory.rows, memory.frame_store
        arrays = {} if rows is None else rows.copy(np.arange(memory.count))
        if store is not None:
            arrays['screens'] = store.gather(np.arange(1, store.count + 1)).numpy()  # by their numbers, from 1 on
    fields = None if rows is None else rows.fields
    # column by column: neighbours in a column are alike
    content = io.BytesIO()
    np.savez(content, fields=np.frombuffer(json.dumps(fields).encode(), np.uint8), **arrays)
    # level 9 takes a fifth longer than 3, in which it finds more repeated screens, and saves a tenth of the bytes
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(content.getbuffer())


def unpack(payload: bytes) -> FrameBatch | list[dict]:
    """Unpack the transitions that ``pack`` was given, equal in every value and type. Those that shared a screen have
    copies of it.
    """
    arrays = dict(np.load(io.BytesIO(zstandard.ZstdDecompressor().decompress(payload)), allow_pickle=False))
    fields = json.loads(bytes(arrays['fields']))
    if fields is None:
        return []
    rows = Rows(fields_from(fields), 1)
    screens = torch.from_numpy(arrays['screens'][rows.frame_numbers(arrays) - 1]) if rows.stacks else None
    return FrameBatch(rows, arrays, screens)


def pack_weights(state: Mapping[str, Any]) -> PackedWeights:
    """A state of a policy that acts: ``model``, on any device, as safetensors, and the numbers beside it, such as
    PPO's units of returns.
    """
    model = {name: value.detach().cpu().contiguous() for name, value in state['model'].items()}
    return safetensors.torch.save(model), {name: value for name, value in state.items() if name != 'model'}


def unpack_weights(packed: PackedWeights) -> dict[str, Any]:
    """The state that ``pack_weights`` was given."""
    model, numbers = packed
    return dict(numbers, model=safetensors.torch.load(model))
