"""Upstream behaviour worked around (DI-engine 0.5.3, ``model/wrapper/model_wrappers.py``): ``EpsGreedySampleWrapper``
draws one number for all environments of a step, so that either all of them explore or none. With 8 environments and
epsilon 0.1, 10% of the steps have random actions, all 8 at once, where 57% should have some.
"""

from typing import Any

import torch
from ding.model.wrapper.model_wrappers import IModelWrapper, register_wrapper

# The name of the wrapper, for DI-engine's `model_wrap`.
INDEPENDENT = 'independent_eps_greedy'


class IndependentEpsGreedy(IModelWrapper):
    """Adds to a network's output an ``action`` for each row of ``logit``: random with probability ``eps``."""

    def forward(self, *args: Any, eps: float, **kwargs: Any) -> dict[str, Any]:
        """As the network's, with ``action`` of shape :math:`(B)`."""
        output = self._model.forward(*args, **kwargs)
        action = output['logit'].argmax(dim=-1)
        explores = torch.rand(action.shape) < eps
        drawn = torch.randint(output['logit'].shape[-1], action.shape)
        output['action'] = torch.where(explores.to(action.device), drawn.to(action.device), action)
        return output


register_wrapper(INDEPENDENT, IndependentEpsGreedy)
