"""Choose the transitions of a batch: uniformly, or in proportion to their priorities."""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .batch import Extras
from .memory import ReplayMemory
from .options import ReplayOptions
from .priorities import Priorities
from .snapshot import Restored

log = logging.getLogger(__name__)
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'IS', 'priority'])


class Chosen(NamedTuple):
    """The slots of a batch, and what is added to each of its transitions."""

    slots: np.ndarray
    extras: Extras


class TransitionSampler:
    """Samples uniformly until priorities arrive, as DI-engine's advanced buffer does, and from then on by
    ``Priorities``.

    The caller of its methods has the memory's lock.

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

    def sample(self, size: int) -> Chosen | None:
        """Choose the transitions of a batch; None if there are too few."""
        memory = self._memory
        if memory.count < size:
            log.info('%d transitions are to be sampled, but there are %d; none are', size, memory.count)
            return None
        if self._priorities is None:
            slots = memory.nth(memory.random.choice(memory.count, size, replace=False, shuffle=False))
            importance = priorities = np.ones(size)
        else:
            slots, priorities, importance = self._priorities.sample(memory.random.random(size))
        ids = memory.ids(slots)
        return Chosen(slots, dict(replay_unique_id=ids, replay_buffer_idx=slots, IS=importance, priority=priorities))

    def update(self, info: Mapping) -> None:
        """Set priorities, passing over transitions that are gone. Raises ValueError if one is not a finite number."""
        priorities = self._priorities or self._start_priorities()
        priorities.update(info, self._memory.ids())
        self._priorities = priorities

    def clear(self) -> None:
        """Forget everything."""
        if self._priorities is not None:
            self._priorities.clear()

    def state(self) -> tuple[dict[str, float], np.ndarray | None]:
        """What a save keeps: numbers, and the weight of each slot."""
        if self._priorities is None:
            return {}, None
        return self._priorities.numbers(), self._priorities.stored_weights(self._memory.count)

    def restored(self, restored: Restored) -> None:
        """Continue from what a save kept, with the memory that was restored from it."""
        self._priorities = None
        if restored.priorities is not None:
            self._priorities = Priorities(self._memory.capacity, self._options)
            self._priorities.restore(restored.more, restored.priorities)


def _as_pushed(transition: Mapping) -> Mapping:
    if _ADDED.isdisjoint(transition):
        return transition
    return {key: value for key, value in transition.items() if key not in _ADDED}
