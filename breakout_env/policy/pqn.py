"""PQN: Q-learning from parallel environments, without a replay buffer and without a target network."""

from typing import Annotated, Mapping, Tuple

import torch
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.utils import POLICY_REGISTRY

from ..utils.options import Between
from .rollout_policy import Batch, RolloutOptions, RolloutPolicy


class PQNOptions(RolloutOptions):
    """The options in ``policy.learn`` that ``pqn`` adds to DI-engine's."""

    q_lambda: Annotated[float, Between(0.0, 1.0)] = 0.65
    """(float) Weight of longer returns in a target: 0 for one-step targets, 1 for returns up to the rollout's end."""


@POLICY_REGISTRY.register('pqn')
class PQNPolicy(RolloutPolicy):
    """
    Overview:
        PQN (Gallici et al. 2025, "Simplifying Deep Temporal Difference Learning"): rollouts of many environments, \
        Q(lambda) targets that are computed once for a rollout, a few passes over it in random minibatches. \
        LayerNorm in the network takes the place of the target network, the number of environments that of the \
        replay buffer. It needs the collector ``rollout``, the buffer ``rollout`` and a model with \
        ``layer_norm=True``; see configs/breakout_pqn_config.py. Passes over a rollout: ``learn.update_per_collect`` \
        times ``learn.batch_size`` divided by ``collect.n_sample``.
    Examples:
        >>> PQNPolicy.default_config().learn.q_lambda
        0.65
    """

    config = dict(type='pqn', learn=PQNOptions().model_dump())
    options_class = PQNOptions
    scalars = ('q_value',)

    def _decide(self, output: Mapping[str, torch.Tensor], eps: float) -> Batch:
        """Epsilon-greedy actions; the value is the highest Q value of the observation."""
        q_value = output['logit']
        value, action = q_value.max(dim=1)
        explores = torch.rand(len(action)) < eps
        action = torch.where(explores, torch.randint(q_value.shape[1], action.shape), action)
        return dict(action=action, value=value)

    def _get_train_sample(self, transitions: Batch) -> Batch:
        """
        Overview:
            Replace what a rollout needs for targets by the targets, Q(lambda) returns as in Peng and Williams 1994.
        Arguments:
            - transitions (:obj:`Batch`): ``obs``, ``action``, ``reward``, ``done``, ``weight``, and ``value``, \
                for the observations after the last step, too.
        Returns:
            - samples (:obj:`Batch`): ``obs``, ``action``, ``target``, ``weight``.
        Shapes:
            - obs: :math:`(T, N, ...)`, T steps of N environments; value: :math:`(T + 1, N)`; others: :math:`(T, N)`.
            - samples: :math:`(T N, ...)`.
        """
        reward, value, weight = transitions['reward'], transitions['value'], transitions['weight']
        discount = self._cfg.discount_factor * (1 - transitions['done'].float())
        q_lambda = self._cfg.learn.q_lambda
        target, following = torch.empty_like(reward), value[-1]
        for t in reversed(range(len(reward))):
            following = reward[t] + discount[t] * (q_lambda * following + (1 - q_lambda) * value[t + 1])
            # a step that was lost with its environment has no reward: the value stands for the return
            following = torch.where(weight[t] > 0, following, value[t])
            target[t] = following
        samples = dict(obs=transitions['obs'], action=transitions['action'], target=target, weight=weight)
        return {key: tensor.flatten(0, 1) for key, tensor in samples.items()}

    def _loss(self, output: Mapping[str, torch.Tensor], data: Batch) -> Tuple[torch.Tensor, ...]:
        chosen = output['logit'].gather(1, data['action'].unsqueeze(1)).squeeze(1)
        return (data['weight'] * (chosen - data['target']).square()).mean() / 2, chosen.mean()


@POLICY_REGISTRY.register('pqn_command')
class PQNCommandModePolicy(PQNPolicy, EpsCommandModePolicy):
    """The same with the commander that sets epsilon in the serial pipeline."""
