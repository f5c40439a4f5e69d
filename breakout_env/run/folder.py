"""Folders of runs: make, lock, find one to resume."""

import contextlib
import datetime
import fcntl
import logging
import os
import re
import socket
import threading
import time
from pathlib import Path

from ..utils.options import ConfigError, PathText, validate
from .paths import LOCK, SAVE_LIST, saves_in

_log = logging.getLogger(__name__)
# Descriptors of the lock files that this process holds, by their paths; one thread at a time changes them.
_locked: dict[Path, int] = {}
_locking = threading.Lock()


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
    with _locking:
        if path in _locked:  # as in a notebook whose first run failed
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # not truncated before it is locked: it holds the id of the process that has locked it
        descriptor = _locked[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = os.read(descriptor, 100).decode(errors='replace').strip() or 'another one'
            os.close(_locked.pop(path))
            raise ValueError(
                f'process {process} trains in {folder} already; expected to resume a run that has stopped, or another '
                'exp_name for each run'
            ) from None
        except OSError as error:  # file systems that have no locks do not agree on a word for it
            reason = os.strerror(error.errno or 0)
            _log.warning(
                'the file system of %s has no locks (%s): make sure that no other process trains there', folder, reason
            )
        with contextlib.suppress(OSError):  # a full disk: the lock counts, not what the file says
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f'{os.getpid()} on {socket.gethostname()}'.encode())


def unlock_run_folder(folder: str | Path) -> None:
    """Let other processes train in a folder; may be called again."""
    with _locking:
        descriptor = _locked.pop(Path(folder, LOCK).resolve(), None)
        if descriptor is not None:
            os.close(descriptor)


def _close_locks() -> None:
    """In a forked process: a lock of ``flock`` lasts until the last copy of its descriptor is closed."""
    global _locking
    _locking = threading.Lock()  # another thread of the parent may have it
    for descriptor in _locked.values():
        os.close(descriptor)
    _locked.clear()


os.register_at_fork(after_in_child=_close_locks)


def folder_below_here(name: object, option: str = 'exp_name') -> str:
    """The name of a run's folder, as a path below the current folder. DI-engine takes it as that, and no run may write
    elsewhere. Links are followed: `experiments` is often one, to a larger disk.

    Raises:
        ConfigError: If the path is another one.
    """
    name = _checked_name(name, option)
    relative = _below_here(name or os.curdir)
    if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
        raise ConfigError(f'{option} is {name!r}; expected a folder below the current one')
    for folder in (Path(relative), *Path(relative).parents):
        if os.path.lexists(folder) and not folder.is_dir():
            raise ConfigError(f'{option} is {name!r}, and {folder} is not a folder; expected another name')
    return relative


def _checked_name(name: object, option: str) -> str:
    """A folder's name with ~ expanded; an error unless it is printable, as DI-engine writes it into files in UTF-8."""
    try:
        return validate('option', option, name, PathText)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _below_here(path: str) -> str:
    """A path relative to the current folder, which an absolute path may reach by a link (a shell's ``$PWD`` does)."""
    absolute = Path(os.path.abspath(path))
    for folder in absolute.parents:
        if folder.exists() and folder.samefile(os.curdir):
            return str(absolute.relative_to(folder))
    return os.path.relpath(path)


def run_to_resume(resume: str | None, exp_name: str) -> str | None:
    """The experiment folder that ``--resume`` asks for: its value, ``''`` for the last saved run of this name; None if
    it was not given.

    Raises:
        ConfigError: If there is no saved run, or its name is not printable.
        DamagedFile: If a list of saves is damaged.
    """
    if resume is None:
        return None
    if resume:
        resume = _checked_name(resume, '--resume')
        if not saves_in(resume):
            raise ConfigError(f'--resume {resume}: no saved run is there; expected {resume}/{SAVE_LIST}')
        return _below_here(resume)
    path = Path(exp_name)
    # the folder of this name, and folders beside it whose names add a time; another run's name may begin alike
    pattern = re.compile(re.escape(path.name) + r'(_\d{6}_\d{6})?')
    runs = [folder for folder in path.parent.glob('*') if pattern.fullmatch(folder.name) and saves_in(folder)]
    if not runs:
        raise ConfigError(f'--resume found no saved run in {exp_name}; expected {exp_name}/{SAVE_LIST}')
    # the time in the list: a copy of a folder has other file times
    return str(max(runs, key=lambda run: saves_in(run)[0]['time']))
