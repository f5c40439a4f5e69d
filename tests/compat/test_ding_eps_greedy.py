"""DI-engine's wrapper decides for all environments of a step at once whether to explore."""

import numpy as np
import pytest
import torch
from ding.model.wrapper.model_wrappers import model_wrap

from breakout_env.compat.ding_eps_greedy import INDEPENDENT
from breakout_env.policy.lean_dqn import LeanDQNPolicy
from helpers.policies import policy

ENVS, STEPS, EPS = 8, 2000, 0.1


class Values(torch.nn.Module):
    """The action 0 is best; a random one is another in three of four cases."""

    def forward(self, obs):
        return dict(logit=torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(len(obs), 4))


def shares(wrapper):
    """The share of random actions, and that of steps with at least one."""
    torch.manual_seed(0)
    np.random.seed(0)
    acting = model_wrap(Values(), wrapper_name=wrapper)
    others = torch.stack([acting.forward(torch.zeros(ENVS), eps=EPS)['action'] != 0 for _ in range(STEPS)]).float()
    return others.mean().item(), others.amax(dim=1).mean().item()


def test_environments_explore_independently_which_upstream_still_prevents():
    actions, steps = shares(INDEPENDENT)
    other = 0.75 * EPS
    assert actions == pytest.approx(other, abs=0.01) and steps == pytest.approx(1 - (1 - other) ** ENVS, abs=0.04)
    assert shares('eps_greedy_sample')[1] < 0.15, 'upstream draws for each environment now: remove the workaround'


def test_environments_explore_independently_with_lean_dqn():
    collects = policy(LeanDQNPolicy).collect_mode
    obs = {i: torch.zeros(4, 84, 84, dtype=torch.uint8) for i in range(ENVS)}
    torch.manual_seed(0)
    greedy = int(collects.forward(obs, eps=0.0)[0]['action'])
    steps = [collects.forward(obs, eps=0.5).values() for _ in range(20)]
    counts = [sum(int(one['action']) != greedy for one in step) for step in steps]
    assert counts.count(0) < 6 and max(counts) < ENVS, 'of 20 steps some 10 would have no random action'
