"""
TorchRL's storages, released with their last user.

Upstream behaviour worked around (TorchRL 0.14): a storage keeps a list of the buffers attached to it, and each buffer
keeps its storage. The memory of an unused buffer waits for Python's cyclic garbage collector, which does not know how
large tensors are. A memory-mapped TensorDict is locked, and a locked one caches views that refer back to it: until a
garbage collection, disk and memory of removed files stay occupied, too.

Only the replay buffer imports this file, when it is made: it needs TorchRL.
"""

import shutil
import weakref
from typing import Any, Optional

from torchrl.data import LazyMemmapStorage, LazyTensorStorage


class WeaklyAttached(object):
    """A mixin that makes a TorchRL storage refer weakly to its buffers."""

    def attach(self, buffer: Any) -> None:
        """Attach a buffer, which the storage does not keep alive."""
        super().attach(weakref.proxy(buffer))  # type: ignore[misc]  # of the storage that this is mixed into


class TensorStorage(WeaklyAttached, LazyTensorStorage):
    """TorchRL's storage in memory."""

    def release(self) -> None:
        """Nothing to do: the memory goes with the last reference."""


class MemmapStorage(WeaklyAttached, LazyMemmapStorage):
    """TorchRL's storage in files."""

    def release(self) -> None:
        """Remove the files. The storage cannot be used any more."""
        if self._storage is not None:
            self._storage.unlock_()
        shutil.rmtree(self.scratch_dir, ignore_errors=True)


def make_storage(size: int, folder: Optional[str]) -> Any:
    """A storage for so many transitions, in files if there is a folder for them."""
    return TensorStorage(size) if folder is None else MemmapStorage(size, scratch_dir=folder)
