"""Refuse a replay buffer that does not fit at the start, before it is killed for it hours later."""

from ..utils.memory_limits import Room, address_room, disk_room, memory_room

# Bytes of a transition besides its frames, and the compressed size of a frame of 84x84 in the play of a good agent as a
# share. Both are rounded up: a size they refuse would come close to the limit (benchmarks/replay/cost.py measures
# them).
_ROW_BYTES = 160
_COMPRESSED_SHARE = 240 / 7056


class DoesNotFit(ValueError):
    """There is no room for a replay buffer of this size; the message has the numbers."""


def expect_room(size: int, bytes_each: float, room: Room, instead: str = '') -> None:
    """Raise ``DoesNotFit`` if so many transitions do not fit; ``instead`` says what else to choose."""
    if size * bytes_each > room.free_bytes:
        raise DoesNotFit(
            f'replay buffer option `replay_buffer_size` is {size:,}: about {size * bytes_each / 1e9:.2f} GB, '
            f'{bytes_each:,.0f} bytes a transition, but {room.free_bytes / 1e9:.2f} GB are left of '
            f'{room.limit_bytes / 1e9:.2f} GB ({room.whose}). Expected at most '
            f'{int(room.free_bytes / bytes_each):,}{instead}'
        )


def check_room(size: int, storage: str, frame_bytes: int, folder: str, row_bytes: int = 0) -> None:
    """Refuse a size that cannot fit; ``folder`` is where storage ``memmap`` keeps its file, ``row_bytes`` what a
    transition takes besides its frames, where that is known.
    """
    row_bytes = max(row_bytes, _ROW_BYTES)
    if storage == 'compressed':
        expect_room(size, row_bytes + _COMPRESSED_SHARE * frame_bytes, memory_room(), ", or storage='memmap'")
    elif storage == 'memmap':
        instead = ", another `folder`, or storage='compressed'"
        expect_room(size, row_bytes, memory_room())
        expect_room(size, frame_bytes, disk_room(folder), instead)
        expect_room(size, row_bytes + frame_bytes, address_room(), instead)
    else:
        expect_room(size, row_bytes + frame_bytes, memory_room(), ", or storage='compressed'")
