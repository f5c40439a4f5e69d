"""The results of steps: shared memory in which workers put them, and batches of them."""

from collections.abc import Sequence
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

import gym
import gymnasium
import numpy as np
from ding.envs import BaseEnvTimestep
from numpy.typing import DTypeLike

BOXES = (gym.spaces.Box, gymnasium.spaces.Box)


class StepBatch(NamedTuple):
    """One step of some environments, in rows. ``obs`` waits for an action: where an episode ended, it is the first one
    of the next. ``infos``, by row: of episodes that ended or were lost (``info['abnormal']``, without a reward), of
    steps that did not fit into shared memory, and of all steps if the caller asked for them. ``final_obs``, by row: the
    last observations of episodes that ended, as far as the manager has them.

    Shapes:
        obs: :math:`(N, ...)`; reward: :math:`(N)`, float32; done: :math:`(N)`, bool.
    """

    env_ids: Sequence[int]
    obs: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: dict[int, dict[str, Any]]
    final_obs: dict[int, Any]

    def enter(self, row: int, timestep: BaseEnvTimestep, final_obs: object = None) -> None:
        """Write reward, done and info of a timestep into a row, and the episode's last observation if it is known."""
        self.infos[row] = timestep.info
        if is_abnormal(timestep.info):
            self.reward[row], self.done[row] = 0.0, False
            return
        self.reward[row], self.done[row] = np.asarray(timestep.reward).item(), bool(timestep.done)
        if timestep.done and final_obs is not None:
            self.final_obs[row] = final_obs


def is_abnormal(info: object) -> bool:
    """Whether DI-engine's mark of a lost step is in the info of a timestep."""
    return isinstance(info, dict) and bool(info.get('abnormal'))  # some environments' info is a list, one a player


class SharedSteps:
    """Each environment's newest observation, reward and done, in anonymous shared memory: the system frees it with the
    last process that has it, however that ended. A worker writes, the manager reads, and the message that passes
    between them says whose turn it is. What does not fit, because the space is not a box or the environment does not
    keep to it, travels in the message instead.
    """

    def __init__(self, context: BaseContext, env_num: int, obs_space: gym.Space, reward_space: gym.Space) -> None:
        """``context``: of the processes that share it."""

        def shared(space: gym.Space) -> Any:
            return _SharedArray(context, (env_num, *space.shape), space.dtype) if isinstance(space, BOXES) else None

        self._obs, self._rewards = shared(obs_space), shared(reward_space)
        self._dones = _SharedArray(context, (env_num,), np.bool_)
        self._calls = _SharedArray(context, (env_num,), np.int64)

    def note_call(self, env_id: int) -> None:
        """Count a call of an environment that has returned, which is progress of its worker."""
        self._calls.array[env_id] += 1

    def call_count(self, env_ids: list[int]) -> int:
        """How many calls of some environments have returned."""
        return int(self._calls.array[env_ids].sum())

    @property
    def takes_batches(self) -> bool:
        """Whether observations are arrays and rewards single numbers, so that steps of many have a row each."""
        return self._obs is not None and self._rewards is not None and self._rewards.array[0].size == 1

    def put_timestep(self, env_id: int, timestep: BaseEnvTimestep) -> bool:
        """Write all of a timestep but its ``info``, if it fits; returns whether it was written."""
        if self._obs is None or self._rewards is None or type(timestep.done) is not bool:
            return False
        self._dones.array[env_id] = timestep.done
        return self._rewards.put(env_id, timestep.reward) and self._obs.put(env_id, timestep.obs)

    def take_obs(self, env_ids: Sequence[int], out: np.ndarray | None = None) -> np.ndarray:
        """A copy of some environments' observations: :math:`(N, ...)` for N environments, in ``out`` if given."""
        copy: np.ndarray = np.take(self._obs.array, env_ids, axis=0, out=out, mode='clip')  # else `out` is buffered
        return copy

    def take_timestep(self, env_id: int, info: dict) -> BaseEnvTimestep:
        """A copy of one environment's timestep, with the ``info`` that the message had."""
        obs, reward = self._obs.array[env_id].copy(), self._rewards.array[env_id].copy()
        return BaseEnvTimestep(obs, reward, bool(self._dones.array[env_id]), info)

    def take_ends(self, env_ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and dones of some environments: :math:`(N)`, float32 and bool."""
        rewards = self._rewards.array[env_ids].reshape(len(env_ids))
        return rewards.astype(np.float32, copy=False), self._dones.array[env_ids]


class _SharedArray:
    """A NumPy array that is the same memory in each process it is passed to."""

    def __init__(self, context: BaseContext, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        dtype = np.dtype(dtype)
        # bytes without a lock; multiprocessing unlinks the file behind them as soon as it is mapped
        self.__setstate__((context.RawArray('B', max(int(np.prod(shape)) * dtype.itemsize, 1)), shape, dtype))

    def put(self, row: int, value: object) -> bool:
        """Write a row, if it is an array that fits exactly; returns whether it was written."""
        if type(value) is not np.ndarray:
            return False
        if value.dtype != self.array.dtype or value.shape != self.array.shape[1:]:
            return False
        self.array[row] = value
        return True

    def __getstate__(self) -> tuple:
        return self._state

    def __setstate__(self, state: tuple) -> None:
        self._state = memory, shape, dtype = state
        self.array = np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)
