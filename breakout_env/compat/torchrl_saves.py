"""The folder that a TorchRL buffer is written to, checked before it is read.

Upstream behaviour worked around (TorchRL 0.14): a buffer writes the batches that it has prefetched as a pickle, and
unpickles the one that it finds in any folder it loads, which may run any program. A file that is too short is filled
with zeros.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..utils.atomic_file import DamagedFile, flush_path

MANIFEST = 'breakout_replay.json'
_PREFETCHED = 'prefetch.pkl'


def write_buffer(target: Path, buffer: Any | None, description: Mapping[str, Any]) -> None:
    """Write a description and a TorchRL buffer that prefetches nothing, None for an empty one, to a folder. It is
    complete when it replaces the one of an earlier call.

    Raises:
        ValueError: If something with that name exists that is not such a folder.
    """
    if target.exists() and not (target / MANIFEST).is_file():
        raise ValueError(f'{target} exists and is not a folder of a replay buffer; expected another name')
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'{target.name}.', dir=target.parent) as beside:
        folder = Path(beside, 'new')
        folder.mkdir()
        if buffer is not None:
            buffer.dumps(folder)
            (folder / _PREFETCHED).unlink(missing_ok=True)
        files = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob('*') if path.is_file()}
        (folder / MANIFEST).write_text(json.dumps(dict(description, files=files)))
        for path in (*folder.rglob('*'), folder):
            flush_path(path)
        old = Path(beside, 'old')
        try:
            if target.exists():
                target.rename(old)
            folder.rename(target)
        except BaseException:  # the folder beside is removed with all that is in it
            if old.exists() and not target.exists():
                old.rename(target)
            raise


def read_description(folder: Path) -> dict[str, Any]:
    """Check a folder before TorchRL loads it, and read the description that was written with it.

    Raises:
        DamagedFile: If there is none, or a file is missing or has another size.
        ValueError: If there is anything but numbers and JSON.
    """
    try:
        description = json.loads((folder / MANIFEST).read_text())
        files = dict(description['files'])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f'{folder} cannot be read ({error!r}); expected a folder that save_data wrote') from error
    for path in sorted(folder.rglob('*')):
        is_data = path.is_dir() or path.suffix in ('.json', '.memmap')
        if path.is_symlink() or not is_data:
            raise ValueError(
                f'{folder} holds {path.relative_to(folder)}, which save_data did not write and loading may run; '
                'expected numbers and JSON only'
            )
    for name, size in files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 'no'
        if found != size:
            raise DamagedFile(
                f'{folder} is damaged: {name} has {found} bytes; expected the {size} that save_data wrote'
            )
    return description
