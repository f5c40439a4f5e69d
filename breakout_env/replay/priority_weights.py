"""Priorities to sampling weights, and the correction of their bias (Schaul et al. 2016)."""

from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

# Added to a priority, so that none is 0 (Schaul et al. 2016 and DI-engine's advanced buffer do so).
_EPSILON = 1e-5
# Importance weights are float32: beyond it, one transition would be all that is ever sampled.
LARGEST_PRIORITY = float(np.finfo(np.float32).max)


class PriorityWeights(object):
    """
    A transition is sampled in proportion to its priority to the power of ``alpha``. Importance-sampling weights
    to the power of ``beta``, which rises to 1, correct the bias. A new transition has the highest priority so far.
    """

    def __init__(self, alpha: float, beta: float, anneal_step: int) -> None:
        self._alpha = alpha
        self.beta = beta
        self._beta_step = (1 - beta) / anneal_step if anneal_step else 0.0
        self.max_priority = 1.0

    def weight(self, priority: Optional[float]) -> float:
        """The weight of a priority; None for a new transition."""
        if priority is None:
            return self.max_priority**self._alpha
        priority = float(priority)
        if not 0 <= priority <= LARGEST_PRIORITY:
            raise ValueError(f'a priority is {priority}; expected a number from 0 to {LARGEST_PRIORITY:.1e} (float32)')
        return max((priority + _EPSILON) ** self._alpha, 1e-30)

    def correct(self, weights: np.ndarray, smallest: float) -> Tuple[np.ndarray, np.ndarray]:
        """The importance-sampling weights of a sample, and its priorities; beta rises by a step."""
        importance = (weights / smallest) ** -self.beta
        self.beta = min(1.0, self.beta + self._beta_step)
        return importance, weights ** (1 / self._alpha) if self._alpha else np.ones(len(weights))

    def state(self) -> Dict[str, float]:
        """What a save keeps."""
        return dict(beta=self.beta, max_priority=self.max_priority)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what a save kept."""
        self.beta = float(state.get('beta', self.beta))
        self.max_priority = float(state.get('max_priority', self.max_priority))
