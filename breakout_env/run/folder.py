"""Folders of runs: make, lock, find one to resume."""

import datetime
import fcntl
import logging
import os
import re
import socket
import time
from pathlib import Path

from ..utils.options import ConfigError, PathText, validate
from .paths import LOCK, SAVE_LIST, saves_in

_log = logging.getLogger(__name__)
# Descriptors of the lock files that this process holds, by their paths.
_locked: dict[Path, int] = {}


def new_folder(exp_name: str) -> str:
    """Make the folder of a new run. As DI-engine does it, the time is added to a name that is taken; but runs that are
    started side by side do not get the same.
    """
    folder = exp_name
    while True:
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            if folder != exp_name:
                time.sleep(0.2)
            folder = f'{exp_name}_{datetime.datetime.now():%y%m%d_%H%M%S}'


def lock_run_folder(folder: str | Path) -> None:
    """Lock a folder for the runs of this process: another one would overwrite their checkpoints and saves. The
    operating system releases the lock with the process, in whatever way that ends. Forked workers do not hold it: they
    close their copy of the descriptor. On a file system without locks a warning says so.

    Raises:
        ValueError: If another process holds the lock; the error names the process.
        OSError: If the lock's file cannot be made.
    """
    path = Path(folder, LOCK).resolve()
    if path in _locked:  # as in a notebook whose first run failed
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # not truncated before it is locked: it holds the id of the process that has locked it
    descriptor = _locked[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.read(descriptor, 100).decode(errors='replace').strip() or 'another one'
        unlock_run_folder(folder)
        raise ValueError(
            f'process {process} trains in {folder} already; expected to resume a run that has stopped, or another '
            'exp_name for each run'
        ) from None
    except OSError as error:
        _log.warning('%s has no locks (%s): make sure that no other process trains there', folder, error.strerror)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f'{os.getpid()} on {socket.gethostname()}'.encode())


def unlock_run_folder(folder: str | Path) -> None:
    """Let other processes train in a folder; may be called again."""
    descriptor = _locked.pop(Path(folder, LOCK).resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def _close_locks() -> None:
    """In a forked process: a lock of ``flock`` lasts until the last copy of its descriptor is closed."""
    for descriptor in _locked.values():
        os.close(descriptor)
    _locked.clear()


os.register_at_fork(after_in_child=_close_locks)


def folder_below_here(name: object) -> str:
    """The name of a run's folder, as a path below the current folder: DI-engine takes it as that, and no run may write
    elsewhere. Links are followed: `experiments` is often one, to a larger disk.

    Raises:
        ConfigError: If the path is another one, or not printable, as DI-engine writes it into files in UTF-8.
    """
    try:
        relative = os.path.relpath(validate('option', 'exp_name', name, PathText) or os.curdir)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if relative.split(os.sep)[0] in (os.curdir, os.pardir):
        raise ConfigError(f'exp_name is {name!r}; expected a folder below the current one')
    return relative


def run_to_resume(resume: str | None, exp_name: str) -> str | None:
    """The experiment folder that ``--resume`` asks for: its value, ``''`` for the last saved run of this name; None if
    it was not given.

    Raises:
        ConfigError: If there is no saved run.
        DamagedFile: If a list of saves is damaged.
    """
    if resume is None:
        return None
    if resume:
        if not saves_in(resume):
            raise ConfigError(f'--resume {resume}: no saved run is there; expected {resume}/{SAVE_LIST}')
        return resume
    path = Path(exp_name)
    # the folder of this name, and folders beside it whose names add a time; another run's name may begin alike
    pattern = re.compile(re.escape(path.name) + r'(_\d{6}_\d{6})?')
    runs = [folder for folder in path.parent.glob('*') if pattern.fullmatch(folder.name) and saves_in(folder)]
    if not runs:
        raise ConfigError(f'--resume found no saved run in {exp_name}; expected {exp_name}/{SAVE_LIST}')
    # the time in the list: a copy of a folder has other file times
    return str(max(runs, key=lambda run: saves_in(run)[0]['time']))
