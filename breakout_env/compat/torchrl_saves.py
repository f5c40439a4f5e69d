"""
The folder that a TorchRL buffer is written to, checked before it is read.

Upstream behaviour worked around (TorchRL 0.14): a buffer writes the batches that it has prefetched as a pickle, and
unpickles the one that it finds in any folder it loads, which may run any program. A file that is too short is filled
with zeros.
"""

import pickle
from pathlib import Path
from typing import Any, Dict, Mapping

from ..utils.atomic_file import DamagedFile

_PREFETCHED = 'prefetch.pkl'
_NOTHING_PREFETCHED = pickle.dumps(dict(version=1, capacity=0, queue=()))  # left in saves of earlier versions


def write_buffer(buffer: Any, folder: Path) -> Dict[str, int]:
    """Write a TorchRL buffer that prefetches nothing to an empty folder; returns the bytes of each file."""
    buffer.dumps(folder)
    (folder / _PREFETCHED).unlink(missing_ok=True)
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob('*') if path.is_file()}


def check_files(folder: Path, sizes: Mapping[str, int]) -> None:
    """
    Overview:
        Check a folder before TorchRL loads it.
    Arguments:
        - sizes (:obj:`Mapping[str, int]`): The bytes of each file, as ``write_buffer`` returned them.
    Raises:
        - DamagedFile: If a file is missing or has another size.
        - ValueError: If there is anything but numbers and JSON.
    """
    for path in sorted(folder.rglob('*')):
        is_data = path.is_dir() or path.suffix in ('.json', '.memmap') or path.name == 'weights.pt'
        is_empty = path.name == _PREFETCHED and path.read_bytes() == _NOTHING_PREFETCHED
        if path.is_symlink() or not (is_data or is_empty):
            raise ValueError(
                f'{folder} holds {path.relative_to(folder)}, which save_data did not write and loading may run; '
                'expected numbers and JSON only'
            )
    for name, size in sizes.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 'no'
        if found != size:
            raise DamagedFile(
                f'{folder} is damaged: {name} has {found} bytes; expected the {size} that save_data wrote'
            )
