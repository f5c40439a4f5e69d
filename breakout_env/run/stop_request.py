"""Ctrl-C, SIGTERM and SIGHUP as a flag that a training loop looks at."""

import signal
import sys
from functools import partial
from typing import Callable

from ..utils import signals


class Stopped(Exception):
    """What ends an evaluation when a stop was requested."""


class StopRequest(object):
    """
    Overview:
        Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag that the training loop looks at; a second Ctrl-C stops \
        at once.
    Interfaces:
        ``raise_if_requested``.
    Properties:
        ``requested``.
    """

    def __init__(self, say: Callable[[str], None] = print) -> None:
        """
        Arguments:
            - say (:obj:`Callable`): Told, in a sentence, that the first signal has come.
        """
        self.requested = False
        self._say = say
        for number in signals.STOPPING:
            # under nohup a run goes on without its terminal
            if number != signal.SIGHUP or signals.is_free(number):
                signals.handle(number, partial(self._on_signal, number))

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            signals.leave_terminal()
        if self.requested and number == signal.SIGINT:
            signals.end_soon(128 + number)
            raise KeyboardInterrupt
        if not self.requested:
            self._say('\nStopping: finishing what is under way and saving the run (Ctrl-C again stops at once).')
            sys.stdout.flush()
        self.requested = True

    def raise_if_requested(self) -> None:
        """For an evaluation, which may take minutes, and is done again when the run goes on."""
        if self.requested:
            raise Stopped
