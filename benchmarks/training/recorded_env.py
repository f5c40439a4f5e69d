"""An environment that takes no time, in a separate module: each process that a program spawns runs the program again,
and would register the environment a second time.
"""

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.utils import ENV_REGISTRY

from breakout_env import BreakoutEnv


@ENV_REGISTRY.register('breakout_recorded')
class RecordedEnv(BreakoutEnv):
    """Takes no time: it repeats the first episode that it has played."""

    def reset(self) -> np.ndarray:
        if not hasattr(self, '_course'):
            self._course = [BaseEnvTimestep(super().reset(), None, False, {})]
            while not self._course[-1].done:
                self._course.append(super().step(self.random_action()))
        self._steps = 0
        return self._course[0].obs

    def step(self, action: object) -> BaseEnvTimestep:
        self._steps += 1
        return self._course[self._steps]
