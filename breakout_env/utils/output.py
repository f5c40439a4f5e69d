"""Losing output never stops a program.

Ctrl-C reaches every program of a pipeline, so ``tee`` may have ended before this one says that it stops. A stream may
also be closed (``2>&-``: ``sys.stderr`` is None then), full, or of an encoding that cannot take the text.
"""

import contextlib
import io
import os
import select
import sys
from typing import Any

# How long a program that stops waits for a slow reader.
_SLOW_READER_S = 1.0


class Output(io.FileIO):
    """The file below stdout or stderr; what it cannot write is lost, and ``error`` says why."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # full, and its owner made it non-blocking
                _takes_data(self.fileno())
        except OSError as error:
            self.error = error
            return len(data)
        return written


def survive_lost_output() -> Output | None:
    """Let no write of this process to stdout or stderr raise an error from now on; returns the file below stdout."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # a checkpoint would be opened in its place, and get what libraries print
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
    below_stdout = None
    for name, descriptor in (('stdout', 1), ('stderr', 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, 'w'))
        elif isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor:
            file = Output(descriptor, 'w', closefd=False)
            text = io.TextIOWrapper(
                io.BufferedWriter(file),
                stream.encoding,
                'backslashreplace',
                line_buffering=stream.line_buffering or stream.write_through,  # as with PYTHONUNBUFFERED
                write_through=stream.write_through,
            )
            setattr(sys, name, text)
            if descriptor == 1:
                below_stdout = file
    return below_stdout


def print_line(text: str) -> None:
    """Print a line about a run; it raises no error."""
    with contextlib.suppress(ValueError):  # closed, or the encoding lacks a character
        try:
            print(text, flush=True)
        except OSError:
            _discard(sys.stdout.fileno())


def discard_unread() -> None:
    """Discard from now on what goes to a closed terminal, or to a pipe that nobody reads. This also ends a write to a
    full pipe that a signal has interrupted, which would otherwise wait for ever.
    """
    for descriptor in (1, 2):
        if not _takes_data(descriptor, _SLOW_READER_S):
            _discard(descriptor)


def _takes_data(descriptor: int, timeout_s: float | None = None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    found = poller.poll(None if timeout_s is None else timeout_s * 1000)
    return bool(found) and not found[0][1] & (select.POLLERR | select.POLLHUP)


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
