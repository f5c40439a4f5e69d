"""What the replay buffers of serial pipelines have in common: registration, prefetching, saving and release."""

import logging
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
from ding.worker.replay_buffer import IBuffer

from ..utils import run_registry
from .options import SamplingOptions
from .saved_arrays import ArraySource, damage_named, read_arrays, write_arrays

_log = logging.getLogger(__name__)
_THREADS = 'replay-'  # the names of a buffer's threads begin with it
_PREFETCHER, _SAVER = f'{_THREADS}prefetch', f'{_THREADS}saver'
_Batch = TypeVar('_Batch')
_Save = Future[Exception | None]  # its result is why it failed


class Prefetcher:
    """Makes the next batch in a thread while the learner computes, assuming that the next request repeats the previous
    one. Call ``wait`` before a change of what batches are made from: so their content depends on the seed only, not on
    the thread's speed.
    """

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._executor = ThreadPoolExecutor(1, _PREFETCHER)  # its thread starts with the first batch
        self._pending: tuple[int, Future[Any]] | None = None

    def batch(self, size: int, make: Callable[[], _Batch]) -> _Batch:
        """The batch of this size that the thread made, or a new one; then the thread makes the next one."""
        self.wait()
        pending, self._pending = self._pending, None
        made = pending[1].result() if pending is not None and pending[0] == size else None
        batch = make() if made is None else made
        if self._is_on and batch is not None:
            self._pending = size, self._executor.submit(make)
        return batch

    def wait(self) -> None:
        """Wait until the batch is made."""
        if self._pending is not None:
            self._pending[1].exception()

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

    A subclass calls ``_open`` at the end of its constructor, and has ``push``, ``sample``, ``update``, ``clear`` and
    ``count`` of DI-engine's ``IBuffer``, ``push_count``, and ``memory_report``, numbers by name, among them ``bytes``.
    """

    save_suffix = '.npz'  # of the names of saves in a run's folder
    options_type: type[SamplingOptions]
    _options: SamplingOptions

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``policy.other.replay_buffer`` of a merged config; a ValueError names what is wrong."""
        cls.options_type.from_config(cfg['policy']['other']['replay_buffer'])

    def _open(self, exp_name: str, release: Callable[[], None]) -> None:
        """Register in the run ``exp_name``. ``release``, which may not keep this buffer alive, is called at its end."""
        self._owner = os.getpid()
        self._prefetcher = Prefetcher(self._options.prefetch)
        self._saves: list[_Save] = []  # the last one
        self._finalizer = weakref.finalize(self, _release, self._saves, self._prefetcher, release, self._owner)
        run_registry.register(exp_name, 'buffer', self)

    @abstractmethod
    def _snapshot(self) -> ArraySource:
        """Everything a save keeps; no batch is being made meanwhile."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        """Replace the content by that of a snapshot; ``name`` is for error messages."""

    def _take_snapshot(self) -> ArraySource:
        self._prefetcher.wait()  # else the saved random numbers would depend on how fast its thread is
        return self._snapshot()

    def save_data(self, file_name: str) -> None:
        """Save everything to a file, completely or not at all.

        Raises:
            OSError: If it cannot be written.
        """
        write_arrays(file_name, self._take_snapshot())

    def load_data(self, file_name: str) -> None:
        """Load what ``save_data`` or ``start_saving`` saved, in place of the present content.

        Raises:
            FileNotFoundError: If there is no such file.
            DamagedFile: If it cannot be loaded; the present content stays.
        """
        with read_arrays(file_name) as arrays:
            self._replace(arrays, file_name)

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of everything, as numpy arrays."""
        with closing(self._take_snapshot()) as arrays:
            return dict(arrays)

    def load_state_dict(self, _state_dict: Mapping[str, np.ndarray], deepcopy: bool = False) -> None:
        """Load what ``state_dict`` returned. The arrays are copied in any case."""
        with damage_named('the state dict'):
            self._replace(_state_dict, 'the state dict')

    def _replace(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        self.wait_for_saving()
        self._prefetcher.drop()
        self._restore(arrays, name)

    def start_saving(self, file_name: str, then: Callable[[], object]) -> bool:
        """Save what is there now while training continues, and call ``then``, in the save's thread, when the file is
        written. If that fails, as on a full disk, a warning is logged and the file before it stays. False if a save is
        under way, or in a forked child, whose copy of the buffer does not belong to the run.
        """
        if os.getpid() != self._owner or not all(save.done() for save in self._saves):
            return False
        executor = ThreadPoolExecutor(1, thread_name_prefix=_SAVER)
        self._saves[:] = [executor.submit(_save, self._take_snapshot(), file_name, then)]
        executor.shutdown(wait=False)  # the thread ends with the save; an interpreter that exits waits for it
        return True

    def wait_for_saving(self) -> Exception | None:
        """Wait until no save is under way; the error of the last one."""
        return self._saves[0].result() if self._saves and os.getpid() == self._owner else None

    def close(self) -> None:
        """Release everything. It may be called at any time, any number of times."""
        self._finalizer()


def _save(arrays: ArraySource, path: str, then: Callable[[], object]) -> Exception | None:
    try:
        write_arrays(path, arrays)
        then()
    except Exception as error:  # a save that fails must not end the training
        _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', path, error)
        return error.with_traceback(None)  # which would keep the arrays until the next save
    return None


def _release(saves: list[_Save], prefetcher: Prefetcher, release: Callable[[], None], owner: int) -> None:
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
