"""Flat memory that grows in place: anonymous, or in a file that disappears with the process."""

import contextlib
import mmap
import os
import tempfile
from typing import IO

_STEP_BYTES = 16 * 1024 * 1024


class GrowableMemory:
    """A byte range that grows without being copied (``mremap``), so that it never needs twice the memory. Only pages
    that were written to are resident.

    With a folder, it is a file without a name in that folder, which the system removes with the process, however that
    ends. Room on the disk is reserved before it is used: a full disk is an ``OSError`` here, where a plain sparse
    mapping would end the process with SIGBUS.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.nbytes = mmap.PAGESIZE
        if folder is None:
            self._map = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(OSError):  # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)
        else:
            os.makedirs(folder, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)
            self._allocate(0, self.nbytes)
            self._map = mmap.mmap(self._file.fileno(), self.nbytes, flags=mmap.MAP_SHARED)
            self._map.madvise(mmap.MADV_RANDOM)  # frames are read in any order; reading ahead would be wasted
        self.view = memoryview(self._map)

    def reserve(self, nbytes: int) -> None:
        """Make it at least this large. This replaces ``view``: nobody may keep the old one. After an OSError, as on a
        full disk, nothing has changed.
        """
        if nbytes <= self.nbytes:
            return
        # by halves of its size, so that the number of steps stays small, but never much more than is needed
        step = max(_STEP_BYTES, self.nbytes // 2 if self._file is None else 0)
        nbytes = -(-max(nbytes, self.nbytes + step) // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._file is not None:
            self._allocate(self.nbytes, nbytes)
        try:
            self.view.release()
            self._map.resize(nbytes)
            self.nbytes = nbytes
        finally:
            self.view = memoryview(self._map)

    def release(self, start: int, nbytes: int) -> None:
        """Return the memory of this part, whole pages only, to the system. It reads as zeros afterwards."""
        if self._file is None:
            self._map.madvise(mmap.MADV_DONTNEED, start, nbytes)

    def close(self) -> None:
        self.view.release()
        self._map.close()
        if self._file is not None:
            self._file.close()

    def _allocate(self, start: int, nbytes: int) -> None:
        # only what is new: where the file system cannot, the C library reads and writes each block
        assert self._file is not None
        try:
            os.posix_fallocate(self._file.fileno(), start, nbytes - start)
        except OSError as error:
            raise OSError(
                error.errno,
                f'the replay buffer cannot grow to {nbytes / 1e9:.2f} GB in {self._folder}: '
                f'{os.strerror(error.errno or 0)}. '
                "Make room there, choose another `folder`, a smaller `replay_buffer_size`, or storage='compressed'",
            ) from None
