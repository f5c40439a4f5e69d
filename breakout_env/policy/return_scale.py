"""The units of a critic that learns normalised returns."""

import math
from collections.abc import Iterable
from typing import Annotated

import torch
from typing_extensions import TypedDict

from ..utils.options import Between

# Share of mean and variance that a minibatch replaces, and the smallest deviation.
RETURNS_SHARE, SMALLEST_DEVIATION = 0.001, 0.01


class ScaleState(TypedDict):
    """What a run saves: the number of minibatches, and mean and variance of their returns."""

    count: Annotated[float, Between(0, 1e15)]
    mean: Annotated[float, Between(-1e15, 1e15)]
    variance: Annotated[float, Between(0, 1e15)]


class ReturnScale:
    """Mean and deviation of recent returns, the units of a critic's output: the learner follows the returns of its
    minibatches and rescales the critic, so that its values stay (PopArt: van Hasselt et al. 2016, "Learning values
    across many orders of magnitude"). A run saves it, the collector gets it with the weights.

    Examples:
        >>> critic, scale = torch.nn.Linear(1, 1), ReturnScale()
        >>> with torch.no_grad():
        ...     before = scale.returns(critic(torch.ones(1)))
        >>> scale.follow(torch.tensor([1.0, 3.0]), [critic])
        >>> scale.mean, scale.deviation, torch.allclose(scale.returns(critic(torch.ones(1))), before, atol=1e-6)
        (2.0, 1.0, True)
    """

    def __init__(self) -> None:
        """Mean 0 and deviation 1, until there are returns."""
        self.state = ScaleState(count=0.0, mean=0.0, variance=1.0)

    @property
    def mean(self) -> float:
        return self.state['mean']

    @property
    def deviation(self) -> float:
        return max(math.sqrt(self.state['variance']), SMALLEST_DEVIATION)

    @torch.no_grad()
    def follow(self, returns: torch.Tensor, critics: Iterable[torch.nn.Linear]) -> None:
        """Move towards the returns of a minibatch, of any shape, and give the critics' outputs the new units."""
        if not returns.numel():
            return
        mean, deviation, count = self.mean, self.deviation, self.state['count'] + 1
        share = max(1 / count, RETURNS_SHARE)
        variance, apart = returns.var(correction=0).item(), returns.mean().item() - mean
        spread = (1 - share) * self.state['variance'] + share * (variance + (1 - share) * apart**2)
        self.state = ScaleState(count=count, mean=mean + share * apart, variance=spread)
        for critic in critics:
            critic.weight.mul_(deviation / self.deviation)
            critic.bias.mul_(deviation).add_(mean - self.mean).div_(self.deviation)

    def returns(self, output: torch.Tensor) -> torch.Tensor:
        """The returns that a critic's output stands for."""
        return output * self.deviation + self.mean

    def normalized(self, returns: torch.Tensor) -> torch.Tensor:
        """What a critic's output should be for these returns."""
        return (returns - self.mean) / self.deviation
