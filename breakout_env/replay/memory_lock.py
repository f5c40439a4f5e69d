"""A lock that keeps other threads out and defers signals."""

import signal
import sys
import threading
from types import FrameType
from typing import Any, Dict, List, Optional

# What `signal` itself calls, without turning numbers into enum members, which takes ten times as long.
_signal = sys.modules.get('_signal', signal)
# Those for which programs install handlers.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


class MemoryLock(object):
    """
    A reentrant lock, used as a context manager. Python runs signal handlers in the main thread between any two
    bytecodes, and those of Ctrl-C or SIGTERM may raise: half a push would remain, to be sampled and saved. While
    the main thread holds this lock, such signals are noted; their handlers run as soon as it is released.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # of the main thread, the only one in which Python runs signal handlers
        self._depth = 0
        self._handlers: Dict[int, Any] = {}
        self._noted: List[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            if self._depth == 0:
                self._defer_signals()
            self._depth += 1
        self._lock.acquire()

    def __exit__(self, *error: Any) -> None:
        self._lock.release()
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._deliver_signals()

    def _defer_signals(self) -> None:
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                # other handlers than Python's end the process or do nothing, neither of which leaves half a push
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._note)
        except BaseException:  # a handler raised before its signal was deferred
            self._deliver_signals()
            raise

    def _deliver_signals(self) -> None:
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            _signal.signal(number, handler)
        noted, self._noted = self._noted, []
        for number in noted:
            signal.raise_signal(number)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self._noted.append(number)
