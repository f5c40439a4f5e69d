"""What memory this process and its workers use, and a warning before it runs out."""

import logging
import math
import os
import time
from typing import Callable

import psutil

from .memory_limits import Room, memory_room

logger = logging.getLogger(__name__)

# A warning comes when less than this share of the memory limit is left.
_LOW_SHARE = 0.1


def memory_bytes() -> int:
    """
    Memory of this process and its workers together, each shared page counted once (Linux's proportional set
    size): what ending them would free. The kernel walks over all pages of a process for it,
    tens of milliseconds for a gigabyte, so it is for a display, not for each reading.
    """
    this, total = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    return total


class ResourceWatch(object):
    """
    Overview:
        Looks every few seconds at the memory that is left, and warns before it runs out: once when less than a tenth \
        of the limit is left (the machine's, or the control group's), and again whenever half of that is used up. It \
        has no thread and holds nothing open.
    """

    def __init__(
        self,
        interval_s: float = 5.0,
        warn: Callable[[str], None] = logger.warning,
        clock: Callable[[], float] = time.monotonic,
        room: Callable[[], Room] = memory_room,
    ) -> None:
        self._interval_s, self._warn, self._clock, self._room = interval_s, warn, clock, room
        self._due_s = clock()
        self._warn_below_bytes = math.inf

    def look(self) -> None:
        """Look if it is due; otherwise it costs a look at the clock, so call it often."""
        now_s = self._clock()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._interval_s
        room = self._room()
        if room.free_bytes >= room.limit_bytes * _LOW_SHARE:
            self._warn_below_bytes = math.inf
        elif room.free_bytes < self._warn_below_bytes:
            self._warn_below_bytes = room.free_bytes / 2
            self._warn(
                f'memory is running out: {room.free_bytes / 1e9:.2f} GB left of the {room.limit_bytes / 1e9:.2f} GB '
                f'that {room.whose} allows; process {os.getpid()} and its workers use '
                f'{memory_bytes() / 1e9:.2f} GB. Expected a smaller replay_buffer_size, '
                'fewer environments, or a machine with more memory'
            )
