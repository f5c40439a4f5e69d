"""How much memory this process may take, how much it takes with its workers, and a warning before it runs out."""

import logging
import math
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

logger = logging.getLogger(__name__)
# A warning comes when less than this share of the memory limit is left.
_LOW_SHARE = 0.1
_GROUPS, _MEMBERSHIP = '/sys/fs/cgroup', '/proc/self/cgroup'


class Room(NamedTuple):
    """What a process may still take before it is killed, and who says so."""

    free_bytes: int
    limit_bytes: int
    whose: str


def memory_room(root: str = _GROUPS, membership: str = _MEMBERSHIP) -> Room:
    """The tightest of the machine's memory, the limits of control groups (docker, Kubernetes, Slurm and systemd set
    them), and ``ulimit -v`` (SGE and PBS set it). A process in a container sees all memory of the host, and is killed
    at the container's limit. ``control_groups`` explains the arguments.
    """
    memory = psutil.virtual_memory()
    room = Room(memory.available, memory.total, "the machine's memory")
    for folder in control_groups(root, membership):
        try:
            limit, used = (int((folder / name).read_text()) for name in ('memory.max', 'memory.current'))
            fields = dict(line.split() for line in (folder / 'memory.stat').read_text().splitlines())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        # the page cache counts as used, but the kernel drops it before it kills
        free = max(0, limit - used + int(fields.get('inactive_file', 0)))
        if free < room.free_bytes:
            room = Room(free, limit, 'the memory limit of its control group (container or job)')
    return min(room, address_room(), key=lambda room: room.free_bytes)


def address_room() -> Room:
    """What ``ulimit -v`` leaves for memory and for files that are mapped into it."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        limit = sys.maxsize
    used = psutil.Process().memory_info().vms
    return Room(max(0, limit - used), limit, 'the limit of its address space, ulimit -v')


def control_groups(root: str = _GROUPS, membership: str = _MEMBERSHIP) -> list[Path]:
    """The folders of this process's control group (version 2) and of all groups above it, up to ``root``, where they
    are mounted. The file ``membership`` says in which group it is; a kernel without them has no such file.
    """
    text = Path(membership).read_text() if os.path.exists(membership) else ''
    path = next((line[len('0::/') :] for line in text.splitlines() if line.startswith('0::/')), '')
    # in a container the path may be the host's, with the group itself mounted at the top
    group = Path(root, path)
    return [folder for folder in (group, *group.parents) if folder.is_dir() and folder.is_relative_to(root)]


def disk_room(folder: str) -> Room:
    """Room on the disk of a folder, which need not be there yet. Raises ValueError if it or one above it is a file."""
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        if os.path.exists(path):
            raise ValueError(f'`folder` is {folder}, and {path} is a file; expected a folder')
        path = os.path.dirname(path)
    usage = psutil.disk_usage(path)
    return Room(usage.free, usage.total, f'the disk of {folder}')


def memory_bytes() -> int:
    """Memory of this process and its workers together, each shared page counted once (Linux's proportional set size).
    The kernel walks over all pages of a process for it, tens of milliseconds for a gigabyte.
    """
    this, total = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    return total


class MemoryWatch:
    """Warns once when less than a tenth of the memory limit is left, and again whenever half of that is used up."""

    def __init__(self, warn: Callable[[str], None] = logger.warning, room: Callable[[], Room] = memory_room) -> None:
        self._warn, self._room = warn, room
        self._warn_below_bytes = math.inf

    def poll(self) -> None:
        """Look, which takes a fraction of a millisecond; call it every few seconds."""
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
