"""Spaces of gym that have drawn a sample can be copied."""

import copy
import pickle

import gym
import pytest

from breakout_env.compat.gym_space_copies import copied_space


def test_a_used_space_can_be_copied_which_upstream_still_prevents():
    space = gym.spaces.Discrete(4)
    space.seed(0)
    drawn = [space.sample() for _ in range(20)]
    for upstream in (copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))):
        with pytest.raises(TypeError, match='_generator_ctor'):  # else remove the workaround
            upstream(space)
    twin = pickle.loads(pickle.dumps(copied_space(space)))
    twin.seed(0)
    assert [twin.sample() for _ in range(20)] == drawn
