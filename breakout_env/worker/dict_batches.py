"""The array interface of the env manager ``breakout``, over any other of DI-engine's synchronous managers."""

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep

from ..env_manager.shared_buffers import StepBatch
from .nstep_collector import final_obs_of


class DictBatches(object):
    """
    Overview:
        ``halves``, ``first_obs``, ``send`` and ``recv`` as ``GroupEnvManager`` has them, with all environments in one \
        batch. Lost environments are reset.
    """

    def __init__(self, manager: BaseEnvManager) -> None:
        self._manager = manager
        self.halves = [list(range(manager.env_num))]
        self._timesteps: Dict[int, BaseEnvTimestep] = {}

    def first_obs(self, env_ids: Sequence[int], out: Optional[np.ndarray] = None) -> np.ndarray:
        """The observations that wait for an action; ``RuntimeError`` if some environments have none."""
        ready = self._manager.ready_obs
        if len(ready) != self._manager.env_num:
            raise RuntimeError(
                f'the env manager has observations of {len(ready)} of {self._manager.env_num} environments; the '
                'collector `rollout` expects one that steps all of them at once, such as `breakout`'
            )
        return np.stack([ready[env_id] for env_id in env_ids], out=out)

    def send(self, actions: np.ndarray, env_ids: Sequence[int]) -> None:
        """Step the environments."""
        self._timesteps = self._manager.step({env_id: np.asarray(a) for env_id, a in zip(env_ids, actions)})

    def recv(self, out: Optional[np.ndarray] = None) -> StepBatch:
        """The step's results."""
        env_ids, timesteps = self.halves[0], self._timesteps
        reward, done = np.zeros(len(env_ids), np.float32), np.zeros(len(env_ids), np.bool_)
        infos: Dict[int, Any] = {}
        final_obs: Dict[int, Any] = {}
        lost: List[int] = []
        for row, env_id in enumerate(env_ids):
            timestep = timesteps[env_id]
            if timestep.info.get('abnormal', False):
                lost.append(env_id)
                infos[row] = timestep.info
                continue
            reward[row], done[row] = np.asarray(timestep.reward).item(), bool(timestep.done)
            if timestep.done:
                infos[row] = timestep.info
                last = final_obs_of(self._manager, env_id, timestep)
                final_obs.update({} if last is None else {row: last})
        if lost:
            self._manager.reset(dict.fromkeys(lost))
        return StepBatch(env_ids, self.first_obs(env_ids, out), reward, done, infos, final_obs)
