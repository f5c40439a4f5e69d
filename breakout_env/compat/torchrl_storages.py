"""
TorchRL's storages, released with their last user.

Upstream behaviour worked around (TorchRL 0.14): a storage keeps a list of the buffers attached to it, and each buffer
keeps its storage. The memory of an unused buffer waits for Python's cyclic garbage collector, which does not know how
large tensors are. A memory-mapped TensorDict is locked, and a locked one caches views that refer back to it: unless it
is unlocked, disk and memory of removed files stay occupied until a garbage collection, too. Only the replay buffer imports this file: it needs TorchRL.
"""

import weakref
from typing import Any

from torchrl.data import LazyMemmapStorage, LazyTensorStorage


class WeaklyAttached(object):
    """A mixin that makes a TorchRL storage refer weakly to its buffers."""

    def attach(self, buffer: Any) -> None:
        """Attach a buffer, which the storage does not keep alive."""
        super().attach(weakref.proxy(buffer))  # type: ignore[misc]  # of the storage that this is mixed into


class TensorStorage(WeaklyAttached, LazyTensorStorage):
    """TorchRL's storage in memory."""


class MemmapStorage(WeaklyAttached, LazyMemmapStorage):
    """TorchRL's storage in files."""

    def unlock(self) -> None:
        """To be called before the files are removed."""
        if self._storage is not None:
            self._storage.unlock_()
