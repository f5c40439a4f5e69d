"""PPO from rollouts of many environments, in DI-engine's off-policy pipeline."""

from typing import Annotated, List, Mapping, Optional, Tuple

import torch
from ding.policy.command_mode_policy_instance import DummyCommandModePolicy
from ding.utils import POLICY_REGISTRY

from ..utils.options import Between
from .rollout_policy import Batch, RolloutOptions, RolloutPolicy


class LeanPPOOptions(RolloutOptions):
    """The options in ``policy.learn`` that ``lean_ppo`` adds to DI-engine's."""

    grad_clip: Optional[Annotated[float, Between(0.0, 1e9, above=True)]] = 0.5
    """(Optional[float]) Largest norm of the gradient; None for no limit."""
    gae_lambda: Annotated[float, Between(0.0, 1.0)] = 0.95
    """(float) Weight of longer returns in an advantage (generalised advantage estimation)."""
    clip_ratio: Annotated[float, Between(0.0, 1.0, above=True)] = 0.1
    """(float) Beyond a ratio of new and old probability that differs from 1 by this, an action gains nothing."""
    value_weight: Annotated[float, Between(0.0, 1e6)] = 0.5
    """(float) Weight of the value's squared error in the loss."""
    entropy_weight: Annotated[float, Between(0.0, 1e6)] = 0.01
    """(float) Weight of the entropy of the policy, which keeps it exploring."""


@POLICY_REGISTRY.register('lean_ppo')
class LeanPPOPolicy(RolloutPolicy):
    """
    Overview:
        PPO (Schulman et al. 2017, "Proximal Policy Optimization Algorithms"): rollouts of many environments with \
        actions that the policy draws, generalised advantages, a few passes over a rollout in random minibatches with \
        a clipped loss. The loss is DI-engine's ``ppo_error`` with advantages normalised in each minibatch and without \
        clipping of values. It needs the collector ``rollout``, the buffer ``rollout`` and the model \
        ``pixel_actor_critic``; see configs/breakout_ppo_config.py. Passes over a rollout: \
        ``learn.update_per_collect`` times ``learn.batch_size`` divided by ``collect.n_sample``. An evaluation takes \
        the most probable action.
    Examples:
        >>> LeanPPOPolicy.default_config().learn.clip_ratio
        0.1
    """

    config = dict(type='lean_ppo', learn=LeanPPOOptions().model_dump())
    options_class = LeanPPOOptions
    scalars = ('value', 'entropy')

    def default_model(self) -> Tuple[str, List[str]]:
        """Actor and critic on pixels 0..255, where the config names no model."""
        return 'pixel_actor_critic', ['breakout_env']

    def _decide(self, output: Mapping[str, torch.Tensor], eps: float) -> Batch:
        """Actions drawn from the policy, with the logarithm of their probability."""
        log_probs = output['logit'].log_softmax(dim=1)
        action = torch.multinomial(log_probs.exp(), 1)
        return dict(action=action[:, 0], value=output['value'], log_prob=log_probs.gather(1, action)[:, 0])

    def _get_train_sample(self, transitions: Batch) -> Batch:
        """
        Overview:
            Add generalised advantages (Schulman et al. 2016) and the returns that the critic learns to a rollout.
        Arguments:
            - transitions (:obj:`Batch`): ``obs``, ``action``, ``log_prob``, ``reward``, ``done``, ``weight``, and \
                ``value``, for the observations after the last step, too.
        Returns:
            - samples (:obj:`Batch`): ``obs``, ``action``, ``log_prob``, ``advantage``, ``return``, ``weight``.
        Shapes:
            - obs: :math:`(T, N, ...)`, T steps of N environments; value: :math:`(T + 1, N)`; others: :math:`(T, N)`.
            - samples: :math:`(T N, ...)`.
        """
        reward, value, weight = transitions['reward'], transitions['value'], transitions['weight']
        discount = self._cfg.discount_factor * (1 - transitions['done'].float())
        error = reward + discount * value[1:] - value[:-1]
        advantage, following = torch.empty_like(reward), torch.zeros_like(value[-1])
        for t in reversed(range(len(reward))):
            following = error[t] + discount[t] * self._cfg.learn.gae_lambda * following
            # a step that was lost with its environment has no reward: the value stands for the return
            following = torch.where(weight[t] > 0, following, 0)
            advantage[t] = following
        kept = {key: transitions[key] for key in ('obs', 'action', 'log_prob', 'weight')}
        samples = {**kept, 'advantage': advantage, 'return': advantage + value[:-1]}
        return {key: tensor.flatten(0, 1) for key, tensor in samples.items()}

    def _loss(self, output: Mapping[str, torch.Tensor], data: Batch) -> Tuple[torch.Tensor, ...]:
        options, weight, advantage = self._options, data['weight'], data['advantage']
        # the population's deviation, as a minibatch of one sample has no other
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        log_probs = output['logit'].log_softmax(dim=1)
        ratio = (log_probs.gather(1, data['action'].unsqueeze(1)).squeeze(1) - data['log_prob']).exp()
        clipped = ratio.clamp(1 - options.clip_ratio, 1 + options.clip_ratio)
        policy_loss = -(weight * torch.min(ratio * advantage, clipped * advantage)).mean()
        value_loss = (weight * (output['value'] - data['return']).square()).mean() / 2
        entropy = -(weight * (log_probs.exp() * log_probs).sum(dim=1)).mean()
        loss = policy_loss + options.value_weight * value_loss - options.entropy_weight * entropy
        return loss, output['value'].mean(), entropy


@POLICY_REGISTRY.register('lean_ppo_command')
class LeanPPOCommandModePolicy(LeanPPOPolicy, DummyCommandModePolicy):
    """The same with a commander that has nothing to set: the policy itself explores."""
