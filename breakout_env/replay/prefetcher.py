"""The next batch, made by a thread while the learner computes."""

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Deque, Tuple

_THREAD = 'replay-prefetch'


class Prefetcher(object):
    """
    Makes the next batch early, assuming the next request repeats the previous one. Call ``wait`` before a change of
    what batches are made from: so their content depends on the seed only, not on the thread's speed.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, _THREAD)  # its thread starts with the first batch
        # one at most; a lock instead would keep a signal handler from closing the buffer
        self._pending: Deque[Tuple[Any, 'Future[Any]']] = deque(maxlen=1)

    def prepare(self, request: Any, make: Callable[[], Any]) -> None:
        """Make a batch in the thread."""
        self._pending.append((request, self._executor.submit(make)))

    def take(self, request: Any) -> Any:
        """The batch that was made for this request, or None; one for another request is dropped."""
        self.wait()
        try:
            made_for, batch = self._pending.pop()
        except IndexError:
            return None
        return batch.result() if made_for == request else None

    def wait(self) -> None:
        """Wait until the batch is made."""
        for _, batch in list(self._pending):
            batch.exception()

    def drop(self) -> None:
        """Forget the batch."""
        self.take(None)

    def close(self) -> None:
        """Forget the batch, and end the thread."""
        # a thread can not wait for itself: the garbage collector may close a buffer in it
        self._executor.shutdown(wait=not threading.current_thread().name.startswith(_THREAD))
        self._pending.clear()
