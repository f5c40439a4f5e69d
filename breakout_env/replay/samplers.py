"""Which transitions a batch gets: any, or those of high priority more often."""

import logging
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from .batch import Extras
from .memory import ReplayMemory
from .options import ReplayOptions
from .snapshot import Restored
from .sum_tree import SumTree

log = logging.getLogger(__name__)
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'IS', 'priority'])
# Added to a priority, so that none is 0 (Schaul et al. 2016 and DI-engine's advanced buffer do so).
_EPSILON = 1e-5
# Importance weights are float32: beyond it, one transition would be all that is ever sampled.
_LARGEST_PRIORITY = float(np.finfo(np.float32).max)


class TransitionSampler(object):
    """
    Overview:
        Samples uniformly until priorities arrive, as DI-engine's advanced buffer does; from then on in proportion to \
        the priority to the power of ``alpha``, with importance-sampling weights to the power of ``beta``, which rises \
        to 1 (Schaul et al. 2016). A new transition has the highest priority so far.

        The caller of its methods has the memory's lock.
    Arguments:
        - memory (:obj:`ReplayMemory`): What is sampled from.
        - options (:obj:`ReplayOptions`): The exponents.
    """

    def __init__(self, memory: ReplayMemory, options: ReplayOptions) -> None:
        self._memory = memory
        self._alpha, self.beta = options.alpha, options.beta
        self._beta_step = (1 - options.beta) / options.anneal_step if options.anneal_step else 0.0
        self._tree: Optional[SumTree] = None
        self._max_priority = 1.0
        # of prepared transitions that are not stored yet: their weights, and the highest priority that they came with
        self._pushed: List[float] = []
        self._highest = -1.0

    def prepare(self, transitions: Sequence[Mapping]) -> Sequence[Mapping]:
        """Transitions as they are to be stored. Raises ValueError if they cannot be sampled later."""
        given, of_new = [t.get('priority') for t in transitions], self._max_priority**self._alpha
        self._pushed = [of_new if priority is None else self._weight(priority) for priority in given]
        self._highest = max((float(priority) for priority in given if priority is not None), default=-1.0)
        if any(not _ADDED.isdisjoint(t) for t in transitions):
            return [{k: v for k, v in t.items() if k not in _ADDED} for t in transitions]
        return transitions

    def _weight(self, priority: float) -> float:
        priority = float(priority)
        if not 0 <= priority <= _LARGEST_PRIORITY:
            raise ValueError(
                f'a priority is {priority}; expected a number from 0 to {_LARGEST_PRIORITY:.1e} (float32). Of a TD '
                'error it means that the training has diverged: lower policy.learn.learning_rate'
            )
        return (priority + _EPSILON) ** self._alpha

    def stored(self, transitions: Sequence[Mapping], slots: List[int]) -> None:
        """Some of the prepared transitions were stored, in order."""
        weights, self._pushed = self._pushed[: len(slots)], self._pushed[len(slots) :]
        if self._highest >= 0:
            self._track()
            self._max_priority = max(self._max_priority, self._highest)
        if self._tree is not None:
            self._tree.set(np.array(slots), np.array(weights))

    def _track(self) -> SumTree:
        """Priorities count from now on; present transitions have priority 1."""
        if self._tree is None:
            self._tree = SumTree(self._memory.capacity)
            if self._memory.count:
                self._tree.set(np.arange(self._memory.count), np.ones(self._memory.count))
        return self._tree

    def sample(self, size: int) -> Optional[Tuple[np.ndarray, Extras]]:
        """Slots, and what is added to each transition; None if there are too few."""
        memory = self._memory
        if memory.count < size:
            log.info('%d transitions are to be sampled, but there are %d; none are', size, memory.count)
            return None
        if self._tree is None:
            slots = memory.nth(memory.random.choice(memory.count, size, replace=False, shuffle=False))
            importance = priorities = np.ones(size)
        else:
            # one from each of ``size`` equal shares of the sum
            shares = (np.arange(size) + memory.random.random(size)) / size
            slots = self._tree.find(shares * self._tree.total)
            weights = self._tree.get(slots).astype(np.float64)
            importance = (weights / self._tree.smallest) ** -self.beta
            priorities = weights ** (1 / self._alpha) if self._alpha else np.ones(size)
            self.beta = min(1.0, self.beta + self._beta_step)
        return slots, dict(
            replay_unique_id=memory.ids(slots),
            replay_buffer_idx=slots,
            IS=importance,
            priority=priorities,
        )

    def update(self, info: Mapping) -> None:
        """Set priorities, passing over transitions that are gone. Raises ValueError if one is no finite number."""
        priorities = np.array([float(priority) for priority in info['priority']])
        weights = np.array([self._weight(priority) for priority in priorities])
        tree = self._track()
        ids, slots = (np.array(info[key], np.int64) for key in ('replay_unique_id', 'replay_buffer_idx'))
        is_there = (0 <= slots) & (slots < self._memory.count)
        is_there[is_there] = self._memory.ids(slots[is_there]) == ids[is_there]
        if is_there.any():
            tree.set(slots[is_there], weights[is_there])
            self._max_priority = max(self._max_priority, priorities[is_there].max().item())

    def clear(self) -> None:
        """Forget everything."""
        self._max_priority = 1.0
        if self._tree is not None:
            self._tree = SumTree(self._memory.capacity)

    def state(self) -> Tuple[Dict[str, Any], Optional[np.ndarray]]:
        """What a save keeps: JSON, and a number for each slot."""
        priorities = None if self._tree is None else self._tree.get(np.arange(self._memory.count))
        return dict(beta=self.beta, max_priority=self._max_priority), priorities

    def restored(self, restored: Restored) -> None:
        """Continue from what a save kept, with the memory that was restored from it."""
        self.beta = float(restored.more.get('beta', self.beta))
        self._max_priority = float(restored.more.get('max_priority', self._max_priority))
        self._tree = None
        if restored.priorities is not None:
            self._track().set(np.arange(self._memory.count), restored.priorities)
