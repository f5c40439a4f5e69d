"""Ctrl-C, SIGTERM and SIGHUP, which the end of a terminal or of an ssh connection sends.

A graceful shutdown saves the run, ends the workers and removes what is temporary. A forced shutdown, by a second
Ctrl-C, ends the process within moments. Importing this file changes nothing: our commands install handlers when they
start (``command_line.py``), and the learner hook ``resume`` does for the time of a run.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import click

from . import output

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a forced shutdown leaves for closing what is open.
_FORCED_SHUTDOWN_S = 1.2
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
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if is_free(number):
            handle(number, partial(_exit, number))


def _exit(number: int) -> None:
    output.discard_unread()
    sys.exit(128 + number)


def follow_parent(parent_pid: int) -> None:
    """Have the system kill this process when its parent ends, in whatever way: a stopped process, which cannot check
    for itself, obeys SIGKILL, too. For Linux, the parent is the thread that started this process: it has to outlive the
    process, as a main thread does. The parent may have ended already.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def force_shutdown(number: int) -> None:
    """End a command: raise ``SystemExit``, and end the process within moments, whatever its threads and workers do
    meanwhile; the next Ctrl-C ends it at once. In a notebook or a multiprocessing child only the exception is raised.
    """
    with contextlib.suppress(OSError):  # the terminal may be gone
        if sys.stderr is not None:  # else it is closed, and another file may be in its place
            os.write(2, b'stopped\n')
    if is_command():
        let_ctrl_c_kill()
        timer = threading.Timer(_FORCED_SHUTDOWN_S, _end_now, (128 + number,))
        timer.daemon = True
        timer.start()
    sys.exit(128 + number)


def let_ctrl_c_kill() -> None:
    """Have the next Ctrl-C end a command silently. While a command unwinds and the interpreter ends, nothing would
    catch the exception, and it would be shown as an error.
    """
    if is_command():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_command() -> bool:
    """Whether this process was started as a command, which ends with what it runs."""
    # `ding` is a click command, too
    return click.get_current_context(silent=True) is not None and multiprocessing.parent_process() is None


def _end_now(code: int) -> None:
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(code)
