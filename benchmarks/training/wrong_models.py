"""Mistakes on purpose, for the training guide: DI-engine's DQN on pixels that are scaled to [0, 1] never, or twice."""

import torch
from ding.model import DQN
from ding.utils import MODEL_REGISTRY


@MODEL_REGISTRY.register('unscaled_dqn')
class UnscaledDQN(DQN):
    """A model that casts uint8 to float, so that nothing fails, and forgets the division."""

    def forward(self, x: torch.Tensor) -> dict:
        return super().forward(x.float())


@MODEL_REGISTRY.register('twice_scaled_dqn')
class TwiceScaledDQN(DQN):
    """An environment and a model that both divide by 255."""

    def forward(self, x: torch.Tensor) -> dict:
        return super().forward(x.float() / 255 / 255)
