"""The next batch, decoded by a thread while the learner computes."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Optional, Tuple

from .batch import Extras, FrameBatch, UndecodedBatch
from .memory import ReplayMemory


class Prefetcher(object):
    """Prepares a batch on the guess that the next request is the last one; its frames stay acquired until then."""

    def __init__(self, memory: ReplayMemory, pinned: bool) -> None:
        self._memory = memory
        self._pinned = pinned
        self._executor = ThreadPoolExecutor(1, 'replay-prefetch')
        self._pending: Optional[Tuple[tuple, UndecodedBatch, 'Future[FrameBatch]']] = None

    def take(self, request: tuple) -> Optional[FrameBatch]:
        """The batch that was prepared for this request, or None."""
        with self._memory.lock:
            pending = self._pending
            if pending is None or pending[0] != request:
                return None
            self._pending = None
        return pending[2].result()

    def prepare(self, request: tuple, undecoded: UndecodedBatch, extras: Extras) -> None:
        """Decode a selection in the thread, for the next ``take`` of this request."""
        decoded = self._executor.submit(self._memory.decode, undecoded, extras, self._pinned, at_once=True)
        self._pending = (request, undecoded, decoded)

    def cancel(self) -> None:
        """Drop the batch that was prepared."""
        with self._memory.lock:
            pending, self._pending = self._pending, None
            if pending is not None and pending[2].cancel():  # else `decode` has released it, or will
                self._memory.release(pending[1])

    def close(self) -> None:
        """Cancel, and end the thread."""
        self.cancel()
        self._executor.shutdown(wait=True)
