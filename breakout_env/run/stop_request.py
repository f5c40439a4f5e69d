"""Ctrl-C, SIGTERM and SIGHUP as a request for a graceful shutdown of a run."""

import contextlib
import signal
import time
from functools import partial
from typing import Any

from ..utils import output, signals
from .forced_shutdown import force_shutdown

# A second Ctrl-C within so many seconds is the same one: `timeout -s INT` sends it to the program and to its group.
TWICE_S = 0.05


class Stopped(Exception):
    """Ends a collection or an evaluation, and with it the run, when a stop was requested."""


class StopRequest(contextlib.AbstractContextManager):
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag, which a run polls where nothing is half done. A second
    Ctrl-C forces the shutdown. Outside the main thread, where Python handles no signals, no request comes.

    Arguments:
        only_free: Whether to leave alone signals that the program handles itself.

    Examples:
        >>> with StopRequest() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     stop.requested
        True
    """

    def __init__(self, only_free: bool = False) -> None:
        self._number: int | None = None
        self._stopped_at_s = 0.0
        self._is_announced = False
        self._handlers_before: dict[int, Any] = {}
        for number in signals.STOPPING:
            before = signal.getsignal(number)
            if only_free and not signals.is_free(number):
                continue
            if number == signal.SIGHUP and before == signal.SIG_IGN:  # under nohup a run continues without its terminal
                continue
            try:
                signals.handle(number, partial(self._on_signal, number))
            except ValueError:  # not the main thread
                return
            self._handlers_before[number] = before

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self._number is not None

    @property
    def exit_code(self) -> int:
        """What shells expect of a program that the signal ended."""
        return 128 + (self._number or 0)

    def _on_signal(self, number: int) -> None:
        if self.requested:
            if number == signal.SIGINT and time.monotonic() - self._stopped_at_s > TWICE_S:
                force_shutdown(number)
        else:
            self._number, self._stopped_at_s = number, time.monotonic()

    def poll(self) -> bool:
        """Whether a stop was requested. The first call that finds a request says so on the screen."""
        if self.requested and not self._is_announced:
            self._is_announced = True
            output.discard_unread()  # with the terminal or by the same Ctrl-C, those who read it may have ended
            output.print_line('\nStopping: saving the run (Ctrl-C again stops at once).')
        return self.requested

    def raise_if_requested(self) -> None:
        """Raise ``Stopped`` if a stop was requested; collections and evaluations call it after each env step."""
        if self.poll():
            raise Stopped

    def close(self) -> None:
        """Give the signals back to the handlers before; may be called again."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}

    def __exit__(self, *error: object) -> None:
        self.close()
