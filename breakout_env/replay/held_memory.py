"""What the replay buffers of this process hold: each notes itself here, and whoever watches memory asks."""

import os
import weakref
from typing import Any, NamedTuple

_holders: 'weakref.WeakValueDictionary[int, Any]' = weakref.WeakValueDictionary()
# A child has copies of its parent's buffers, whose locks may be those of threads that the child does not have.
os.register_at_fork(after_in_child=_holders.clear)


class Held(NamedTuple):
    """Bytes that buffers hold on purpose."""

    memory_bytes: int
    gpu_bytes: int


def note_holder(holder: Any) -> None:
    """
    Overview:
        Count a buffer among those that hold memory; forgotten when it is gone.
    Arguments:
        - holder (:obj:`Any`): Has the property ``held``, a ``Held``.
    """
    _holders[id(holder)] = holder


def held() -> Held:
    """What all buffers of this process hold now."""
    holders = [reference() for reference in _holders.valuerefs()]  # other threads may make buffers meanwhile
    parts = [holder.held for holder in holders if holder is not None]
    return Held(sum(part.memory_bytes for part in parts), sum(part.gpu_bytes for part in parts))
