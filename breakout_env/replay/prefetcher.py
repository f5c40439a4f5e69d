"""The next batch, made by a thread while the learner computes."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional, Tuple


class Prefetcher(object):
    """Makes the next batch early, assuming the next request repeats the previous one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, 'replay-prefetch')  # its thread starts with the first batch
        self._pending: Optional[Tuple[Any, 'Future[Any]', Callable[[], None]]] = None

    def prepare(self, request: Any, make: Callable[[], Any], drop: Callable[[], None] = lambda: None) -> None:
        """Make a batch in the thread; ``drop`` is called if it is cancelled before it is begun."""
        self.cancel()
        with self._lock:
            self._pending = request, self._executor.submit(make), drop

    def take(self, request: Any) -> Any:
        """The batch that was made for this request, or None; one for another request is dropped."""
        pending = self._pop()
        if pending is not None and pending[0] == request:
            return pending[1].result()
        self._drop(pending)
        return None

    def cancel(self) -> None:
        """Drop the batch."""
        self._drop(self._pop())

    def wait(self) -> None:
        """Wait until the batch is made: it reads what is to be changed next."""
        with self._lock:
            pending = self._pending
        if pending is not None:
            pending[1].exception()

    def close(self) -> None:
        """Cancel, and end the thread."""
        self.cancel()
        self._executor.shutdown()

    def _pop(self) -> Any:
        with self._lock:
            pending, self._pending = self._pending, None
            return pending

    @staticmethod
    def _drop(pending: Any) -> None:
        if pending is not None and pending[1].cancel():
            pending[2]()
