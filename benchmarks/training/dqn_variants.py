"""
Targets of DQN that benchmarks/recipes.py tries beside those of ``lean_dqn``: Munchausen's and quantiles.

The registered names are for measurements. Their checkpoints are agents for ``breakout average`` and ``eval``, as their
networks act with those of ``pixel_dqn``.
"""

from typing import Any, Dict, Tuple, cast

import torch
from ding.rl_utils import qrdqn_nstep_td_data, qrdqn_nstep_td_error
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY

from breakout_env.policy.lean_dqn import LeanDQNCommandModePolicy
from breakout_env.policy.pixel_models import PixelDQN

# Vieillard et al. 2020, for Atari: the entropy's temperature, the share of the bonus and its lower bound.
TEMPERATURE, SHARE, LOWEST = 0.03, 0.9, -1.0
QUANTILES = 32


@POLICY_REGISTRY.register('munchausen_dqn')
@POLICY_REGISTRY.register('munchausen_dqn_command')
class MunchausenDQNPolicy(LeanDQNCommandModePolicy):
    """
    The policy adds to the first reward the scaled log-probability of the action in a softmax of the target network's
    values, and values the state after the last one by that softmax and its entropy (Vieillard et al. 2020).
    """

    def _loss(self, batch: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        q_value, _, target_q_value = self._q_values(batch['obs'], batch['next_obs'])
        with torch.no_grad():
            policy = torch.log_softmax(self._target_model.forward(batch['obs'])['logit'] / TEMPERATURE, dim=-1)
            log_prob = policy.gather(1, batch['action'].unsqueeze(1)).squeeze(1)
            bonus = SHARE * (TEMPERATURE * log_prob).clamp(LOWEST, 0)
            soft_value = TEMPERATURE * torch.logsumexp(target_q_value / TEMPERATURE, dim=-1, keepdim=True)
        rewarded = {**batch, 'reward': torch.cat([batch['reward'][:1] + bonus, batch['reward'][1:]])}
        loss, td_error = self._td_error(rewarded, q_value, soft_value, torch.zeros_like(batch['action']))
        return loss, td_error, q_value, target_q_value


@MODEL_REGISTRY.register('pixel_quantile_dqn')
class PixelQuantileDQN(PixelDQN):
    """
    A ``PixelDQN`` with quantiles of the return of each action around its value: deviations whose mean is 0, from a
    linear layer beside the head. An agent file leaves that layer out, as it does a critic.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        actions = self.head.A[-1][0].out_features if hasattr(self.head, 'A') else self.head.Q[-1][0].out_features
        self.critic = torch.nn.Linear(cast(int, self.encoder.output_size), actions * QUANTILES)

    def forward(self, x: torch.Tensor) -> Dict[str, torch.Tensor]:
        """``logit`` and ``quantiles`` of pixels 0..255."""
        return self.forward_scaled(self.scaled(x))

    def _heads(self, features: torch.Tensor) -> Dict[str, torch.Tensor]:
        values = super()._heads(features)['logit']
        deviations = self.critic(features).view(*values.shape, QUANTILES)
        return dict(logit=values, quantiles=values.unsqueeze(-1) + deviations - deviations.mean(-1, keepdim=True))


@POLICY_REGISTRY.register('quantile_dqn')
@POLICY_REGISTRY.register('quantile_dqn_command')
class QuantileDQNPolicy(LeanDQNCommandModePolicy):
    """The policy learns quantiles of the return (Dabney et al. 2018) with the network ``pixel_quantile_dqn``."""

    _output = 'quantiles'

    def _loss(self, batch: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        quantiles, next_quantiles, target_quantiles = self._q_values(batch['obs'], batch['next_obs'])
        shares = (torch.arange(QUANTILES, device=quantiles.device) + 0.5) / QUANTILES
        loss, td_error = qrdqn_nstep_td_error(
            qrdqn_nstep_td_data(
                quantiles,
                target_quantiles,
                batch['action'],
                next_quantiles.mean(dim=-1).argmax(dim=-1),
                batch['reward'],
                batch['done'],
                shares.view(1, QUANTILES, 1),
                batch.get('weight'),
            ),
            self._gamma,
            nstep=self._nstep,
            value_gamma=batch.get('value_gamma'),
        )
        return loss, td_error, quantiles, target_quantiles
