"""Interrupts in the middle of whatever is being done."""

import contextlib
import signal
from typing import Iterator


@contextlib.contextmanager
def alarm_that_raises(error: BaseException, seconds: float) -> Iterator[None]:
    """Raise an error in the main thread after some seconds, as DI-engine's ``reset_timeout`` and Ctrl-C do."""

    def interrupt(number, frame):
        raise error

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
