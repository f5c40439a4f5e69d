"""
Ctrl-C, SIGTERM and SIGHUP, which the end of a terminal or of an ssh connection is.

Three times of a program want different things. While it is imported, for seconds, there is nothing to end in order:
``end_at_once`` does it without a word of Python's. While it does its work, the signals are exceptions
(``exit_in_order``) or a request (``stop_request.py``). And when nobody is left to handle an exception, as behind a
second Ctrl-C, it only has to be over: ``end_soon``.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from pathlib import Path
from types import FrameType
from typing import Callable, Optional

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Our programs, by the file or module that is run. Any other may outlive a run, such as a notebook or a test.
_PROGRAMS = (
    'breakout',
    'breakout_env',
    'breakout_dqn_main',
    'breakout_dqn_ddp',
    'breakout_dqn_dist',
    'breakout_dqn_eval',
)
# What a second Ctrl-C leaves for closing what is open.
_END_S = 1.2
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)  # not in a fork, where a lock of the loader's may be held by a thread that is not there
_NOBODYS = (signal.SIG_DFL, signal.default_int_handler)
_ours: 'weakref.WeakSet[Callable]' = weakref.WeakSet()  # this file's own handlers, which anybody may replace


def handle(number: int, handler: Callable[[], None]) -> None:
    """
    Overview:
        Call a function when a signal comes, in this process only. A forked worker inherits the handler of its parent; \
        there, SIGTERM and SIGHUP end the worker, as its manager expects, and Ctrl-C is left to the parent.
    Arguments:
        - number (:obj:`int`): One of ``STOPPING``.
        - handler (:obj:`Callable`): What to do.
    Raises:
        - ValueError: If this is not the main thread, the only one that Python lets set handlers.
    """
    pid = os.getpid()

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        if os.getpid() == pid:
            handler()
        elif number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(number, on_signal)


def is_free(number: int) -> bool:
    """Whether a signal is neither handled by anybody in a way of his own nor ignored, as under ``nohup``."""
    handler = signal.getsignal(number)
    return handler in _NOBODYS or (callable(handler) and handler in _ours)


def exit_in_order() -> None:
    """
    Let SIGTERM and SIGHUP end the interpreter in order, so that what is registered to be done at exit is done. Does \
    nothing where someone handles the signal already, or outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if is_free(number):
            _handle_ours(number, _exit)


def _handle_ours(number: int, handler: Callable[[int], None]) -> None:
    handle(number, lambda: handler(number))
    _ours.add(signal.getsignal(number))


def _exit(number: int) -> None:
    if number == signal.SIGHUP:
        leave_terminal()
    sys.exit(128 + number)


def follow_parent(parent_pid: int, number: int = signal.SIGKILL) -> None:
    """
    Overview:
        Have the system send this process a signal when its parent is gone, however that ended: a stopped process, \
        which can not look for itself, obeys SIGKILL, too. For Linux, the parent is the thread that started this \
        process; so this is only for those that a main thread has started.
    Arguments:
        - parent_pid (:obj:`int`): The parent, which may be gone already.
        - number (:obj:`int`): The signal.
    """
    if sys.platform == 'linux':
        _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), number)


def leave_terminal() -> None:
    """After a SIGHUP: whatever would be written to the terminal that is gone, is an error otherwise."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            # one that is gone does not even say that it is a terminal
            os.write(descriptor, b'') if descriptor else os.fstat(descriptor)
            continue
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


# ---------------------------------------------------------------- our programs


def name_of_program() -> str:
    """The file or module that is run, without its ending; '' in a process of multiprocessing's."""
    if multiprocessing.parent_process() is not None:
        return ''
    # While the package is imported in which `python -m` looks for a module, the module's name is not there yet.
    if sys.argv[:1] == ['-m']:
        return sys.orig_argv[sys.orig_argv.index('-m') + 1].rpartition('.')[2]
    return Path(sys.argv[0]).stem if sys.argv else ''


_is_ours = name_of_program() in _PROGRAMS
_is_a_command = _is_ours or name_of_program() == 'ding'


def end_at_once() -> None:
    """
    Overview:
        While one of our programs is imported: end on a signal, with its exit code and without a traceback. As the \
        first process of a container, also become the child of one that does what the first process has to do. In \
        other programs it does nothing.
    """
    if not _is_ours or threading.current_thread() is not threading.main_thread():
        return
    if os.getpid() == 1:
        _be_a_child()
    for number in STOPPING:
        if is_free(number):
            _handle_ours(number, _end)


def _end(number: int) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, b'stopped\n')
    os._exit(128 + number)


def begin() -> None:
    """One of our programs is there, and can handle exceptions."""
    if _is_ours and threading.current_thread() is threading.main_thread():
        if is_free(signal.SIGINT):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        exit_in_order()


def end_soon(code: int) -> None:
    """
    Overview:
        End a command within moments, whatever its threads and workers do meanwhile, and at the next Ctrl-C at once. \
        Other programs, which may outlive the run, are left to the exception that the caller raises.
    Arguments:
        - code (:obj:`int`): The exit code.
    """
    if not _is_a_command:
        return
    let_ctrl_c_kill()
    timer = threading.Timer(_END_S, _end_now, (code,))
    timer.daemon = True
    timer.start()


def _end_now(code: int) -> None:
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(code)


def let_ctrl_c_kill() -> None:
    """At the end of a command: an exception would find nobody to handle it, and be shown as an error."""
    if _is_a_command and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _be_a_child() -> None:
    """
    Go on in a child. The first process of a container ignores the signals that it does not handle, which are all of \
    them while it is imported, and inherits what others leave behind: ended processes that stay until it has asked \
    for them. A program does not do that; so this process does, and nothing else.
    """
    awaited = {signal.SIGCHLD, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, *STOPPING}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    while True:
        event = signal.sigwaitinfo(awaited)
        if event.si_signo != signal.SIGCHLD:
            # what a terminal sends, it has sent to the child as well; a second Ctrl-C would mean something else
            if event.si_code <= 0:
                os.kill(child, event.si_signo)
            continue
        ended = status = 0
        while ended != child:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
        else:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
