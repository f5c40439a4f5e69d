"""TorchRL 0.14: a storage and its buffers refer to each other, and a memory-mapped TensorDict to views of itself, so
that memory and disk of an unused buffer wait for Python's garbage collector.
"""

import shutil
import weakref
from typing import Any


def attach_weakly(buffer: Any) -> None:
    """Let the storage of a TorchRL buffer refer weakly to it."""
    buffer.storage._attached_entities[:] = [weakref.proxy(buffer)]


def release(storage: Any, folder: str | None) -> None:
    """Remove the folder of a storage in files, which cannot be used any more; one in memory goes by itself."""
    if folder is not None:
        if storage._storage is not None:
            storage._storage.unlock_()
        shutil.rmtree(folder, ignore_errors=True)
