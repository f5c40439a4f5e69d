"""Saves a memory while it is used: the moment is caught at once, the writing is a thread's."""

import logging
import threading
from typing import Any, Callable, Mapping, Optional

from ..memory import ReplayMemory
from . import array_file
from .snapshot import MemoryImage

_log = logging.getLogger(__name__)


class BackgroundSaver(object):
    """
    Overview:
        One save at a time. A save that fails (a full disk) is told in the log; the file before it is there still, and \
        training goes on.
    Interfaces:
        ``start``, ``wait``.
    Properties:
        ``is_busy``, ``error``.
    """

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self.error: Optional[Exception] = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(
        self,
        path: str,
        memory: ReplayMemory,
        more: Mapping[str, Any],
        then: Callable[[], None] = lambda: None,
    ) -> bool:
        """
        Overview:
            Begin a save of the memory as it is now.
        Arguments:
            - path (:obj:`str`): The file.
            - memory (:obj:`ReplayMemory`): The memory.
            - more (:obj:`Mapping[str, Any]`): What else to keep.
            - then (:obj:`Callable`): What to do when the file is written, in the same thread.
        Returns:
            - started (:obj:`bool`): False if a save is under way.
        """
        if self.is_busy:
            return False
        image = MemoryImage(memory, more)

        def work() -> None:
            try:
                array_file.write(path, image.arrays())
                then()
                self.error = None
            except Exception as error:  # whatever it is, it must not end the training, only be heard of
                self.error = error
                _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', path, error)
            finally:
                image.close()

        # not a daemon: an interpreter that ends waits for it, instead of cutting the file off
        self._thread = threading.Thread(target=work, name='replay-saver')
        self._thread.start()
        return True

    def wait(self) -> None:
        """Until nothing is being saved."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
