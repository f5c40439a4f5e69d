"""DI-engine's env manager interface over a few worker processes, each with a group of environments."""

import logging
import math
import time
from types import MethodType
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Union

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict

from ..utils.options import section
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_handle import WorkerEnded, WorkerLost, WorkerProcess
from .worker_main import EnvFailed
from .worker_pool import Request, WorkerPool

logger = logging.getLogger(__name__)


@ENV_MANAGER_REGISTRY.register('breakout')
class GroupEnvManager(BaseEnvManager):
    """
    Overview:
        Steps environments in a few processes, by default one for each core, each with a group of them: one message to \
        a process and step where DI-engine's ``subprocess`` sends one to each environment, and results in shared \
        memory. A step is over when all its environments are, so that runs are repeatable. The interface is that of \
        DI-engine's managers, for any of its environments.

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
        >>> manager.close()
    """

    config = EnvManagerOptions().model_dump()
    # What starts a worker.
    _worker_class: Callable[..., WorkerProcess] = WorkerProcess

    def __init__(self, env_fn: List[Callable], cfg: Optional[Mapping] = None) -> None:
        """
        Arguments:
            - env_fn (:obj:`List[Callable]`): What makes each environment.
            - cfg (:obj:`Optional[Mapping]`): ``EnvManagerOptions``; those not named keep their defaults.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed; the message names the option.
        """
        self._options = EnvManagerOptions.read({**self.config, **section('the config of the env manager', cfg)})
        super().__init__(env_fn, EasyDict(self._options.model_dump()))
        self._connect_timeout = self._options.connect_timeout
        self._pool = WorkerPool(self._options, env_fn, self._worker_class)
        self._shared: Optional[SharedSteps] = None
        # The arguments of ``seed`` that each environment was given last.
        self._given_seeds: Dict[int, tuple] = {}
        self._reseed_count = 0
        # Environments lost with their process and not reset since; those of them that no timestep has reported yet.
        self._lost: Set[int] = set()
        self._unreported: Set[int] = set()

    # ---- launching and closing

    def _create_state(self) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._ready_obs: Dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._reset_param: Dict[int, Optional[dict]] = {env_id: {} for env_id in range(self._env_num)}
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

    def _prepare(self, worker: WorkerProcess, env_ids: Iterable[int]) -> None:
        """Give new environments what the old ones were given before their first reset."""
        for env_id in env_ids:
            if self._env_replay_path is not None:
                self._pool.ask(worker, 'call', env_id, 'enable_save_replay', self._env_replay_path[env_id])
            if env_id in self._given_seeds and self._env_seed[env_id] is None:
                seed, *dynamic = self._given_seeds[env_id]
                # environments whose games are to differ must not repeat the games that they played before
                self._reseed_count += 1
                derived = np.random.SeedSequence([seed, self._reseed_count]).generate_state(1)[0] >> 1
                self._env_seed[env_id] = seed if dynamic == [False] else int(derived)

    def close(self) -> None:
        """Close the environments and end the processes, within a bounded time and from any state."""
        self._pool.close()
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
        reset_param = self._reset_param if reset_param is None else reset_param
        self._reset_param.update(reset_param)
        self._retry_reset(self._try_reset(set(reset_param)))
        self._unreported.difference_update(reset_param)  # the caller knows that their episodes are over

    def _retry_reset(self, errors: Dict[int, Exception]) -> None:
        """
        Retry after a first attempt in which some environments failed. Whoever killed a process, it is no failure of
        its environments, so one such attempt does not count; a second one does, as an environment may crash it.
        """
        attempts_left, may_be_a_kill = self._max_retry - 1, True
        while errors:
            for error in errors.values():
                logger.info('a reset failed, %d attempts left', attempts_left, exc_info=error)
            if may_be_a_kill and all(isinstance(error, WorkerEnded) for error in errors.values()):
                may_be_a_kill = False
            elif attempts_left > 0:
                attempts_left -= 1
                time.sleep(self._retry_waiting_time)
            else:
                env_id, error = next(iter(errors.items()))
                message = f'Env {env_id} reset has exceeded max retries({self._max_retry})'
                logger.error(message)
                self.close()
                raise RuntimeError(f'{message}, and the latest exception is: {error}') from error
            errors = self._try_reset(set(errors))

    def _try_reset(self, env_ids: Set[int]) -> Dict[int, Exception]:
        """Reset some environments; the errors of those that failed."""
        errors: Dict[int, Exception] = {}
        for env_id in env_ids:
            self._env_states[env_id] = EnvState.RESET
        for index, worker in enumerate(self._pool.workers):
            ours = env_ids.intersection(worker.env_ids)
            if ours and not worker.alive:
                self._lose(worker)
                try:
                    self._prepare(self._pool.replace(index), worker.env_ids)
                except (WorkerLost, EnvFailed) as error:  # counts as an attempt; the caller decides about another
                    self._lose(self._pool.workers[index])
                    errors.update(dict.fromkeys(ours, error.with_traceback(None)))
        for worker, answer in self._pool.exchange(self._reset_requests(env_ids.difference(errors))):
            if isinstance(answer, (WorkerLost, EnvFailed)):  # as above
                self._lose(worker)
                errors.update(dict.fromkeys(env_ids.intersection(worker.env_ids), answer))
            else:
                errors.update(self._start_episodes(worker, answer))
        return errors

    def _reset_requests(self, env_ids: Collection[int]) -> Iterator[Request]:
        for worker in self._pool.workers:
            ours = [env_id for env_id in worker.env_ids if env_id in env_ids]
            if ours:
                timeout_s = self._reset_timeout and self._reset_timeout * len(ours)
                kwargs = {env_id: self._reset_param[env_id] for env_id in ours}
                yield worker, timeout_s or self._connect_timeout, ('reset', kwargs, self._new_seeds(ours))

    def _start_episodes(self, worker: WorkerProcess, results: Dict[int, Any]) -> Dict[int, Exception]:
        """Set the observations that episodes begin with; the errors of environments that could not be reset."""
        errors: Dict[int, Exception] = {}
        in_shared_memory = [env_id for env_id, result in results.items() if result is None]
        if in_shared_memory:
            assert self._shared is not None
            self._ready_obs.update(zip(in_shared_memory, self._shared.take_obs(in_shared_memory)))
        for env_id, result in results.items():
            if isinstance(result, EnvFailed):
                errors[env_id] = result.error
                self._env_states[env_id] = EnvState.ERROR
                if self._retry_type == 'renew':
                    self._renew(worker, env_id)
                continue
            self._env_states[env_id] = EnvState.RUN
            self._lost.discard(env_id)
            if result is not None:
                self._ready_obs[env_id] = result[0]
        return errors

    def _renew(self, worker: WorkerProcess, env_id: int) -> None:
        """Replace a failed environment by a new one."""
        try:
            self._pool.ask(worker, 'renew', env_id)
            self._prepare(worker, [env_id])
        except (WorkerLost, EnvFailed):  # the next attempt starts a new process
            self._lose(worker)

    def _new_seeds(self, env_ids: List[int]) -> Dict[int, tuple]:
        """Arguments of ``seed`` for those environments that have not had theirs yet."""
        seeds = {}
        for env_id in env_ids:
            if self._env_seed[env_id] is not None:
                dynamic = () if self._env_dynamic_seed is None else (self._env_dynamic_seed,)
                seeds[env_id] = self._given_seeds[env_id] = (self._env_seed[env_id], *dynamic)
                self._env_seed[env_id] = None
        return seeds

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
        not_ready = {i: self._env_states[i].name for i in actions if self._env_states[i] != EnvState.RUN}
        assert not not_ready, f'step expects environments in state RUN; found {not_ready}'
        # These actions were chosen for games that no longer exist; the collector has to drop its part of them.
        lost = self._report(actions, 'its worker process had ended')
        try:
            results = self._step({env_id: action for env_id, action in actions.items() if env_id not in lost}, lost)
        except BaseException:  # interrupted: environments took steps whose results are lost, so they need a reset
            for env_id in actions:
                if self._env_states[env_id] == EnvState.RUN:
                    self._env_states[env_id] = EnvState.NEED_RESET
            raise
        timesteps = self._timesteps(results)
        self._update_states(timesteps)
        errors: Dict[int, Exception] = {}
        for env_id, result in results.items():
            if type(result) is tuple:
                errors.update(self._start_episodes(self._pool.worker_of(env_id), {env_id: result[1]}))
        self._retry_reset(errors)
        timesteps.update(lost)
        return {env_id: timesteps.pop(env_id) for env_id in actions} | timesteps

    def _step(self, actions: Mapping[int, Any], lost: Dict[int, BaseEnvTimestep]) -> Dict[int, Any]:
        """What the workers send for a step; timesteps of environments that are lost in it are added to ``lost``."""
        results: Dict[int, Any] = {}
        for worker, answer in self._pool.exchange(self._step_requests(actions)):
            if isinstance(answer, WorkerLost):
                logger.warning('environments %s lost a step: %s', worker.env_ids, answer)
                self._lose(worker)
                lost.update(self._report(worker.env_ids, str(answer)))
            elif isinstance(answer, EnvFailed):
                self._env_states[answer.env_id] = EnvState.ERROR
                self.close()
                raise answer.error from None
            else:
                results.update(answer)
        return results

    def _step_requests(self, actions: Mapping[int, Any]) -> Iterator[Request]:
        for worker in self._pool.workers:
            ours = {env_id: actions[env_id] for env_id in worker.env_ids if env_id in actions}
            if ours:
                timeout_s = None if self._step_timeout is None else self._step_timeout * len(ours)
                shape = None if self._shared is None else self._shared.put_actions(ours)
                args = ours if shape is None else list(ours), shape, self._last_episodes(ours)
                yield worker, timeout_s, ('step', *args)

    def _timesteps(self, results: Dict[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """Join what the workers sent and what they left in shared memory; sets the ready observations."""
        timesteps: Dict[int, BaseEnvTimestep] = {}
        in_shared_memory = [env_id for env_id, result in results.items() if type(result) is dict]
        if in_shared_memory:
            assert self._shared is not None
            columns = self._shared.take_timesteps(in_shared_memory)
            for env_id, obs, reward, done in zip(in_shared_memory, *columns):
                timesteps[env_id] = BaseEnvTimestep(obs, reward, done, results[env_id])
                self._ready_obs[env_id] = obs
        for env_id, result in results.items():
            if type(result) is not dict:
                timesteps[env_id] = result[0] if type(result) is tuple else result
                self._ready_obs[env_id] = timesteps[env_id].obs
        return timesteps

    def _last_episodes(self, env_ids: Iterable[int]) -> List[int]:
        """Those that must not begin another episode. With ``reset_inplace`` they do all the same, as in DI-engine."""
        if self._options.reset_inplace or self._episode_num == math.inf:
            return []
        return [env_id for env_id in env_ids if self._env_episode_count[env_id] + 1 >= self._episode_num]

    def _update_states(self, timesteps: Dict[int, BaseEnvTimestep]) -> None:
        for env_id, timestep in timesteps.items():
            if is_abnormal(timestep):
                self._env_states[env_id] = EnvState.ERROR
            elif timestep.done:
                self._env_episode_count[env_id] += 1
                if self._env_episode_count[env_id] >= self._episode_num:
                    self._env_states[env_id] = EnvState.DONE
                elif not self._auto_reset:
                    self._env_states[env_id] = EnvState.NEED_RESET

    # ---- lost processes

    def _lose(self, worker: WorkerProcess) -> None:
        """End a process that can not be used any more."""
        if not worker.lost:
            worker.end()
            playing = [env_id for env_id in worker.env_ids if self._env_states[env_id] != EnvState.DONE]
            self._env_states.update(dict.fromkeys(playing, EnvState.ERROR))
            self._lost.update(playing)
            self._unreported.update(playing)

    def _report(self, env_ids: Iterable[int], error: str) -> Dict[int, BaseEnvTimestep]:
        """Timesteps with DI-engine's mark of a lost step for environments whose loss is not reported yet."""
        lost = self._unreported.intersection(env_ids)
        self._unreported -= lost
        return {env_id: BaseEnvTimestep(None, None, None, dict(abnormal=True, error=error)) for env_id in sorted(lost)}

    def _restart_lost(self) -> None:
        """Start lost environments again that the caller has not reset."""
        if self._lost and self._auto_reset and not self._closed:
            self._retry_reset(self._try_reset(set(self._lost)))

    # ---- the rest of DI-engine's interface

    @property
    def ready_obs(self) -> Dict[int, Any]:
        """The observations that wait for an action, by environment."""
        self._restart_lost()
        return super().ready_obs

    @property
    def ready_obs_id(self) -> List[int]:
        """The environments that wait for an action."""
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
        values: Dict[int, Any] = {}
        for worker in self._pool.workers:
            if worker.lost:
                values.update(dict.fromkeys(worker.env_ids))  # they have none before they are reset
            else:
                values.update(self._pool.ask(worker, 'attribute', key))
        return [values[env_id] for env_id in range(self._env_num)]


def is_abnormal(timestep: BaseEnvTimestep) -> bool:
    """Whether DI-engine's mark of a lost step is on a timestep."""
    return isinstance(timestep.info, dict) and timestep.info.get('abnormal', False)
