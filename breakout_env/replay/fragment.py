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

from .schema import StringTable, TransitionSchema, signature_of, values_of

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
        Pack transitions, as a replay buffer of type ``frame`` takes them, into bytes for ``unpack``.
    Raises:
        - ValueError, TypeError: As that buffer, if ``obs`` is not a stack of uint8 screens or a value has a type that \
            it does not store.
    """
    signatures = [signature_of(transition) for transition in transitions]
    strings = StringTable()
    screens: Dict[bytes, int] = {}
    pixels: List[bytes] = []
    groups, tables = [], []
    for signature in dict.fromkeys(signatures):
        places = [i for i, other in enumerate(signatures) if other == signature]
        schema = TransitionSchema(signature, len(places))
        for row, place in enumerate(places):
            numbers = []
            for stack in schema.pixels(transitions[place]):
                size = int(np.prod(schema.frame_shape or 0))
                for start in range(0, len(stack), size):
                    screen = stack[start : start + size]
                    digest = xxhash.xxh3_128_digest(screen)
                    if digest not in screens:
                        screens[digest] = len(pixels)
                        pixels.append(bytes(screen))
                    numbers.append(screens[digest])
            schema.write(row, transitions[place], numbers, strings)
        groups.append([schema.to_json(), places])
        # column by column: neighbours in a column are alike
        tables += [np.ascontiguousarray(column).tobytes() for column in (schema.frames, *schema.columns)]
    description = json.dumps(dict(groups=groups, strings=dict(strings.items()), count=len(transitions))).encode()
    columns, all_pixels = b''.join(tables), b''.join(pixels)
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return _HEAD.pack(len(description), len(columns), len(all_pixels)) + compressor.compress(
        description + columns + all_pixels
    )


def unpack(payload: bytes) -> List[Dict[str, Any]]:
    """
    Overview:
        Unpack the transitions that ``pack`` was given, equal in every value, type and order. Those that shared a \
        screen have copies of it.
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
    strings = {int(number): text for number, text in described['strings'].items()}
    at = sizes[0]
    all_pixels = np.frombuffer(content, np.uint8, sizes[2], sum(sizes[:2]))
    all_places = sorted(place for _, places in described['groups'] for place in places)
    if described['count'] != len(all_places) or all_places != list(range(len(all_places))):
        raise ValueError('its transitions are numbered wrongly')
    transitions: List[Dict[str, Any]] = [{} for _ in all_places]
    for text, places in described['groups']:
        schema = TransitionSchema.from_json(text, len(places))
        if len(places) * sum(schema.depths) * int(np.prod(schema.frame_shape or 0)) > _LARGEST_BYTES:
            raise ValueError(f'its screens would unpack to more than {_LARGEST_BYTES:,} bytes')
        for column in (schema.frames, *schema.columns):
            column[...] = np.frombuffer(content, column.dtype, column.size, at).reshape(column.shape)
            at += column.nbytes
        _fill(transitions, places, schema, strings, all_pixels)
    return transitions


def _fill(
    transitions: List[Dict[str, Any]],
    places: List[int],
    schema: TransitionSchema,
    strings: Mapping[int, str],
    all_pixels: np.ndarray,
) -> None:
    """Put the values of one group where they belong, keys in the order of the signature."""
    first, stacks = 0, {}
    if schema.stacks:
        screens = all_pixels.reshape(-1, *(schema.frame_shape or ())) if all_pixels.size else all_pixels
        for leaf, depth in zip(schema.stacks, schema.depths):
            stacks[leaf] = screens[schema.frames[:, first : first + depth]]
            first += depth
    columns = dict(zip(schema.others, schema.columns))
    for leaf in schema.signature:
        path, kind = leaf[0], leaf[1]
        values = values_of(leaf, stacks[leaf] if leaf in stacks else columns[leaf])
        for place, value in zip(places, values):
            node = transitions[place]
            for key in path[:-1]:
                node = node.setdefault(key, {})
            node[path[-1]] = strings[value] if kind == 'str' else value


def pack_weights(model: Mapping[str, torch.Tensor]) -> bytes:
    """A model's state, on any device, as safetensors: data and no code."""
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in model.items()})


def unpack_weights(content: bytes) -> Dict[str, torch.Tensor]:
    """The state that ``pack_weights`` was given, on the CPU."""
    return safetensors.torch.load(content)
