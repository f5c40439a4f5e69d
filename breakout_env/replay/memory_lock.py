"""A lock that keeps other threads out, and what signals would do in the midst of it."""

import signal
import threading
from types import FrameType
from typing import Any, Dict, List, Optional

try:  # what `signal` itself calls, without turning numbers into enum members, which takes ten times as long
    import _signal
except ImportError:  # another Python
    import signal as _signal

# Those whose handlers people set to stop a program, or to have it look after something.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


class MemoryLock(object):
    """
    Overview:
        A reentrant lock. Python runs signal handlers in the main thread between any two of its steps, and Ctrl-C or \
        SIGTERM then raise an exception there: half a push would be left behind, to be saved and sampled from. While \
        the main thread holds this lock, such signals are noted, and handled as soon as it is released.
    Interfaces:
        A context manager.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # of the main thread, the only one that handles signals
        self._depth = 0
        self._handlers: Dict[int, Any] = {}
        self._noted: List[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            if self._depth == 0:
                self._hold_back()
            self._depth += 1
        self._lock.acquire()

    def __exit__(self, *error: Any) -> None:
        self._lock.release()
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._let_go()

    def _hold_back(self) -> None:
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                # what is not Python's ends the process or does nothing, neither of which leaves half a push
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._note)
        except BaseException:  # one came before it was held back
            self._let_go()
            raise

    def _let_go(self) -> None:
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            _signal.signal(number, handler)
        noted, self._noted = self._noted, []
        for number in noted:
            signal.raise_signal(number)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self._noted.append(number)
