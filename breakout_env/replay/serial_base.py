"""What the replay buffers of serial pipelines have in common: registration, prefetching, saving and release."""

import logging
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from ding.worker.replay_buffer import IBuffer

from ..utils import run_registry
from .options import SamplingOptions

_log = logging.getLogger(__name__)
_THREADS = 'replay-'  # the names of a buffer's threads begin with it
_PREFETCHER, _SAVER = f'{_THREADS}prefetch', f'{_THREADS}saver'


class Prefetcher:
    """Makes the next batch in a thread while the learner computes, assuming that the next request repeats the previous
    one. Call ``wait`` before a change of what batches are made from: so their content depends on the seed only, not on
    the thread's speed.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, _PREFETCHER)  # its thread starts with the first batch
        self._pending: tuple[int, Future[Any]] | None = None

    def prepare(self, size: int, make: Callable[[], Any]) -> None:
        """Make a batch of some size in the thread."""
        self._pending = size, self._executor.submit(make)

    def take(self, size: int) -> Any:
        """The batch that was made, or None; one of another size is dropped."""
        self.wait()
        pending, self._pending = self._pending, None
        return pending[1].result() if pending is not None and pending[0] == size else None

    def wait(self) -> None:
        """Wait until the batch is made."""
        pending = self._pending
        if pending is not None:
            pending[1].exception()

    def drop(self) -> None:
        """Forget the batch."""
        self.wait()
        self._pending = None

    def close(self) -> None:
        """Forget the batch, and end the thread."""
        self._executor.shutdown()
        self._pending = None


class SerialBuffer(IBuffer):
    """A replay buffer that the hook ``resume`` can save with its run, and that releases what it holds at ``close``,
    with its last reference, or at the exit of the interpreter. A forked child, which has a copy of the buffer, saves,
    closes and deletes nothing.

    A subclass calls ``_open`` at the end of its constructor, and has the methods of DI-engine's ``IBuffer``,
    ``_begin_save``, ``push_count``, and ``memory_report``, numbers by name, among them ``bytes`` of memory.
    """

    save_suffix = ''  # of the names of saves in a run's folder
    options_type: type[SamplingOptions]

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``policy.other.replay_buffer`` of a merged config; a ValueError names what is wrong."""
        cls.options_type.from_config(cfg['policy']['other']['replay_buffer'])

    def _open(self, exp_name: str, release: Callable[[], None]) -> None:
        """Register in the run ``exp_name``. ``release``, which may not keep this buffer alive, is called at its end."""
        self._owner = os.getpid()
        self._prefetcher = Prefetcher()
        self._saves: list[Future[None]] = []  # the last one
        self._finalizer = weakref.finalize(self, _release, self._saves, self._prefetcher, release, self._owner)
        run_registry.register(exp_name, 'buffer', self)

    @abstractmethod
    def _begin_save(self) -> Callable[[str], None]:
        """Take a snapshot at once; the function that is returned writes it to a path."""

    def start_saving(self, file_name: str, then: Callable[[], Any]) -> bool:
        """Save what is there now while training continues, and call ``then``, in the save's thread, when the file is
        written. If that fails, as on a full disk, a warning is logged and the file before it stays. False if a save is
        under way, or in a forked child, whose copy of the buffer does not belong to the run.
        """
        if os.getpid() != self._owner or not all(save.done() for save in self._saves):
            return False
        executor = ThreadPoolExecutor(1, thread_name_prefix=_SAVER)
        self._saves[:] = [executor.submit(_save, self._begin_save(), file_name, then)]
        executor.shutdown(wait=False)  # the thread ends with the save; an interpreter that exits waits for it
        return True

    def wait_for_saving(self) -> BaseException | None:
        """Wait until no save is under way; the error of the last one."""
        return self._saves[0].exception() if self._saves and os.getpid() == self._owner else None

    def close(self) -> None:
        """Release everything. It may be called at any time, any number of times."""
        self._finalizer()


def _save(write: Callable[[str], None], path: str, then: Callable[[], Any]) -> None:
    try:
        write(path)
        then()
    except Exception as error:  # a save that fails must not end the training
        _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', path, error)
        del write, then  # the error stays until the next save, and a traceback would keep what they hold
        raise error.with_traceback(None) from None


def _release(saves: list[Future[None]], prefetcher: Prefetcher, release: Callable[[], None], owner: int) -> None:
    if os.getpid() != owner:
        return

    def finish() -> None:
        prefetcher.close()
        wait(saves)
        release()

    # The garbage collector may close a buffer in one of its own threads, which cannot wait for itself.
    if threading.current_thread().name.startswith(_THREADS):
        threading.Thread(target=finish).start()
    else:
        finish()
