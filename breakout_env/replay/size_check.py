"""Whether a replay buffer of some size fits: better refused at the start than killed hours later."""

import torch

from ..utils.memory_limits import free_disk_bytes, gpu_room, memory_room
from .options import ReplayOptions

# Bytes of a transition besides its frames, and the compressed size of a frame of 84x84 in the play of a good agent as a
# share. Both are rounded up: a size they refuse would come close to the limit (benchmarks/bench_replay.py measures
# them).
_ROW_BYTES = 160
_COMPRESSED_SHARE = 240 / 7056
# What to choose instead of a storage that needs too much of the process's memory.
_INSTEAD = dict(compressed=", or storage='memmap'", memmap='')


class DoesNotFit(ValueError):
    """There is no room for a replay buffer of this size; the message has the numbers."""


def check_room(options: ReplayOptions, frame_bytes: int, folder: str) -> None:
    """
    Overview:
        Refuse a size that cannot fit.
    Arguments:
        - folder (:obj:`str`): Where storage ``memmap`` keeps its file.
    Raises:
        - DoesNotFit: With the numbers.
    """
    size, storage = options.replay_buffer_size, options.storage
    on_gpu = storage == 'device' and torch.device(options.device).type == 'cuda'
    share = dict(compressed=_COMPRESSED_SHARE, ring=1, memmap=0, device=0 if on_gpu else 1)[storage]
    a_transition = _ROW_BYTES + share * frame_bytes
    room = memory_room()
    _expect(
        size,
        a_transition,
        room.free_bytes,
        f"with storage='{storage}' ({a_transition:.0f} bytes a transition of frames of {frame_bytes:,} pixels), but "
        f'this process can take {room.free_bytes / 1e9:.2f} GB more of the {room.limit_bytes / 1e9:.2f} GB that '
        f'{room.whose} allows',
        _INSTEAD.get(storage, ", or storage='compressed'"),
    )
    if on_gpu:
        room = gpu_room(options.device)
        _expect(
            size,
            frame_bytes,
            room.free_bytes,
            f"with storage='device' ({frame_bytes:,} bytes a transition), but {room.whose} has "
            f'{room.free_bytes / 1e9:.2f} GB left of {room.limit_bytes / 1e9:.2f} GB',
            ", another `device`, or storage='compressed'",
        )
    if storage == 'memmap':
        free = free_disk_bytes(folder)
        _expect(
            size,
            frame_bytes,
            free,
            f'on the disk of {folder}, which has {free / 1e9:.2f} GB left',
            ", another `folder`, or storage='compressed'",
        )


def _expect(size: int, bytes_each: float, free_bytes: int, where: str, instead: str) -> None:
    if size * bytes_each > free_bytes:
        raise DoesNotFit(
            f'replay buffer option `replay_buffer_size` is {size:,}: about {size * bytes_each / 1e9:.2f} GB {where}. '
            f'Expected at most {int(free_bytes / bytes_each):,}{instead}'
        )
