"""Shared memory in which the manager puts actions for its workers, and they put the results."""

from typing import Any, Dict, List, Optional, Tuple

import gym
import gymnasium
import numpy as np
from ding.envs import BaseEnvTimestep

BOXES = (gym.spaces.Box, gymnasium.spaces.Box)


class SharedSteps(object):
    """
    Each environment's last action, observation, reward and done, in anonymous shared memory: the system frees it
    with the last process that has it, however that ended. One side writes, the other one reads, and the message
    that passes between them says whose turn it is. What does not fit, because the space is no box or the
    environment does not keep to it, travels in the message instead.
    """

    def __init__(self, context: Any, env_num: int, observation_space: Any, reward_space: Any) -> None:
        """``context``: that of the processes that will share it; others: as the manager's properties."""
        self._obs = _shared_array(context, env_num, observation_space)
        self._rewards = _shared_array(context, env_num, reward_space)
        self._dones = _SharedArray(context, (env_num,), np.dtype(np.bool_))
        # what DI-engine's policies give for discrete actions: one integer
        self._actions = _SharedArray(context, (env_num, 1), np.dtype(np.int64))

    def put_actions(self, actions: Dict[int, Any]) -> Optional[tuple]:
        """Write actions, if all of them are NumPy arrays of one int64; then the shape of each of them, else None."""
        shapes = {
            action.shape if type(action) is np.ndarray and action.dtype == np.int64 and action.size == 1 else None
            for action in actions.values()
        }
        shape = shapes.pop()
        if shapes or shape is None:
            return None
        for env_id, action in actions.items():
            self._actions.array[env_id, 0] = action.item()
        return shape

    def take_action(self, env_id: int, shape: tuple) -> np.ndarray:
        """An environment's action, in memory of its own."""
        return self._actions.array[env_id].copy().reshape(shape)

    def put_obs(self, env_id: int, obs: Any) -> bool:
        """Write an observation, if it fits; whether it was written."""
        if not _fits(self._obs, obs):
            return False
        self._obs.array[env_id] = obs
        return True

    def put_timestep(self, env_id: int, timestep: BaseEnvTimestep) -> bool:
        """Write all of a timestep but its ``info``, if it fits; whether it was written."""
        if not (type(timestep.done) is bool and _fits(self._rewards, timestep.reward)):
            return False
        if not self.put_obs(env_id, timestep.obs):
            return False
        self._rewards.array[env_id] = timestep.reward
        self._dones.array[env_id] = timestep.done
        return True

    def take_obs(self, env_ids: List[int]) -> np.ndarray:
        """A copy of some environments' observations: :math:`(N, ...)` for N environments."""
        return self._obs.array[env_ids]

    def take_timesteps(self, env_ids: List[int]) -> Tuple[np.ndarray, np.ndarray, List[bool]]:
        """Copies of some environments' observations, rewards and dones."""
        return self._obs.array[env_ids], self._rewards.array[env_ids], self._dones.array[env_ids].tolist()


class _SharedArray(object):
    """A NumPy array that is the same memory in each process it is passed to."""

    def __init__(self, context: Any, shape: tuple, dtype: np.dtype) -> None:
        # bytes without a lock; multiprocessing unlinks the file behind them as soon as it is mapped
        self._state = context.RawArray('B', max(int(np.prod(shape)) * dtype.itemsize, 1)), shape, dtype
        self._map()

    def _map(self) -> None:
        memory, shape, dtype = self._state
        self.array = np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)

    def __getstate__(self) -> tuple:
        return self._state

    def __setstate__(self, state: tuple) -> None:
        self._state = state
        self._map()


def _shared_array(context: Any, env_num: int, space: Any) -> Any:
    return _SharedArray(context, (env_num, *space.shape), np.dtype(space.dtype)) if isinstance(space, BOXES) else None


def _fits(shared: Any, value: Any) -> bool:
    if shared is None or type(value) is not np.ndarray:
        return False
    return value.dtype == shared.array.dtype and value.shape == shared.array.shape[1:]
