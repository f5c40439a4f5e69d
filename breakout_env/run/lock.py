"""One process trains in a folder: a second one would overwrite the checkpoints and saves of the first."""

import errno
import fcntl
import logging
import os
import weakref
from pathlib import Path
from typing import MutableMapping, Optional

from .paths import LOCK

_HELD_BY_ANOTHER = (errno.EAGAIN, errno.EACCES)  # EACCES from some network file systems
_log = logging.getLogger(__name__)


class _LockFile(object):
    """An open, locked file. Closing it, or the end of its last reference or of the process, unlocks it."""

    _descriptor: Optional[int] = None

    def __init__(self, path: Path) -> None:
        # not truncated before it is locked: it holds the id of the process that has locked it
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        folder = path.parent.parent
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                process = os.read(self._descriptor, 100).decode(errors='replace').strip() or 'another one'
                self.close()
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

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    __del__ = close


_ours: MutableMapping[Path, _LockFile] = weakref.WeakValueDictionary()


def _forget_in_child() -> None:
    """A forked process shares the open file, and with it the lock: a worker that outlives a run would hold it."""
    for file in list(_ours.values()):
        file.close()
    _ours.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class RunLock(object):
    """
    Overview:
        Holds an experiment's folder. The operating system releases it with the process, in whatever way that ends; \
        forked workers do not hold it. On a file system without locks a warning says so, and nothing is held. The same \
        process may hold a folder twice, as in a notebook whose first run failed; a release is for both.
    Raises:
        - ValueError: If another process holds it; the error names the process.
        - OSError: If the lock's file cannot be made.
    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     RunLock(Path(folder)).release()
    """

    def __init__(self, folder: Path) -> None:
        self._path = Path(folder).resolve() / LOCK
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = _ours.get(self._path)
        self._file: Optional[_LockFile] = _LockFile(self._path) if file is None else file
        _ours[self._path] = self._file

    def release(self) -> None:
        """Release the folder; may be called again."""
        _ours.pop(self._path, None)
        if self._file is not None:
            self._file.close()
            self._file = None
