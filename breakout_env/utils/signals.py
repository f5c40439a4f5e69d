"""Handlers of Ctrl-C, SIGTERM and SIGHUP, which the end of a terminal or of an ssh connection sends; and the end of a
process with its parent. Importing this file changes nothing.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

from . import output

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)  # loaded before a fork: in the child, a thread that is not there may hold the loader's lock


def handle(number: int, function: Callable[[], None]) -> None:
    """Call a function when a signal comes, in this process only. A forked worker inherits the handler of its parent;
    there, SIGTERM and SIGHUP end the worker, as its manager expects, and Ctrl-C is left to the parent.

    Raises:
        ValueError: If this is not the main thread, the only one that Python lets set handlers.
    """
    pid = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == pid:
            function()
        elif number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(number, handler)


def is_free(number: int) -> bool:
    """Whether the program neither handles a signal in its own way nor ignores it, as under ``nohup``."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise ``SystemExit``, so that functions registered with ``atexit`` run. Does nothing where
    the program handles the signal already, or outside the main thread.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if is_free(number):
                handle(number, partial(_exit, number))


def _exit(number: int) -> None:
    output.discard_unread()
    sys.exit(128 + number)


def follow_parent(parent_pid: int) -> None:
    """Have Linux kill this process when its parent ends, in whatever way. For Linux, the parent is the thread that
    started this process: it has to outlive the process, as a main thread does. The parent may have ended already.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
