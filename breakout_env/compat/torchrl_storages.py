"""TorchRL's storages, released with their last user.

Upstream behaviour worked around (TorchRL 0.14): a storage keeps a list of the buffers attached to it, and each buffer
keeps its storage. The memory of an unused buffer waits for Python's cyclic garbage collector, which does not know how
large tensors are. A memory-mapped TensorDict is locked, and a locked one caches views that refer back to it: until a
garbage collection, disk and memory of removed files stay occupied, too.
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
