"""How much memory this process may take, and how much it takes: the limits of the machine, the job and the shell."""

import os
import resource
import sys
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

import psutil


class Room(NamedTuple):
    """What a process may still take before it is killed, and who says so."""

    free_bytes: int
    limit_bytes: int
    whose: str


def memory_room(root: str = '/sys/fs/cgroup', membership: str = '/proc/self/cgroup') -> Room:
    """
    The tightest of the machine's memory, the limits of the control groups that this process is in (docker,
    Kubernetes, Slurm and systemd set them; version 1 and 2), and those of the shell (``ulimit``; SGE and PBS set
    them). A process in a container sees all memory of the host, and is killed at the container's limit.
    ``control_groups`` explains the arguments.
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
    used = psutil.Process().memory_info()
    data = _limited(resource.RLIMIT_DATA, used.data, 'the limit of its data, ulimit -d')
    return min(room, address_room(), data, key=lambda room: room.free_bytes)


def address_room() -> Room:
    """What ``ulimit -v`` leaves for memory and for files that are mapped into it."""
    return _limited(resource.RLIMIT_AS, psutil.Process().memory_info().vms, 'the limit of its address space, ulimit -v')


def _limited(which: int, used_bytes: int, whose: str) -> Room:
    limit = resource.getrlimit(which)[0]
    if limit == resource.RLIM_INFINITY:
        limit = sys.maxsize
    return Room(max(0, limit - used_bytes), limit, whose)


def control_groups(controller: str, root: str, membership: str) -> Iterator[Path]:
    """
    Overview:
        The folders of the control groups of this process and of all groups above them, of version 1 and 2.
    Arguments:
        - controller (:obj:`str`): What they control, such as ``'memory'``.
        - root (:obj:`str`): Where control groups are mounted.
        - membership (:obj:`str`): The file that says in which groups this process is.
    """
    try:
        lines = Path(membership).read_text().splitlines()
    except OSError:  # a kernel without them
        return
    for line in lines:
        _, controllers, path = line.split(':', 2)
        if controllers == '':
            top = Path(root)
        elif controller in controllers.split(','):
            top = Path(root, controller)
        else:
            continue
        # in a container the path may be the host's, with the group itself mounted at the top
        group = top / path.lstrip('/')
        while True:
            if group.is_dir():
                yield group
            if group == top:
                break
            group = group.parent


def _number(folder: Path, *names: str) -> Optional[int]:
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
