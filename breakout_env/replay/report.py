"""What a replay memory costs: a report, its curve in TensorBoard, and a warning before memory runs out."""

import math
import time
from typing import Any, Dict, Optional

import psutil

from ..utils.memory_limits import memory_room
from ..utils.resources import ResourceWatch
from .memory import ReplayMemory


def memory_report(memory: ReplayMemory) -> Dict[str, float]:
    """
    Overview:
        What a memory costs now.
    Returns:
        - report (:obj:`Dict[str, float]`): ``transitions``; ``bytes`` of memory in use, everything counted; \
            ``file_bytes`` on the disk; \
            ``bytes_per_transition``; ``distinct_frames``; ``frames_per_transition``; ``bytes_per_frame`` as stored; \
            ``compression_ratio``, the size of all stacks over the size of what is stored; ``resident_bytes`` of the \
            whole process, and ``free_bytes`` that it may still take.
    """
    with memory.lock:
        usage = memory.usage()
        count, frames = memory.count, memory.frames
        total = usage.memory_bytes + usage.file_bytes
        return dict(
            transitions=count,
            bytes=usage.memory_bytes,
            file_bytes=usage.file_bytes,
            bytes_per_transition=total / max(1, count),
            distinct_frames=frames,
            frames_per_transition=frames / max(1, count),
            bytes_per_frame=usage.stored_frame_bytes / max(1, frames),
            compression_ratio=usage.unpacked_frame_bytes / max(1, total),
            resident_bytes=psutil.Process().memory_info().rss,
            free_bytes=memory_room().free_bytes,
        )


class MemoryReporter(object):
    """Reports at most every ``every_s`` seconds."""

    def __init__(self, memory: ReplayMemory, tb_logger: Optional[Any], name: str, every_s: float) -> None:
        self._memory = memory
        self._tb_logger = tb_logger
        self._name = name
        self._every_s = every_s
        self._reported_at_s = -math.inf
        self._watch = ResourceWatch(every_s or 1.0)

    def report(self, env_step: int) -> None:
        """Add a point to the curve if one is due, and warn before memory runs out."""
        self._watch.look()
        now = time.monotonic()
        if now - self._reported_at_s < self._every_s:
            return
        self._reported_at_s = now
        if self._tb_logger is not None:
            for name, value in memory_report(self._memory).items():
                self._tb_logger.add_scalar(f'{self._name}_memory/{name}', value, max(0, env_step))
