"""Write a file atomically: under another name, flushed to the disk, then moved to its place."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# Some shared folders of virtual machines, network and FUSE file systems cannot flush; they answer with one of these.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR)


class DamagedFile(ValueError):
    """A file that is not what it should be; the message names it and says what is wrong."""


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block ends, complete and on the disk; its folder is made. A reader sees the
    old content or the new, whenever this process is killed or the power fails. A pipe or a device is written to, and a
    link stays one.

    Raises:
        OSError: If it cannot be written, as on a full disk. The error names the file, which keeps its old content.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, 'wb') as file:
            yield file
        return
    path = os.path.realpath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    unfinished = f'{path}.{os.getpid()}.unfinished'
    try:
        with open(unfinished, 'wb') as file:
            yield file
            file.flush()
            flush(file.fileno())
        os.replace(unfinished, path)
        flush_path(os.path.dirname(path))
    except OSError as error:  # a failed write does not name its file
        error.filename = error.filename or path
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def write_bytes(path: str | Path, content: bytes | memoryview) -> None:
    """Write a small file by ``atomic_write``."""
    with atomic_write(path) as file:
        file.write(content)


def flush(descriptor: int) -> None:
    """Flush a file or a folder to the disk, if its file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise


def flush_path(path: str | Path) -> None:
    """Flush a file, or a folder's entries, to the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # some file systems open no folder, and some folders may be written to but not read
        return
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)
