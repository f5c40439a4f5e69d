"""Real play that a replay buffer is filled with again and again, to see whether anything grows."""

import itertools
from typing import Iterator, List

import numpy as np
import torch

from breakout_env import BreakoutEnv

# Transitions that are pushed again and again, with another stamp on all screens each time. A smaller buffer has only
# those of the last round at the end of each, and as many frames as at the end of any other: one more is a leak, and as
# no frame comes again, none is hidden by being found again.
ROUND = 1500
FRAGMENT = 100


class Play(object):
    """Real play, in the form that DI-engine's collectors hand to a buffer."""

    def __init__(self, nstep: int = 1) -> None:
        self._obs, self._next_obs = np.empty((2, ROUND, 4, 84, 84), np.uint8)
        self._transitions = []
        env = BreakoutEnv({})
        env.seed(0)
        obs = env.reset()
        for step in range(ROUND):
            action = env.random_action()
            timestep = env.step(action)
            self._obs[step], self._next_obs[step] = obs, timestep.obs
            self._transitions.append(
                dict(
                    obs=torch.from_numpy(self._obs[step]),
                    next_obs=torch.from_numpy(self._next_obs[step]),
                    action=torch.from_numpy(action),
                    reward=torch.from_numpy(timestep.reward).repeat(nstep),
                    done=timestep.done,
                    value_gamma=torch.tensor([0.97]),
                    collect_iter=step,
                )
            )
            obs = env.reset() if timestep.done else timestep.obs
        env.close()

    def round(self, number: int) -> Iterator[List[dict]]:
        """All transitions, in fragments, with the number of the round on their screens."""
        for screens in (self._obs, self._next_obs):
            screens[..., 0, :4] = np.frombuffer(number.to_bytes(4, 'little'), np.uint8)
        for start in range(0, ROUND, FRAGMENT):
            yield self._transitions[start : start + FRAGMENT]

    def fragments(self) -> Iterator[List[dict]]:
        for number in itertools.count():
            yield from self.round(number)
