"""What the replay buffers of serial pipelines have in common: registration, prefetching, saving and release."""

import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from ding.worker.replay_buffer import IBuffer

from ..utils import run_registry
from .options import SamplingOptions
from .saved_arrays import Arrays, damage_named, read_arrays, write_arrays

_Batch = TypeVar('_Batch')


class Prefetcher:
    """Makes the next batch in a thread while the learner computes, assuming that the next request repeats the previous
    one. Call ``wait`` before a change of what batches are made from: so their content depends on the seed only, not on
    the thread's speed.
    """

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._executor = ThreadPoolExecutor(1, 'replay-prefetch')  # its thread starts with the first batch
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
    with its last reference, or at the exit of the interpreter. A forked child, which has a copy of the buffer, releases
    nothing when it ends.

    A subclass calls ``_open`` at the end of its constructor, and has ``push``, ``sample``, ``update``, ``clear`` and
    ``count`` of DI-engine's ``IBuffer``, ``push_count``, and ``memory_report``, numbers by name, among them ``bytes``.
    """

    options_type: type[SamplingOptions]
    _options: SamplingOptions

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``policy.other.replay_buffer`` of a merged config; a ValueError names what is wrong."""
        cls.options_type.from_config(cfg['policy']['other']['replay_buffer'])

    def _open(self, exp_name: str, release: Callable[[], object]) -> None:
        """Register in the run ``exp_name``. ``release``, which may not keep this buffer alive, is called at its end."""
        self._prefetcher = Prefetcher(self._options.prefetch)
        self._finalizer = weakref.finalize(self, _release, self._prefetcher, release, os.getpid())
        run_registry.register(exp_name, 'buffer', self)

    @abstractmethod
    def _snapshot(self) -> Arrays:
        """Everything a save keeps; no batch is being made meanwhile."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        """Replace the content by that of a snapshot; ``name`` is for error messages."""

    def save_data(self, file_name: str) -> None:
        """Save everything to a file, completely or not at all.

        Raises:
            OSError: If it cannot be written, as on a full disk; the file before it stays.
        """
        self._prefetcher.wait()  # else the saved random numbers would depend on how fast its thread is
        write_arrays(file_name, self._snapshot())

    def load_data(self, file_name: str) -> None:
        """Load what ``save_data`` saved, in place of the present content.

        Raises:
            FileNotFoundError: If there is no such file.
            DamagedFile: If it cannot be loaded; the present content stays.
        """
        with read_arrays(file_name) as arrays:
            self._prefetcher.drop()
            self._restore(arrays, file_name)

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of everything, as numpy arrays."""
        self._prefetcher.wait()
        return {name: array.copy() for name, array in self._snapshot()}

    def load_state_dict(self, _state_dict: Mapping[str, np.ndarray], deepcopy: bool = False) -> None:
        """Load what ``state_dict`` returned. The arrays are copied in any case."""
        self._prefetcher.drop()
        with damage_named('the state dict'):
            self._restore(_state_dict, 'the state dict')

    def close(self) -> None:
        """Release everything. It may be called at any time, any number of times."""
        self._finalizer()


def _release(prefetcher: Prefetcher, release: Callable[[], object], owner: int) -> None:
    if os.getpid() == owner:
        prefetcher.close()
        release()
