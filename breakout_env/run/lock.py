"""One folder, one process: two that train in one would overwrite each other's checkpoints and saves."""

import errno
import fcntl
import os
from pathlib import Path

PLACE = Path('log') / 'lock'


class RunLock(object):
    """
    Overview:
        Holds an experiment's folder. The operating system lets go of it with the process, however that ends; forked \
        workers do not hold it. On file systems without locks it holds nothing.
    Interfaces:
        ``release``.
    """

    def __init__(self, folder: Path) -> None:
        """
        Arguments:
            - folder (:obj:`Path`): The experiment's folder.
        Raises:
            - ValueError: If another process holds it.
        """
        path = Path(folder) / PLACE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, 'a+')
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):  # there are no locks here
                return
            self._file.seek(0)
            process = self._file.read().strip() or 'another one'
            self._file.close()
            raise ValueError(
                f'process {process} trains in {folder} already; expected to go on with a run that was stopped, or an '
                'exp_name of its own for each run'
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """
        Overview:
            Let go; may be called again.
        """
        self._file.close()
