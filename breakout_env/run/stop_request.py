"""Ctrl-C, SIGTERM and SIGHUP as a request for a graceful shutdown of a run."""

import contextlib
import signal
import time
from functools import partial
from typing import Any, Callable, Dict, Optional

from ..utils import output, signals

# A second Ctrl-C within so many seconds is the same one: `timeout -s INT` sends it to the program and to its group.
TWICE_S = 0.05


class Stopped(Exception):
    """Ends an evaluation when a stop was requested."""


class StopRequest(contextlib.AbstractContextManager):
    """
    Overview:
        Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag that the training loop looks at. A second Ctrl-C forces \
        the shutdown. Outside the main thread, where Python lets nobody handle signals, no request comes.
    Arguments:
        - say (:obj:`Callable`): Prints the message of the first signal, from the signal handler.
        - then (:obj:`Callable`): Called after it, even if printing failed.
        - only_free (:obj:`bool`): Whether to leave alone signals that the program handles itself.
    Examples:
        >>> with StopRequest(say=lambda text: None) as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     stop.requested
        True
    """

    def __init__(
        self, say: Callable[[str], None] = output.say, then: Callable[[], None] = lambda: None, only_free: bool = False
    ) -> None:
        self._number: Optional[int] = None
        self._stopped_at_s = 0.0
        self._say = say
        self.then = then
        self._handlers_before: Dict[int, Any] = {}
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
                signals.force_shutdown(number)
            return
        self._number, self._stopped_at_s = number, time.monotonic()
        output.discard_unread()  # with the terminal or by the same Ctrl-C, those who read it may have ended
        with contextlib.suppress(OSError, ValueError):
            self._say('\nStopping: finishing what is under way and saving the run (Ctrl-C again stops at once).')
        self.then()

    def raise_if_requested(self) -> None:
        """Raise ``Stopped`` if a stop was requested; evaluations call it each step."""
        if self.requested:
            raise Stopped

    def close(self) -> None:
        """Give the signals back to the handlers before; may be called again."""
        for number, handler in self._handlers_before.items():
            if handler is not None:  # else another language set it, and Python cannot
                signal.signal(number, handler)
        self._handlers_before = {}

    def __exit__(self, *error: object) -> None:
        self.close()
