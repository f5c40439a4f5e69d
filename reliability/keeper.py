"""A section of the soak in a process of its own, beside one that sees what it leaves behind."""

import contextlib
import ctypes
import os
import signal
import time
import traceback
from pathlib import Path
from typing import Any, Callable, List

import psutil
from process_tree import adopt_orphans, end_tree, end_with_parent

# What a process may take to notice that its parent is gone: windows, encoders and workers end by themselves then.
LEFTOVERS_MAY_TAKE_S = 10.0
_OWN_MOUNTS = 0x00020000  # CLONE_NEWNS of <sched.h>
_RECURSIVE_PRIVATE = 0x4000 | 0x40000  # MS_REC and MS_PRIVATE of <sys/mount.h>


def keep(work: Callable[[], None], log: Path, connection: Any) -> None:
    """
    Overview:
        Run some work in a process below this one, to be called in a forked process. Processes that lose their parent \
        meanwhile become ours, so that none of them is missed; those that are left 10 seconds after the work are told \
        and killed. Both processes end with the one that called.
    Arguments:
        - work (:obj:`Callable`): The work.
        - log (:obj:`Path`): Where all of it prints to.
        - connection (:obj:`Any`): Told ``('error', text)`` where the work raises, ``('left', names)`` at the end.
    """
    os.setsid()  # Ctrl-C is for who started us
    with open(log, 'wb') as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    end_with_parent()
    adopt_orphans()
    _own_shared_memory()
    worker = os.fork()
    if worker == 0:
        end_with_parent()
        _work(work, connection)
    while True:
        ended, status = os.waitpid(-1, 0)  # orphans end, too
        if ended == worker:
            break
    if os.WIFSIGNALED(status):
        connection.send(('error', f'the process was ended by signal {os.WTERMSIG(status)}'))
    connection.send(('left', _end_leftovers()))
    connection.close()


def _work(work: Callable[[], None], connection: Any) -> None:
    """What runs in the process below; it does not return."""
    try:
        work()
    except BaseException:
        connection.send(('error', traceback.format_exc()))
    finally:
        os._exit(0)  # without the interpreter's own tidying up: what is still there now was left behind


def _own_shared_memory() -> None:
    """
    Give this process and those below it a /dev/shm of their own, so that what others on this machine put there is not
    taken for theirs. That takes rights that not everybody has; without them, it is the machine's that is looked at.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_OWN_MOUNTS) == 0 and libc.mount(b'none', b'/', None, _RECURSIVE_PRIVATE, None) == 0:
        libc.mount(b'tmpfs', b'/dev/shm', b'tmpfs', 0, None)


def _end_leftovers() -> List[str]:
    """Wait for what is left below this process, and end what does not end by itself; its names."""
    deadline_s = time.monotonic() + LEFTOVERS_MAY_TAKE_S
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # there is none
            return []
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.05)
    names = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it ends while we ask
            names.append(' '.join(process.cmdline())[:80] or process.name())
        end_tree(process)
    return names


def end_now(keeper_pid: int) -> None:
    """End a section at once, by the process that keeps it: work first, so that its keeper still tells what is left."""
    try:
        for process in psutil.Process(keeper_pid).children():
            os.kill(process.pid, signal.SIGKILL)
    except (psutil.Error, ProcessLookupError):
        pass  # it has ended meanwhile
