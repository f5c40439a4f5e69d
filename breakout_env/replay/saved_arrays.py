"""Named arrays in a file, numpy's ``.npz``: the saves of all replay buffers.

Nothing in it is pickled, so loading it runs no code. The zip container has a CRC-32 for each array, which finds damaged
bytes. The array ``meta`` is JSON that describes the others.
"""

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..utils.atomic_file import DamagedFile, atomic_write
from .size_check import DoesNotFit

VERSION = 1
Arrays = Iterable[tuple[str, np.ndarray]]


def describe(kind: str, meta: Mapping[str, object]) -> tuple[str, np.ndarray]:
    """The array ``meta`` of a save of some kind. Raises ValueError if a value is not JSON."""
    try:
        # numbers of numpy and torch as Python's
        text = json.dumps(dict(meta, format=kind, version=VERSION), default=lambda value: value.item())
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f'a value cannot be saved ({error}); expected numbers and strings') from None
    return 'meta', np.frombuffer(text.encode(), np.uint8)


def read_description(kind: str, arrays: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """What ``describe`` was given. Raises DamagedFile if it is of another kind or version."""
    meta = json.loads(bytes(arrays['meta'])) if 'meta' in arrays else {}
    if (meta.get('format'), meta.get('version')) != (kind, VERSION):
        raise DamagedFile(f'{name} is not a saved {kind} of version {VERSION}')
    return meta


def write_arrays(path: str, arrays: Arrays) -> None:
    """Write arrays, made one at a time, to a file, completely or not at all.

    Raises:
        OSError: If it cannot be written, as on a full disk; the old file is still there.
    """
    with atomic_write(path) as file:
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays:
                with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def read_arrays(path: str) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a file, each read when it is asked for.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFile: If it cannot be read, or anything fails in the block.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f'there is no saved replay buffer at {path}')
    with damage_named(path):
        if not zipfile.is_zipfile(path):
            raise DamagedFile(f'{path} is not a saved replay buffer, or is cut off')
        with np.load(path, allow_pickle=False) as arrays:
            if (damaged := arrays.zip.testzip()) is not None:
                raise DamagedFile(f'{path} is damaged (the checksum of {damaged})')
            yield arrays


@contextmanager
def damage_named(name: str) -> Iterator[None]:
    """Raise ``DamagedFile`` for anything that fails in the block, except for ``DoesNotFit``."""
    try:
        yield
    except (DamagedFile, DoesNotFit):
        raise
    except Exception as error:  # depending on the damage, zipfile, numpy, zstd and torch raise nearly anything
        raise DamagedFile(f'{name} is damaged ({error})') from None
