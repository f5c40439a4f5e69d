"""The env manager for DI-engine's task pipelines."""

import numpy as np
import treetensor.numpy as tnp
from ding.utils import ENV_MANAGER_REGISTRY, make_key_as_identifier, remove_illegal_item

from .manager import GroupEnvManager
from .shared_buffers import is_abnormal


@ENV_MANAGER_REGISTRY.register('breakout_v2')
class GroupEnvManagerV2(GroupEnvManager):
    """``GroupEnvManager`` for DI-engine's task pipelines: stacked observations, a list of timesteps.

    Examples:
        >>> from functools import partial
        >>> from breakout_env import BreakoutEnv, GroupEnvManagerV2
        >>> manager = GroupEnvManagerV2([partial(BreakoutEnv, {})] * 2, dict(worker_num=1))
        >>> manager.launch()
        >>> manager.ready_obs.shape
        (2, 4, 84, 84)
        >>> [int(timestep.env_id) for timestep in manager.step([[0], [0]])]
        [0, 1]
        >>> manager.close()
    """

    @property
    def ready_obs(self) -> tnp.ndarray:
        """The observations that wait for an action, stacked in the order of ``ready_obs_id``."""
        return tnp.stack([tnp.array(obs) for obs in super().ready_obs.values()])

    def step(  # type: ignore[override]  # as in DI-engine: its v2 managers derive from those with dicts
        self, actions: list[np.ndarray] | tnp.ndarray | np.ndarray
    ) -> list[tnp.ndarray]:
        """Step the environments that wait for an action, in the order of ``ready_obs_id``. Returns ``obs``, ``reward``,
        ``done``, ``info`` and ``env_id`` of each. A lost worker is a RuntimeError, and the manager is closed: task
        pipelines know no lost steps.
        """
        ready = self.ready_obs_id
        if isinstance(actions, tnp.ndarray):  # iterating a tree would give its keys
            actions = [actions[i] for i in range(len(ready))]
        timesteps = super().step(dict(zip(ready, actions)))
        trees = []
        for env_id, (obs, reward, done, info) in timesteps.items():
            if obs is None and is_abnormal(info):
                self.close()
                raise RuntimeError(f'environment {env_id} lost a step: {info.get("error", "it says so itself")}')
            # a key of info becomes an attribute, so it has to be an identifier
            info = remove_illegal_item(make_key_as_identifier(info))
            trees.append(tnp.array(dict(obs=obs, reward=reward, done=done, info=info, env_id=env_id)))
        return trees
