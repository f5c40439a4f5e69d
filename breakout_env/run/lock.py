"""One process trains in a folder: a second one would overwrite the checkpoints and saves of the first."""

import errno
import os
from pathlib import Path

import filelock

PLACE = Path('log') / 'lock'
# What file systems without locks answer, some network ones among them.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class RunLock(object):
    """
    Overview:
        Holds an experiment's folder. The operating system releases it with the process, in whatever way that ends; \
        forked workers do not hold it. On file systems without locks it does nothing. The same process may hold a \
        folder twice, as in a notebook whose first run failed.
    Raises:
        - ValueError: If another process holds it; the error names the process.
    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     RunLock(Path(folder)).release()
    """

    def __init__(self, folder: Path) -> None:
        path = Path(folder).resolve() / PLACE
        path.parent.mkdir(parents=True, exist_ok=True)
        # a lock that is a mere file, filelock's fallback, would outlive a killed process
        self._lock = filelock.FileLock(path, is_singleton=True, thread_local=False, fallback_to_soft=False)
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            process = path.read_text().strip() or 'another one'
            raise ValueError(
                f'process {process} trains in {folder} already; expected to resume a run that has stopped, or an '
                'exp_name of its own for each run'
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        path.write_text(str(os.getpid()))

    def release(self) -> None:
        """Release the folder; may be called again."""
        self._lock.release(force=True)
