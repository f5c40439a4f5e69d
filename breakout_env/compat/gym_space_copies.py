"""gym 0.25: a space that has drawn a sample can't be deep-copied or pickled."""

import copy

import gym


def copied_space(space: gym.spaces.Space) -> gym.spaces.Space:
    """A copy that makes its own random generator when it needs one; a shallow copy would share it."""
    twin = copy.copy(space)
    twin._np_random = None
    return twin
