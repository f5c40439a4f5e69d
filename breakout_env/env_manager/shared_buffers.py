"""Shared memory in which workers put the results of steps."""

from typing import Any, List, Optional, Sequence, Tuple

import gym
import gymnasium
import numpy as np
from ding.envs import BaseEnvTimestep

BOXES = (gym.spaces.Box, gymnasium.spaces.Box)


class SharedSteps(object):
    """
    Each environment's newest observation, reward, done, and the last observation of its last episode, in anonymous
    shared memory: the system frees it with the last process that has it, however that ended. A worker writes, the
    manager reads, and the message that passes between them says whose turn it is. What does not fit, because the space
    is no box or the environment does not keep to it, travels in the message instead.
    """

    def __init__(self, context: Any, env_num: int, observation_space: Any, reward_space: Any) -> None:
        """``context``: that of the processes that will share it; others: as the manager's properties."""
        self._obs = _shared_array(context, env_num, observation_space)
        self._final_obs = _shared_array(context, env_num, observation_space)
        self._rewards = _shared_array(context, env_num, reward_space)
        self._dones = _SharedArray(context, (env_num,), np.dtype(np.bool_))

    @property
    def takes_batches(self) -> bool:
        """Whether observations are arrays and rewards single numbers, so that steps of many have a row each."""
        return self._obs is not None and self._rewards is not None and self._rewards.array[0].size == 1

    def put_obs(self, env_id: int, obs: Any) -> bool:
        """Write an observation, if it fits; whether it was written."""
        return _put(self._obs, env_id, obs)

    def put_timestep(self, env_id: int, timestep: BaseEnvTimestep, is_last: bool) -> bool:
        """
        Write all of a timestep but its ``info``, if it fits; whether it was written. The observation of one that
        ``is_last`` has a place of its own: the first one of the next episode is written beside it.
        """
        if not (type(timestep.done) is bool and _fits(self._rewards, timestep.reward)):
            return False
        if not _put(self._final_obs if is_last else self._obs, env_id, timestep.obs):
            return False
        self._rewards.array[env_id] = timestep.reward
        self._dones.array[env_id] = timestep.done
        return True

    def take_obs(self, env_ids: Sequence[int], out: Optional[np.ndarray] = None) -> np.ndarray:
        """A copy of some environments' observations: :math:`(N, ...)` for N environments, in ``out`` if given."""
        copy: np.ndarray = np.take(self._obs.array, env_ids, axis=0, out=out, mode='clip')  # else `out` is buffered
        return copy

    def take_timesteps(self, env_ids: List[int], are_last: bool) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies of some environments' observations, rewards and dones."""
        obs = self._final_obs if are_last else self._obs
        return obs.array[env_ids], self._rewards.array[env_ids], self._dones.array[env_ids]

    def take_ends(self, env_ids: List[int]) -> Tuple[np.ndarray, np.ndarray]:
        """Rewards and dones of some environments: :math:`(N)`, float32 and bool."""
        rewards = self._rewards.array[env_ids].reshape(len(env_ids))
        return rewards.astype(np.float32, copy=False), self._dones.array[env_ids]


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


def _put(shared: Any, env_id: int, value: Any) -> bool:
    if not _fits(shared, value):
        return False
    shared.array[env_id] = value
    return True
