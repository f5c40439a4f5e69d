"""
A replay memory in a file: numpy's own ``.npz``, arrays only.

Nothing in it is pickled, so nothing in it is run; the zip container has a CRC-32 for each array, so a damaged byte is
found when it is read. A file is written beside its place, flushed to the disk, and then moved there: a reader sees the
old file or the new one, whenever the process is killed. The file before it is kept as ``<name>.previous``.
"""

import contextlib
import glob
import math
import os
import threading
import zipfile
from typing import Callable, Iterable, List, Mapping, Tuple

import numpy as np
import psutil

from ...utils.atomic_file import DamagedFile, flush_folder

# The file before the last and the new one are moved by one thread at a time.
_moving = threading.Lock()

Arrays = Iterable[Tuple[str, np.ndarray]]


def previous(path: str) -> str:
    """Where the save before the last is."""
    return f'{path}.previous'


def write(path: str, arrays: Arrays) -> int:
    """
    Overview:
        Write arrays to a file, whole or not at all.
    Arguments:
        - path (:obj:`str`): Where to; its folder is made.
        - arrays (:obj:`Arrays`): Names and arrays, one at a time, so that they never have to be in memory together.
    Returns:
        - nbytes (:obj:`int`): Size of the file.
    Raises:
        - OSError: If it can not be written, as on a full disk; what was there before is there still.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # two threads may save to the same place: one in the background, one that was told to
    unfinished = f'{path}.{os.getpid()}-{threading.get_ident()}.unfinished'
    _remove_leftovers(path)
    try:
        with open(unfinished, 'wb') as file:
            with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED, allowZip64=True) as archive:
                for name, array in arrays:
                    with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                        np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
            nbytes = file.tell()
        with _moving:
            if os.path.exists(path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(previous(path))
                with contextlib.suppress(OSError):  # a file system without hard links keeps no previous one
                    os.link(path, previous(path))
            os.replace(unfinished, path)
            flush_folder(os.path.dirname(path))
        return nbytes
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _remove_leftovers(path: str) -> None:
    """What saves to this path left behind whose processes were killed."""
    for leftover in glob.glob(f'{glob.escape(path)}.*-*.unfinished'):
        process = leftover[len(path) + 1 :].split('-')[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            with contextlib.suppress(OSError):  # someone else was faster
                os.unlink(leftover)


class SavedArrays(Mapping):
    """
    Overview:
        The arrays of a file, each read when it is asked for.
    Raises:
        - DamagedFile: If the file, or the array asked for, can not be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (FileNotFoundError, MemoryError):
            raise
        except Exception as error:  # depending on where it is damaged, zipfile raises nearly anything
            raise DamagedFile(f'{path} is no saved replay buffer, or it is cut off: {error}') from None
        self._names = [name[:-4] for name in self._archive.namelist() if name.endswith('.npy')]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        try:
            self._check_size(f'{name}.npy')
            with self._archive.open(f'{name}.npy') as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
                # the checksum is compared at the end of the data, which an array of no elements does not reach
                if member.read(1):
                    raise ValueError('more data than the array has')
        except MemoryError:
            raise
        except Exception as error:  # depending on where it is damaged, zipfile and numpy raise nearly anything
            raise DamagedFile(f'{self._path} is damaged ({name}: {error})') from None
        return array

    def _check_size(self, name: str) -> None:
        """An array that claims to be larger than what is there of it is refused before there is memory for it."""
        info = self._archive.getinfo(name)
        with self._archive.open(name) as member:
            version = np.lib.format.read_magic(member)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(member)
        if math.prod(shape) * dtype.itemsize > info.file_size or info.compress_type != zipfile.ZIP_STORED:
            raise ValueError('it claims to be larger than it is, or is compressed')

    def __iter__(self) -> Iterable[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def close(self) -> None:
        self._archive.close()


def read_newest(path: str, use: Callable[[SavedArrays], None], note: Callable[[str], None]) -> str:
    """
    Overview:
        Read a file, or, where it is damaged or gone, the one before it.
    Arguments:
        - path (:obj:`str`): The file.
        - use (:obj:`Callable`): Does the reading; raises ``DamagedFile`` for one that it can not use.
        - note (:obj:`Callable`): Told in a sentence if the file before it was taken.
    Returns:
        - path (:obj:`str`): The file that was read.
    Raises:
        - FileNotFoundError: If there is neither.
        - DamagedFile: If neither can be used; the message is about the newer.
    """
    failures: List[Exception] = []
    for candidate in (path, previous(path)):
        try:
            with contextlib.closing(SavedArrays(candidate)) as arrays:
                use(arrays)
        except (DamagedFile, FileNotFoundError) as error:
            failures.append(error)
            continue
        if failures:
            note(f'{failures[0]}. The save before it, {candidate}, was taken instead')
        return candidate
    if isinstance(failures[0], FileNotFoundError) and not isinstance(failures[1], FileNotFoundError):
        raise failures[1]
    if isinstance(failures[0], FileNotFoundError):
        raise FileNotFoundError(f'there is no saved replay buffer at {path}')
    raise failures[0]
