"""Prioritised experience replay (Schaul et al. 2016), as both replay buffers use it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, SupportsFloat

import numpy as np

from .options import SamplingOptions
from .sum_tree import SumTree

# Added to each priority, so that none is 0 (Schaul et al. 2016 and DI-engine's advanced buffer do so).
_EPSILON = 1e-5
# The weights in the tree are float32: beyond this, one transition would be all that is ever sampled.
_LARGEST_PRIORITY = float(np.finfo(np.float32).max)


class PrioritySample(NamedTuple):
    """Sampled slots, with the priority and the importance-sampling weight of each."""

    slots: np.ndarray
    priorities: np.ndarray
    importance: np.ndarray


class Priorities:
    """Samples slots in proportion to their weight, which is the priority to the power of ``alpha``. The
    importance-sampling weights are to the power of ``-beta``, which rises to 1 over ``anneal_step`` samples. A slot
    without a weight is never sampled.

    Examples:
        >>> priorities = Priorities(100, SamplingOptions(alpha=1.0))
        >>> priorities.set(np.array([3, 8]), priorities.weights([None, 99.0]))
        >>> priorities.sample(np.array([0.5, 0.9])).slots
        array([8, 8])
    """

    def __init__(self, capacity: int, options: SamplingOptions) -> None:
        self._capacity = capacity
        self._alpha, self._beta = options.alpha, options.beta
        self._beta_step = (1 - options.beta) / options.anneal_step if options.anneal_step else 0.0
        self.clear()

    def clear(self) -> None:
        """Forget all weights; beta stays."""
        self._tree = SumTree(self._capacity)
        self._highest_weight = 1.0

    def weights(self, priorities: Iterable[SupportsFloat | None]) -> np.ndarray:
        """The weights of priorities. None stands for a new transition, which gets the highest weight so far.

        Raises:
            ValueError: If a priority is negative, infinite or not a number.
        """
        return np.array([self._highest_weight if each is None else self._weight(each) for each in priorities])

    def _weight(self, given: SupportsFloat) -> float:
        priority = float(given)
        if not 0 <= priority <= _LARGEST_PRIORITY:
            raise ValueError(
                f'a priority is {priority}; expected a number from 0 to {_LARGEST_PRIORITY:.1e} (float32). Of a TD '
                'error it means that the training has diverged: lower policy.learn.learning_rate'
            )
        return (priority + _EPSILON) ** self._alpha

    def set(self, slots: np.ndarray, weights: np.ndarray) -> None:
        """Set the weights of slots. For a slot given twice the last one counts."""
        if len(slots):
            self._tree.set(slots, weights)
            self._highest_weight = max(self._highest_weight, float(weights.max()))

    def update(self, info: Mapping, ids: np.ndarray) -> None:
        """Set the priorities that the learner found, passing over transitions that are gone.

        Arguments:
            info: Lists of one length: ``replay_unique_id``, ``replay_buffer_idx``, ``priority``.
            ids: The id of the transition in each slot in use.
        """
        weights = self.weights(info['priority'])
        expected_ids, slots = (np.array(info[key], np.int64) for key in ('replay_unique_id', 'replay_buffer_idx'))
        is_there = (0 <= slots) & (slots < len(ids))
        is_there[is_there] = ids[slots[is_there]] == expected_ids[is_there]
        self.set(slots[is_there], weights[is_there])

    def sample(self, uniform: np.ndarray) -> PrioritySample:
        """Sample as many slots as there are random numbers, which are uniform in [0, 1): one slot from each of as many
        equal shares of the sum of all weights.
        """
        shares = (np.arange(len(uniform)) + uniform) / len(uniform)
        slots = self._tree.find(shares * self._tree.total)
        weights = self._tree.get(slots).astype(np.float64)
        importance = (weights / self._tree.smallest) ** -self._beta
        priorities = weights ** (1 / self._alpha) if self._alpha else np.ones(len(slots))
        self._beta = min(1.0, self._beta + self._beta_step)
        return PrioritySample(slots, priorities, importance)

    def stored_weights(self, count: int) -> np.ndarray:
        """The weights of the first slots, for a save."""
        return self._tree.get(np.arange(count))

    def numbers(self) -> dict[str, float]:
        """Everything else that a save keeps."""
        return dict(beta=self._beta, highest_weight=self._highest_weight)

    def restore(self, numbers: Mapping[str, float], weights: np.ndarray) -> None:
        """Continue from what a save kept."""
        self.clear()
        self.set(np.arange(len(weights)), weights)
        self._beta, self._highest_weight = float(numbers['beta']), float(numbers['highest_weight'])
