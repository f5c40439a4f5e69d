"""DI-engine 0.5.3: ``EpsGreedySampleWrapper`` draws one number for all environments of a step, so that either all of
them explore or none.
"""

import torch
from ding.model.wrapper.model_wrappers import IModelWrapper, register_wrapper

INDEPENDENT = 'independent_eps_greedy'  # the name for DI-engine's `model_wrap`


class IndependentEpsGreedy(IModelWrapper):
    """Adds to a network's output an ``action`` for each row of ``logit``: random with probability ``eps``."""

    def forward(self, *args: object, eps: float, **kwargs: object) -> dict[str, torch.Tensor]:
        output = self._model.forward(*args, **kwargs)
        action = output['logit'].argmax(dim=-1)
        explores = torch.rand(action.shape) < eps
        drawn = torch.randint(output['logit'].shape[-1], action.shape)
        output['action'] = torch.where(explores.to(action.device), drawn.to(action.device), action)
        return output


register_wrapper(INDEPENDENT, IndependentEpsGreedy)
