"""Tianshou's DQN with the options of configs/breakout_dqn_config.py, for the benchmarks."""

from typing import Any

import gymnasium
from ding_parts import EPSILON


def dqn(actions: int) -> Any:
    """
    Overview:
        Double, 3-step, on the network that Tianshou's own Atari example uses, which is Nature's.
    Returns:
        - algorithm (:obj:`Algorithm`): What acts and learns.
    """
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet

    policy = DiscreteQLearningPolicy(
        model=ScaledObsInputActionReprNet(DQNet(4, 84, 84, actions)),
        action_space=gymnasium.spaces.Discrete(actions),
        eps_training=EPSILON,
    )
    return DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-4),
        gamma=0.99,
        n_step_return_horizon=3,
        target_update_freq=1000,
        is_double=True,
    )
