"""
A replay memory in a file: numpy's own ``.npz``, arrays only.

Nothing in it is pickled, so loading it runs no code. The zip container has a CRC-32 for each array, which finds damaged
bytes.
"""

import contextlib
import math
import os
import zipfile
from typing import Iterable, Iterator, Mapping, Tuple

import numpy as np

from ...utils.atomic_file import DamagedFile, atomic_write


def write(path: str, arrays: Iterable[Tuple[str, np.ndarray]]) -> None:
    """
    Overview:
        Write arrays to a file atomically; the file it replaces stays as ``<path>.previous``. The arrays are asked for \
        one at a time and need not be in memory together.
    Raises:
        - OSError: If it cannot be written, as on a full disk; the old file is still there.
    """
    with atomic_write(path, keep_previous=True) as file:
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays:
                with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


class SavedArrays(Mapping):
    """The arrays of a file, each read when it is asked for; ``DamagedFile`` if the file or the array cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.exists(path):
            raise FileNotFoundError(f'there is no saved replay buffer at {path}')
        with self._damage_named('it is no saved replay buffer, or cut off'):
            self._archive = zipfile.ZipFile(path)
        self._names = [name[:-4] for name in self._archive.namelist() if name.endswith('.npy')]
        self.close = self._archive.close

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        info = self._archive.getinfo(f'{name}.npy')
        with self._damage_named(name):
            with self._archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = head(member)
            # before numpy allocates memory for it
            if math.prod(shape) * dtype.itemsize > info.file_size or info.compress_type != zipfile.ZIP_STORED:
                raise ValueError('it claims to be larger than it is, or is compressed')
            with self._archive.open(info) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
                # the checksum is compared at the end of the data, which an array of no elements does not reach
                if member.read(1):
                    raise ValueError('more data than the array has')
        return array

    @contextlib.contextmanager
    def _damage_named(self, part: str) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # depending on the damage, zipfile and numpy raise nearly anything
            raise DamagedFile(f'{self._path} is damaged ({part}: {error})') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
