"""Write a file whole or not at all: beside its place, flushed to the disk, then moved there."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any


class DamagedFile(ValueError):
    """A file that is not what it should be; the message names it and says what is wrong."""


def write_bytes(path: Path, content: Any) -> None:
    """
    Overview:
        Write a small file, whole or not at all.
    Arguments:
        - path (:obj:`Path`): Where to; its folder is made.
        - content (:obj:`Any`): Bytes, or what gives them as a buffer.
    Raises:
        - OSError: If it can not be written; what was there before is there still.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f'{path.name}.{os.getpid()}-{threading.get_ident()}.unfinished')
    try:
        with open(unfinished, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        flush_folder(str(path.parent))
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def flush_folder(folder: str) -> None:
    """Flush a folder's entries to the disk, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
