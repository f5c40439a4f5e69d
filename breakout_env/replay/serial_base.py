"""What our replay buffers for serial pipelines have in common: life in a run, and saves in the background."""

import logging
import os
import threading
import weakref
from typing import Any, Callable, Mapping, Optional

from ding.worker.replay_buffer import IBuffer

from ..utils import run_registry

_log = logging.getLogger(__name__)


class BackgroundSaver(object):
    """
    Overview:
        Saves while training continues, one save at a time. If a save fails, as on a full disk, a warning is logged \
        and the file before it stays.
    Arguments:
        - begin (:obj:`Callable`): Takes a snapshot at once; returns the function that writes it to a path, which is \
            called in a thread.
    """

    def __init__(self, begin: Callable[[], Callable[[str], None]]) -> None:
        self._begin = begin
        self._owner = os.getpid()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[Exception] = None

    def start(self, path: str, then: Callable[[], None]) -> bool:
        """
        Begin a save; ``then`` is called in its thread when the file is written. False if a save is under way, or in a
        forked child, whose copy of the buffer is not the run's.
        """
        if os.getpid() != self._owner or (self._thread is not None and self._thread.is_alive()):
            return False
        # not a daemon: an interpreter that exits waits for it, instead of cutting the file off
        self._thread = threading.Thread(target=self._save, args=(self._begin(), path, then), name='replay-saver')
        self._thread.start()
        return True

    def _save(self, write: Callable[[str], None], path: str, then: Callable[[], None]) -> None:
        try:
            write(path)
            then()
            self._error = None
        except Exception as error:  # no failure of a save may end the training
            self._error = error
            _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', path, error)

    def wait(self) -> Optional[Exception]:
        """Wait until no save is under way; the error of the last one."""
        if self._thread is not None and os.getpid() == self._owner:
            self._thread.join()
        return self._error


class SerialBuffer(IBuffer):
    """
    Overview:
        A replay buffer that the hook ``resume`` can save with its run, and that releases what it holds at ``close``, \
        with its last reference, or at the exit of the interpreter. A forked child, which has a copy of the buffer, \
        saves, closes and deletes nothing.

        A subclass calls ``_open`` at the end of its constructor, and has the methods of DI-engine's ``IBuffer``, \
        ``push_count``, and ``memory_report``, numbers by name, among them ``bytes`` of memory.
    """

    save_suffix = ''  # of the names of saves in a run's folder
    options_type: Any

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``policy.other.replay_buffer`` of a merged config; a ValueError names what is wrong."""
        cls.options_type.from_config(cfg['policy']['other']['replay_buffer'])

    def _open(
        self, exp_name: str, name: str, begin_save: Callable[[], Callable[[str], None]], release: Callable[[], None]
    ) -> None:
        """Register in the run ``exp_name``. Neither ``begin_save`` nor ``release`` may keep this buffer alive."""
        self._saver = BackgroundSaver(begin_save)
        self._finalizer = weakref.finalize(self, _release, self._saver, release, os.getpid())
        run_registry.register(exp_name, name, self)

    def start_saving(self, file_name: str, then: Callable[[], None]) -> bool:
        """Save in the background, then call a function; False if a save is under way."""
        return self._saver.start(file_name, then)

    def wait_for_saving(self) -> Optional[Exception]:
        """Wait until no save is under way; the error of the last one."""
        return self._saver.wait()

    def close(self) -> None:
        """Release everything. It may be called at any time, any number of times."""
        self._finalizer()


def _release(saver: BackgroundSaver, release: Callable[[], None], owner: int) -> None:
    if os.getpid() == owner:
        saver.wait()
        release()
