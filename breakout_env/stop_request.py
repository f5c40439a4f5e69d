"""Ctrl-C and SIGTERM as a flag that a training loop looks at."""

import signal
import sys
from functools import partial
from typing import Callable

from . import signals


class Stopped(Exception):
    """What ends an evaluation when a stop was requested."""


class StopRequest(object):
    """
    Overview:
        Turns the first Ctrl-C or SIGTERM into a flag that the training loop looks at; a second Ctrl-C stops at once.
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
        for number in (signal.SIGINT, signal.SIGTERM):
            signals.handle(number, partial(self._on_signal, number))

    def _on_signal(self, number: int) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            self._say('\nStopping: finishing what is under way and saving the run (Ctrl-C again stops at once).')
            sys.stdout.flush()
        self.requested = True

    def raise_if_requested(self) -> None:
        """For an evaluation, which may take minutes, and is done again when the run goes on."""
        if self.requested:
            raise Stopped
