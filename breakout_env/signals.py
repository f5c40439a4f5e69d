"""SIGTERM and Ctrl-C, in a process whose forked env workers inherit its handlers."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable, Optional

_plain_exit: Any = signal.SIG_DFL  # the handler that `exit_on_sigterm` has set


def handle(number: int, handler: Callable[[], None]) -> None:
    """
    Overview:
        Call a function when a signal comes, in this process only. A forked worker inherits the handler of its parent; \
        there, SIGTERM ends the worker, as its manager expects, and Ctrl-C is left to the parent.
    Arguments:
        - number (:obj:`int`): ``signal.SIGTERM`` or ``signal.SIGINT``.
        - handler (:obj:`Callable`): What to do.
    Raises:
        - ValueError: If this is not the main thread, the only one that Python lets set handlers.
    """
    pid = os.getpid()

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        if os.getpid() == pid:
            handler()
        elif number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(number, on_signal)


def exit_on_sigterm() -> None:
    """
    Let SIGTERM end the interpreter in order, so that what is registered to be done at exit is done. Does nothing \
    where someone handles the signal already, or outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    global _plain_exit
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        handle(signal.SIGTERM, lambda: sys.exit(128 + signal.SIGTERM))
        _plain_exit = signal.getsignal(signal.SIGTERM)


def is_free(number: int) -> bool:
    """Whether nobody handles a signal in a way of his own."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _plain_exit)
