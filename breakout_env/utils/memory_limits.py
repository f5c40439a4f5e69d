"""How much memory this process may take, how much it takes with its workers, and a warning before it runs out."""

import logging
import math
import os
import resource
import sys
from collections.abc import Callable, Iterator
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
    them), and the shell's (``ulimit``; SGE and PBS set them). A process in a container sees all memory of the
    host, and is killed at the container's limit. ``control_groups`` explains the arguments.
    """
    memory = psutil.virtual_memory()
    room = Room(memory.available, memory.total, "the machine's memory")
    for folder in control_groups('memory', root, membership):
        limit = _number(folder, 'memory.max', 'memory.limit_in_bytes')
        used = _number(folder, 'memory.current', 'memory.usage_in_bytes')
        if limit is None or used is None or limit >= memory.total:
            continue
        # the page cache counts as used, but the kernel drops it before it kills
        used -= min(used, _reclaimable(folder))
        if limit - used < room.free_bytes:
            room = Room(max(0, limit - used), limit, 'the memory limit of its control group (container or job)')
    data_bytes = psutil.Process().memory_info().data
    data = _limited(resource.RLIMIT_DATA, data_bytes, 'the limit of its data, ulimit -d')
    return min(room, address_room(), data, key=lambda room: room.free_bytes)


def address_room() -> Room:
    """What ``ulimit -v`` leaves for memory and for files that are mapped into it."""
    return _limited(resource.RLIMIT_AS, psutil.Process().memory_info().vms, 'the limit of its address space, ulimit -v')


def _limited(which: int, used_bytes: int, whose: str) -> Room:
    limit = resource.getrlimit(which)[0]
    if limit == resource.RLIM_INFINITY:
        limit = sys.maxsize
    return Room(max(0, limit - used_bytes), limit, whose)


def control_groups(controller: str, root: str = _GROUPS, membership: str = _MEMBERSHIP) -> Iterator[Path]:
    """The folders of the control groups of this process and of all groups above them, of version 1 and 2.

    Arguments:
        controller: What they control, such as ``'memory'``.
        root: Where control groups are mounted.
        membership: The file that says in which groups this process is; a kernel without them has no such file.
    """
    lines = Path(membership).read_text().splitlines() if os.path.exists(membership) else ()
    for line in lines:
        _, controllers, path = line.split(':', 2)
        if controllers and controller not in controllers.split(','):
            continue
        top = Path(root, controller) if controllers else Path(root)
        # in a container the path may be the host's, with the group itself mounted at the top
        group = top / path.lstrip('/')
        for folder in (group, *group.parents):
            if folder.is_dir():
                yield folder
            if folder == top:
                break


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return None


def _reclaimable(folder: Path) -> int:
    try:
        fields = dict(line.split() for line in (folder / 'memory.stat').read_text().splitlines())
    except (OSError, ValueError):  # nothing to be known
        return 0
    return int(fields.get('total_inactive_file', fields.get('inactive_file', 0)))


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
