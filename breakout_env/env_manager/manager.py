"""DI-engine's env manager interface over a few worker processes, each with a group of environments."""

from types import MethodType
from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY

from .batches import BatchedManager
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps


@ENV_MANAGER_REGISTRY.register('breakout')
class GroupEnvManager(BatchedManager):
    """
    Overview:
        Steps environments in a few processes, by default one for each core, each with a group of them: one message to \
        a process and step where DI-engine's ``subprocess`` sends one to each environment, and results in shared \
        memory. A step is over when all its environments are, so that runs are repeatable. The interface is that of \
        DI-engine's managers, for any of its environments; ``send`` and ``recv`` are for batches in arrays.

        A process that dies or does not answer in time costs only its own environments the episodes they were in. \
        ``step`` returns these with DI-engine's mark of a lost step, ``info['abnormal']``. ``reset`` starts them in a \
        new process, as DI-engine's collectors request; for callers that do not request it, such as its evaluators, \
        the next access to the ready observations does (with ``auto_reset``).
    Examples:
        >>> from functools import partial
        >>> from breakout_env import BreakoutEnv, GroupEnvManager
        >>> manager = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=1))
        >>> manager.launch()
        >>> timesteps = manager.step({env_id: 0 for env_id in manager.ready_obs_id})
        >>> [timesteps[env_id].obs.shape for env_id in (0, 1)]
        [(4, 84, 84), (4, 84, 84)]
        >>> for half in manager.halves:
        ...     manager.send(np.zeros(len(half), np.int64), half)
        >>> [manager.recv().obs.shape for _ in manager.halves]
        [(1, 4, 84, 84), (1, 4, 84, 84)]
        >>> manager.close()
    """

    # The last observations of the episodes that ended in the last ``step``, which with ``reset_inplace`` are not in its
    # timesteps.
    final_obs: Dict[int, Any]

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``env.manager`` of a merged config; a ValueError names what is wrong."""
        EnvManagerOptions.read(cfg['env']['manager'])

    # ---- launching and closing

    def _create_state(self) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._ready_obs: Dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._reset_param: Dict[int, Optional[dict]] = {env_id: {} for env_id in range(self._env_num)}
        self.final_obs = {}
        self._closed = False
        try:
            if self._options.shared_memory and self._shared is None:
                spaces = self._observation_space, self._reward_space
                self._shared = SharedSteps(self._pool.context, self._env_num, *spaces)
            self._pool.start(self._shared)
            for worker in self._pool.workers:
                self._prepare(worker, worker.env_ids)
        except BaseException:  # a failed launch leaves no process
            self.close()
            raise
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.INIT)

    def close(self) -> None:
        """Close the environments and end the processes, within a bounded time and from any state."""
        self._pool.close()
        self._underway.clear()
        self._stale.clear()
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        self._lost.clear()
        self._unreported.clear()
        self._closed = True

    # ---- resetting

    def reset(self, reset_param: Optional[Mapping[int, Optional[dict]]] = None) -> None:
        """
        Overview:
            Reset environments, in all processes at once; those of a lost process get a new one.
        Arguments:
            - reset_param (:obj:`Optional[Mapping]`): Arguments of ``reset`` (dict or None) by environment; None for \
                all environments, with the arguments they had last.
        Raises:
            - RuntimeError: If one can not be reset; the manager is closed then.
        """
        self._check_closed()
        self._settle()
        reset_param = self._reset_param if reset_param is None else reset_param
        self._reset_param.update(reset_param)
        self._retry_reset(self._try_reset(set(reset_param)))
        self._unreported.difference_update(reset_param)  # the caller knows that their episodes are over

    # ---- stepping

    def step(self, actions: Mapping[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """
        Overview:
            Step environments, and begin a new episode where one ended.
        Arguments:
            - actions (:obj:`Mapping[int, Any]`): An action for each environment that is to be stepped.
        Returns:
            - timesteps (:obj:`Dict[int, BaseEnvTimestep]`): One for each of them, in this order; after those, one \
                with ``info['abnormal']`` for any other environment that was lost with its process. Observations and \
                rewards are in memory of their own, which the environments of a step share.
        Raises:
            - Exception: What an environment raised; the manager is closed then.
        """
        self._check_closed()
        self._settle()
        self._check_running(actions)
        try:
            step = self._begin(actions, only_news=False)
            results = self._finish(step)
        except BaseException:  # interrupted: environments took steps whose results are lost, so they need a reset
            for env_id in actions:
                if self._env_states[env_id] == EnvState.RUN:
                    self._env_states[env_id] = EnvState.NEED_RESET
            raise
        timesteps = self._end_step(step, results)
        begun = [env_id for env_id, result in results.items() if type(result) is tuple]
        self.final_obs = {env_id: timesteps[env_id].obs for env_id in begun}
        if self._options.reset_inplace:
            for env_id in begun:
                timesteps[env_id] = timesteps[env_id]._replace(obs=self._ready_obs[env_id])
        return {env_id: timesteps.pop(env_id) for env_id in actions} | timesteps

    # ---- the rest of DI-engine's interface

    @property
    def ready_obs(self) -> Dict[int, Any]:
        """The observations that wait for an action, by environment."""
        self._settle()
        self._restart_lost()
        return super().ready_obs

    @property
    def ready_obs_id(self) -> List[int]:
        """The environments that wait for an action."""
        self._settle()
        self._restart_lost()
        return super().ready_obs_id

    def seed(self, seed: Union[Dict[int, int], List[int], int], dynamic_seed: Optional[bool] = None) -> None:
        """Set the seeds that the next reset passes on, as ``BaseEnvManager.seed``."""
        # DI-engine 0.5.3 empties the list that it is given
        super().seed(list(seed) if isinstance(seed, list) else seed, dynamic_seed)

    @property
    def ready_imgs(self) -> Dict[int, np.ndarray]:
        """Pictures of the environments that wait for an action, as ``ding.utils.render`` makes them."""
        self._check_closed()
        images: Dict[int, np.ndarray] = {}
        ready = set(self.ready_obs_id)
        for worker in self._pool.workers:
            ours = [env_id for env_id in worker.env_ids if env_id in ready]
            if ours:
                images.update(self._pool.ask(worker, 'images', ours))
        return images

    def reward_shaping(self, env_id: int, transitions: List[dict]) -> List[dict]:
        """Let an environment shape the rewards of an episode, as ``BaseEnvManager.reward_shaping``."""
        return self._call(env_id, 'reward_shaping', transitions)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Have an environment save figures in a folder."""
        self._call(env_id, 'enable_save_figure', figure_path)

    def _call(self, env_id: int, method: str, *args: Any) -> Any:
        self._check_closed()
        self._settle()
        return self._pool.ask(self._pool.worker_of(env_id), 'call', env_id, method, *args)

    def __getattr__(self, key: str) -> Any:
        """A list of an attribute of each environment; ``RuntimeError`` for a method."""
        if key.startswith('__') or '_env_ref' not in self.__dict__:  # this object is being copied, or is half made
            raise AttributeError(key)
        if not hasattr(self._env_ref, key):
            raise AttributeError(f'env `{type(self._env_ref)}` has no attribute `{key}`')
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f'`{key}` is a method; an env manager passes on attributes of its environments only')
        self._check_closed()
        self._settle()
        values: Dict[int, Any] = {}
        for worker in self._pool.workers:
            if worker.lost:
                values.update(dict.fromkeys(worker.env_ids))  # they have none before they are reset
            else:
                values.update(self._pool.ask(worker, 'attribute', key))
        return [values[env_id] for env_id in range(self._env_num)]
