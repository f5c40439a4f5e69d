"""Saves a memory while it is used: the snapshot is taken at once, a thread writes it."""

import logging
import threading
import time
from contextlib import closing
from typing import Any, Callable, Mapping, Optional

from ..memory import ReplayMemory
from . import array_file
from .snapshot import Snapshot, save

_log = logging.getLogger(__name__)


class BackgroundSaver(object):
    """One save at a time. If it fails (a full disk), a warning is logged, and the previous file stays."""

    def __init__(self, memory: ReplayMemory, extra: Callable[[], Mapping[str, Any]]) -> None:
        self.memory = memory
        self.extra = extra
        self.error: Optional[Exception] = None
        self._thread: Optional[threading.Thread] = None

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, path: str, then: Callable[[], None]) -> bool:
        """Begin a save; call a function in its thread when the file is written. False if a save is under way."""
        if self.is_busy:
            return False
        snapshot = Snapshot(self.memory, self.extra())

        def work() -> None:
            try:
                with closing(snapshot):
                    array_file.write(path, snapshot.arrays())
                then()
                self.error = None
            except Exception as error:  # no failure of a save may end the training; it is logged
                self.error = error
                _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', path, error)

        # not a daemon: an interpreter that exits waits for it, instead of cutting the file off
        self._thread = threading.Thread(target=work, name='replay-saver')
        self._thread.start()
        return True

    def wait(self) -> None:
        """Wait until no save is under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Autosave(object):
    """Saves every so many pushes or seconds, and a last time when it is closed; never if neither is set."""

    def __init__(self, saver: BackgroundSaver, path: str, every_pushes: int, every_s: float) -> None:
        self._saver = saver
        self._path = path
        self._every_pushes = every_pushes
        self._every_s = every_s
        self.saved()

    def saved(self) -> None:
        """The present content is saved."""
        self._at_push, self._at_s = self._saver.memory.push_count, time.monotonic()

    def save_if_due(self) -> None:
        """Begin a save if one is due and none is under way."""
        pushed = self._saver.memory.push_count - self._at_push
        due = 0 < self._every_pushes <= pushed or 0 < self._every_s <= time.monotonic() - self._at_s
        if due and pushed and self._saver.start(self._path, lambda: None):
            self.saved()

    def close(self) -> None:
        """Wait for the save under way, and save what it does not have."""
        self._saver.wait()
        memory = self._saver.memory
        is_on = self._every_pushes or self._every_s
        if is_on and (memory.push_count > self._at_push or self._saver.error is not None):
            try:
                save(memory, self._path, self._saver.extra())
            except OSError as error:  # a full disk: the previous save stays
                _log.warning('the replay buffer was not saved to %s: %s', self._path, error)
