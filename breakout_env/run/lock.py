"""One process trains in a folder: a second one would overwrite the checkpoints and saves of the first."""

import errno
import fcntl
import logging
import os
import weakref
from pathlib import Path
from typing import MutableMapping, Optional, Union

from .paths import LOCK

_HELD_BY_ANOTHER = (errno.EAGAIN, errno.EACCES)  # EACCES from some network file systems
_log = logging.getLogger(__name__)


class RunLock(object):
    """
    Overview:
        Holds an experiment's folder. The operating system releases it with the process, in whatever way that ends; \
        forked workers do not hold it. On a file system without locks a warning says so, and nothing is held.
    Raises:
        - ValueError: If another process holds it; the error names the process.
        - OSError: If the lock's file cannot be made.
    """

    _descriptor: Optional[int] = None

    def __init__(self, folder: Union[str, Path]) -> None:
        path = Path(folder, LOCK)
        path.parent.mkdir(parents=True, exist_ok=True)
        # not truncated before it is locked: it holds the id of the process that has locked it
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                process = os.read(self._descriptor, 100).decode(errors='replace').strip() or 'another one'
                self.release()
                raise ValueError(
                    f'process {process} trains in {folder} already; expected to resume a run that has stopped, or an '
                    'exp_name of its own for each run'
                ) from None
            # ENOTSUP, ENOLCK, ENOSYS, EINVAL: file systems that have no locks do not agree on a word for it
            _log.warning(
                'the file system of %s has no locks (%s): make sure that no other process trains there',
                folder,
                os.strerror(error.errno or 0),
            )
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    @property
    def is_held(self) -> bool:
        """Whether it is not released yet."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the folder, as the end of the last reference does; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    __del__ = release


_ours: MutableMapping[Path, RunLock] = weakref.WeakValueDictionary()


def hold(folder: Union[str, Path]) -> RunLock:
    """The lock of a folder, which this process may have already, as in a notebook whose first run failed."""
    path = Path(folder).resolve()
    lock = _ours.get(path)
    if lock is None or not lock.is_held:
        lock = _ours[path] = RunLock(path)
    return lock


def _forget_in_child() -> None:
    """A forked process shares the open file, and with it the lock: a worker that outlives a run would hold it."""
    for lock in list(_ours.values()):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)
