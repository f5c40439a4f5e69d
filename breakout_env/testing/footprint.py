"""What this process and those below it hold, read from the system: nothing has to be registered."""

import contextlib
import ctypes
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, Dict, Iterable, List, Set, Tuple

import psutil

PROCESSES, SHARED_MEMORY = 'child processes', 'shared memory segments'
Footprint = Dict[str, Dict[str, str]]  # by kind and identity: a name for messages
_SET_CHILD_SUBREAPER = 36  # of prctl: daemons that descendants start become children
_seen: Set[str] = set()  # shared memory, whose folder all processes share
_since = [0.0]


def watch() -> None:
    """From now on, know the shared memory that this process creates; once, before what is to be measured."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    sys.addaudithook(_note_shared_memory)
    _since[0] = time.time() - 0.1  # file systems take a coarser clock


def _note_shared_memory(event: str, args: Tuple) -> None:
    path: Any = ''
    if event == 'open' and isinstance(args[2], int) and args[2] & os.O_CREAT:
        path = args[0]
    elif event == 'mmap.__new__' and args[0] >= 0:
        path = os.readlink(f'/proc/self/fd/{args[0]}')
    if isinstance(path, str) and path.startswith('/dev/shm/'):
        _seen.add(path)


def footprint() -> Footprint:
    """What is held now."""
    descriptors, threads, children = {}, {}, processes()
    for number in os.listdir('/proc/self/fd'):
        with contextlib.suppress(OSError):  # the descriptor of the listing
            descriptors[number] = os.readlink(f'/proc/self/fd/{number}')
    names = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    for number in os.listdir('/proc/self/task'):
        threads[number] = names.get(number) or f'native thread {_text(f"/proc/self/task/{number}/comm")}'
    for process in children:
        _seen.update(re.findall(r'/dev/shm/\S+$', _text(f'/proc/{process.pid}/maps'), re.M))
    temporary = map(str, Path(tempfile.gettempdir()).rglob('*'))
    return {
        'descriptors': descriptors,
        'threads': threads,
        PROCESSES: {str(process.pid): named(process) for process in children},
        SHARED_MEMORY: {path: path for path in shared_memory()},
        'temporary files': {path: path for path in temporary},
    }


def shared_memory() -> List[str]:
    """Segments that were created since ``watch``, and not only attached."""
    found = []
    for path in _seen:
        with contextlib.suppress(OSError):
            found += [path] if os.stat(path).st_ctime > _since[0] else []
    return found


def settled(before: Footprint, timeout_s: float = 2.0) -> Footprint:
    """The footprint, once it is no more than before; the last one where that takes longer."""
    deadline = time.monotonic() + timeout_s
    while more(before, after := footprint()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return after


def more(before: Footprint, after: Footprint, kinds: Iterable[str] = ()) -> str:
    """What there is more of, in words; nothing if there is no more of anything."""
    found = []
    for kind in kinds or before:
        count = len(after[kind]) - len(before[kind])
        if count > 0:
            new = [name for identity, name in after[kind].items() if before[kind].get(identity) != name]
            found.append(f'{count} {kind} more ({", ".join(new[:3])}{", ..." if len(new) > 3 else ""})')
    return ' and '.join(found)


def processes() -> List[psutil.Process]:
    """Those below this one that have not ended."""
    multiprocessing.active_children()  # joins those that have ended
    # multiprocessing starts these for the whole life of a process
    staying = (resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid)  # type: ignore
    return [one for one in psutil.Process().children(recursive=True) if one.pid not in staying and runs(one)]


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def named(process: psutil.Process) -> str:
    """A process's number and the beginning of its command."""
    return f'process {process.pid}: {_text(f"/proc/{process.pid}/cmdline")[:80]}'


def _text(path: str) -> str:
    with contextlib.suppress(OSError):  # a process or thread that has just ended
        return Path(path).read_text(errors='replace').replace('\0', ' ').strip()
    return ''
