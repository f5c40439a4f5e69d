"""The pool that ``ditask`` runs its processes in (mpire's, by DI-engine's ``Parallel``), and what is amiss with it."""

import atexit
import contextlib
import os
import signal
from pathlib import Path
from typing import Iterator

from ..utils import signals


@contextlib.contextmanager
def ends_in_order() -> Iterator[None]:
    """
    Overview:
        Around what a process does under ``ditask``, in its main thread.

        Upstream behaviour worked around (DI-engine 0.5.3, mpire 2.10): after Ctrl-C, or an error in one of them, the \
        pool sends SIGUSR1 to its processes, which raises an exception in whatever they do, in a save, too; so does \
        SIGHUP, under ``nohup`` as well. The first is ignored here: the SIGTERM that follows a second later is a \
        request to stop. The second is as ``ditask`` itself has it. And where that was killed, its processes would \
        wait for more to do, for ever; here they end with it once there is nothing left to do.
    """
    parent = os.getppid()
    hang_up = signal.SIG_IGN if _ignores(parent, signal.SIGHUP) else signal.SIG_DFL
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGUSR1, signal.SIG_IGN), (signal.SIGHUP, hang_up))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.handle(signal.SIGTERM, _end)
        signals.follow_parent(parent, signal.SIGTERM)


def _end() -> None:
    atexit._run_exitfuncs()  # the pool's code, in whose midst this comes, would not let SystemExit through
    os._exit(0)


def _ignores(pid: int, number: int) -> bool:
    try:
        (ignored,) = [line for line in Path(f'/proc/{pid}/status').read_text().splitlines() if 'SigIgn' in line]
    except (OSError, ValueError):  # it is gone, or the system has no such files
        return False
    return bool(int(ignored.split()[1], 16) >> (number - 1) & 1)
