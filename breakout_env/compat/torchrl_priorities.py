"""
Prioritised sampling in TorchRL's buffers without its C++ extension.

Upstream behaviour worked around (TorchRL 0.14): ``PrioritizedSampler`` needs an extension that only loads with the
torch version it was built for, 2.13, which DI-engine's requirements rule out. Only the replay buffer imports this file:
it needs TorchRL.
"""

from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch
from torchrl.data.replay_buffers import Sampler


class ProportionalSampler(Sampler):
    """
    Overview:
        Proportional prioritised sampling (Schaul et al. 2016, section 3.3): a cumulative sum over all weights and a \
        binary search, a few ms at a million transitions, little beside an update of the network.
    Arguments:
        - capacity (:obj:`int`): Transitions that the storage keeps.
        - alpha (:obj:`float`): Exponent of the priorities.
    """

    EPS = 1e-5  # added to each priority, so that no transition is excluded for good

    def __init__(self, capacity: int, alpha: float) -> None:
        self._alpha = alpha
        self._weights = torch.zeros(
            capacity, dtype=torch.float64
        )  # as a cumulative sum of a million float32 would drift
        self._largest = 1.0
        self.beta = 1.0
        """(float) Exponent of the importance-sampling weights; may be changed at any time."""

    def sample(self, storage: Any, batch_size: int) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        """Positions of transitions, their ``priority``, and the importance weights ``IS``, (p / p_min) ** -beta."""
        weights = self._weights[: len(storage)]
        sums = weights.cumsum(0)
        points = torch.rand(batch_size, dtype=torch.float64, generator=self._rng) * sums[-1]
        index = torch.searchsorted(sums, points, right=True).clamp_max(len(weights) - 1)
        priority = weights[index] ** (1 / self._alpha) if self._alpha else torch.ones_like(points)
        return index, dict(priority=priority.float(), IS=((weights[index] / weights.min()) ** -self.beta).float())

    def extend(self, index: Any) -> None:
        """New transitions get the largest priority so far, so that each is soon sampled."""
        self._weights[torch.as_tensor(index)] = self._largest**self._alpha

    def update_priority(self, index: torch.Tensor, priority: torch.Tensor, *, storage: Optional[Any] = None) -> None:
        """Set the priorities of transitions by their positions."""
        priority = torch.as_tensor(priority, dtype=torch.float64) + self.EPS
        self._weights[index] = priority**self._alpha
        self._largest = max(self._largest, priority.max().item())

    def _empty(self) -> None:
        self._weights.zero_()
        self._largest = 1.0

    def state_dict(self) -> Dict[str, Any]:
        """A copy of everything."""
        return dict(weights=self._weights.clone(), largest=self._largest)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._weights[: len(state_dict['weights'])] = state_dict['weights']
        self._largest = state_dict['largest']

    def dumps(self, path: Any) -> None:
        """Write everything to a folder."""
        Path(path).mkdir(exist_ok=True)
        torch.save(self.state_dict(), Path(path) / 'weights.pt')

    def loads(self, path: Any) -> None:
        """Restore what ``dumps`` wrote."""
        self.load_state_dict(torch.load(Path(path) / 'weights.pt', weights_only=True))
