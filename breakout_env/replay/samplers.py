"""Choose the transitions of a batch: uniformly, or in proportion to their priorities."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from .batch import FrameBatch
from .memory import ReplayMemory
from .options import ReplayOptions
from .priorities import Priorities
from .snapshot import Snapshot, restore

log = logging.getLogger(__name__)
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'IS', 'priority'])


class TransitionSampler:
    """A replay memory with priorities. It samples uniformly until priorities arrive, as DI-engine's advanced buffer
    does, and from then on by ``Priorities``. Threads may share it.

    Arguments:
        memory: What is sampled from.
        options: The exponents.
    """

    def __init__(self, memory: ReplayMemory, options: ReplayOptions) -> None:
        self._memory, self._options = memory, options
        self._priorities: Priorities | None = None

    def push(self, transitions: Sequence[Mapping]) -> None:
        """Store transitions in the memory, with their priorities. After an error none of them is stored."""
        given = [transition.get('priority') for transition in transitions]
        with self._memory.lock:
            # checked first, and set last
            prioritised = self._priorities
            if prioritised is None and any(priority is not None for priority in given):
                prioritised = self._start_priorities()
            weights = None if prioritised is None else prioritised.weights(given)
            slots = self._memory.push([_as_pushed(transition) for transition in transitions])
            if prioritised is not None and weights is not None:
                prioritised.set(np.array(slots), weights)
                self._priorities = prioritised

    def _start_priorities(self) -> Priorities:
        """Priorities in which the transitions that are there have the weight 1."""
        priorities, count = Priorities(self._memory.capacity, self._options), self._memory.count
        priorities.set(np.arange(count), np.ones(count))
        return priorities

    def sample(self, size: int, pinned: bool) -> FrameBatch | list[dict] | None:
        """A batch, in pinned memory or not; None if there are too few transitions."""
        memory = self._memory
        with memory.lock:
            if memory.count < size:
                log.info('%d transitions are to be sampled, but there are %d; none are', size, memory.count)
                return None
            if self._priorities is None:
                slots = memory.nth(memory.random.choice(memory.count, size, replace=False, shuffle=False))
                importance = priorities = np.ones(size)
            else:
                slots, priorities, importance = self._priorities.sample(memory.random.random(size))
            added = dict(replay_unique_id=memory.ids(slots), replay_buffer_idx=slots)
            return memory.fetch(slots, dict(added, IS=importance, priority=priorities), pinned)

    def update(self, info: Mapping) -> None:
        """Set priorities, passing over transitions that are gone. Raises ValueError if one is not a finite number."""
        with self._memory.lock:
            priorities = self._priorities or self._start_priorities()
            priorities.update(info, self._memory.ids())
            self._priorities = priorities

    def clear(self) -> None:
        """Forget everything."""
        with self._memory.lock:
            self._memory.clear()
            if self._priorities is not None:
                self._priorities.clear()

    def snapshot(self) -> Snapshot:
        """What a save keeps."""
        with self._memory.lock:
            if self._priorities is None:
                return Snapshot(self._memory, {})
            return Snapshot(
                self._memory, self._priorities.numbers(), self._priorities.stored_weights(self._memory.count)
            )

    def restore(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        """Continue from what a save kept."""
        with self._memory.lock:
            restored, self._priorities = restore(self._memory, arrays, name), None
            if restored.priorities is not None:
                self._priorities = Priorities(self._memory.capacity, self._options)
                self._priorities.restore(restored.more, restored.priorities)


def _as_pushed(transition: Mapping) -> Mapping:
    if _ADDED.isdisjoint(transition):
        return transition
    return {key: value for key, value in transition.items() if key not in _ADDED}
