"""DI-engine's env manager interface, and one of arrays, over a few processes with a group of environments each."""

import logging
import math
from collections import ChainMap, deque
from functools import partial
from operator import methodcaller
from types import MethodType
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY, render

from .options import EnvManagerOptions
from .recovery import RecoveringManager
from .shared_buffers import StepBatch
from .worker_main import EnvFailed, is_abnormal
from .workers import Exchange, Request, WorkerLost

logger = logging.getLogger(__name__)


class _Step(NamedTuple):
    """A step that workers were asked for, and timesteps of environments that were lost before or in it."""

    env_ids: Sequence[int]
    exchange: Exchange
    lost: Dict[int, BaseEnvTimestep]


@ENV_MANAGER_REGISTRY.register('breakout')
class GroupEnvManager(RecoveringManager):
    """
    Overview:
        Steps environments in a few processes, by default one for each core, each with a group of them: one message to \
        a process and step where DI-engine's ``subprocess`` sends one to each environment, and results in shared \
        memory. A step is over when all its environments are, so that runs are repeatable.

        The interface is that of DI-engine's managers, for any of its environments. There is another one for batches \
        in arrays, with EnvPool's two calls in an order that the caller fixes::

            workers     half 0 | half 1 | half 0 | half 1
            caller               act 0  | act 1  | act 0     receives a half, chooses its actions, sends them

        ``send`` gives some environments their actions and returns; ``recv`` waits for the oldest step under way. \
        Between them DI-engine's interface may be used; it receives and drops the steps under way.

        A process that dies or does not answer in time costs only its own environments the episodes they were in. \
        ``step`` returns these with DI-engine's mark of a lost step, ``info['abnormal']``. ``reset`` starts them in a \
        new process, as DI-engine's collectors request; for callers that do not request it, such as its evaluators, \
        the next access to the ready observations does (with ``auto_reset``), and in batches the step itself.
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

    def __init__(self, env_fn: List[Callable], cfg: Optional[Mapping] = None) -> None:
        """As ``RecoveringManager``."""
        super().__init__(env_fn, cfg)
        # Observations that wait for an action; one that is missing here is in shared memory.
        self._ready_obs: Dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._underway: Deque[_Step] = deque()
        # The last observations of the episodes that ended in the last ``step``, which with ``reset_inplace`` are not in
        # its timesteps.
        self.final_obs: Dict[int, Any] = {}

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``env.manager`` of a merged config; a ValueError names what is wrong."""
        EnvManagerOptions.read(cfg['env']['manager'])

    def _create_state(self) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._reset_param: Dict[int, Optional[dict]] = {env_id: {} for env_id in range(self._env_num)}
        self._closed = False
        env_fns = self._env_fn
        if self._env_replay_path is not None:
            env_fns = [partial(_make_recorded, *one) for one in zip(env_fns, self._env_replay_path)]
        try:
            self._pool.start(env_fns, self._shared)
        except BaseException:  # a failed launch leaves no process
            self.close()
            raise
        self._reseed(range(self._env_num))

    def close(self) -> None:
        """Close the environments and end the processes, within a bounded time and from any state."""
        self._pool.close()
        self._underway.clear()
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        self._lost.clear()
        self._closed = True

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
        assert not (unknown := set(reset_param).difference(self._env_states)), f'reset found no environments {unknown}'
        self._reset_param.update(reset_param)
        self._reset_envs(set(reset_param))

    # ---- steps by DI-engine's interface

    def step(self, actions: Mapping[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """
        Overview:
            Step environments, and begin a new episode where one ended.
        Arguments:
            - actions (:obj:`Mapping[int, Any]`): An action for each environment that is to be stepped.
        Returns:
            - timesteps (:obj:`Dict[int, BaseEnvTimestep]`): One for each of them, in this order; after those, one \
                with ``info['abnormal']`` for any other environment that was lost with its process. Observations and \
                rewards are in memory of their own.
        Raises:
            - Exception: What an environment raised; the manager is closed then.
        """
        self._check_closed()
        self._settle()
        self._check_ready(actions)
        try:
            step = self._begin(actions, only_news=False)
            results = self._finish(step)
        except BaseException:  # interrupted: environments took steps whose results are lost, so they need a reset
            for env_id in actions:
                if self._env_states[env_id] == EnvState.RUN:
                    self._env_states[env_id] = EnvState.NEED_RESET
            raise
        timesteps = self._end_episodes(step, results)
        begun = [env_id for env_id, result in results.items() if type(result) is tuple]
        self.final_obs = {env_id: timesteps[env_id].obs for env_id in begun}
        if self._options.reset_inplace:
            for env_id in begun:
                timesteps[env_id] = timesteps[env_id]._replace(obs=self._ready_obs[env_id])
        return {env_id: timesteps.pop(env_id) for env_id in actions} | timesteps

    @property
    def ready_obs(self) -> Dict[int, Any]:
        """The observations that wait for an action, by environment."""
        return {env_id: self._ready_obs[env_id] for env_id in self.ready_obs_id}

    @property
    def ready_obs_id(self) -> List[int]:
        """The environments that wait for an action."""
        self._settle()
        self._restart_lost()
        return super().ready_obs_id

    def _settle(self) -> None:
        """Receive and drop the steps under way; the ready observations are up to date then."""
        while self._underway:
            self.recv()
        if len(self._ready_obs) < self._env_num:
            env_ids = [env_id for env_id in range(self._env_num) if env_id not in self._ready_obs]
            self._ready_obs.update(zip(env_ids, self._shared.take_obs(env_ids)))

    # ---- steps in arrays

    @property
    def takes_batches(self) -> bool:
        """
        Whether the array interface can be used: it needs observations and rewards that are arrays of one shape,
        ``auto_reset``, and no ``episode_num``.
        """
        return bool(self._shared.takes_batches and self._auto_reset and self._episode_num == math.inf)

    @property
    def halves(self) -> List[List[int]]:
        """The environments in two halves, each with half of every process's; a single list if no process has two."""
        middles = [(group, (len(group) + 1) // 2) for group in self._pool.groups]
        first = [env_id for group, middle in middles for env_id in group[:middle]]
        second = [env_id for group, middle in middles for env_id in group[middle:]]
        return [first, second] if second else [first]

    def first_obs(self, env_ids: Sequence[int], out: Optional[np.ndarray] = None) -> np.ndarray:
        """The observations that wait for an action: :math:`(N, ...)`, in ``out`` if given."""
        ready = self.ready_obs
        return np.stack([ready[env_id] for env_id in env_ids], out=out)

    def send(self, actions: np.ndarray, env_ids: Sequence[int], with_infos: bool = False) -> None:
        """
        Overview:
            Begin a step of some environments, none of which is in a step under way.
        Arguments:
            - actions (:obj:`np.ndarray`): One integer for each: :math:`(N)`.
            - with_infos (:obj:`bool`): Whether ``recv`` returns the ``info`` of all of them.
        """
        self._check_closed()
        assert self.takes_batches, 'this env manager takes no batches: look at takes_batches'
        assert np.size(actions) == len(env_ids), f'send got {np.size(actions)} actions for {len(env_ids)} environments'
        self._restart_lost()
        self._check_ready(env_ids)
        # in numbers, as pickling an array takes ten times as long; the worker makes arrays of one number of them
        of_envs = dict(zip(env_ids, np.ravel(actions).tolist()))
        self._underway.append(self._begin(of_envs, only_news=not with_infos))
        if self._ready_obs:
            for env_id in env_ids:
                self._ready_obs.pop(env_id, None)

    def recv(self, out: Optional[np.ndarray] = None) -> StepBatch:
        """
        Overview:
            Wait for the oldest step under way; may be repeated after an interruption.
        Arguments:
            - out (:obj:`Optional[np.ndarray]`): Where the observations go; new memory if None.
        Raises:
            - Exception: What an environment raised; the manager is closed then.
        """
        assert self._underway, 'recv was called without a step under way'
        step = self._underway[0]
        results = self._finish(step, step.env_ids)
        self._underway.popleft()
        reward, done = self._shared.take_ends(list(step.env_ids))
        infos: Dict[int, Dict[str, Any]] = {}
        final_obs: Dict[int, Any] = {}
        news: Dict[int, BaseEnvTimestep] = {}
        if results or step.lost:
            row_of = {env_id: row for row, env_id in enumerate(step.env_ids)}
            infos.update((row_of[env_id], result) for env_id, result in results.items() if type(result) is dict)
            news = self._end_episodes(step, {i: result for i, result in results.items() if type(result) is not dict})
            for env_id, timestep in news.items():
                row = row_of[env_id]
                infos[row] = timestep.info
                if is_abnormal(timestep):
                    reward[row], done[row] = 0.0, False
                    continue
                reward[row], done[row] = np.asarray(timestep.reward).item(), bool(timestep.done)
                if timestep.done:
                    final_obs[row] = timestep.obs
            # but not those that `send` has started again since they were lost
            lost = {i for i, timestep in news.items() if is_abnormal(timestep) and self._env_states[i] != EnvState.RUN}
            self._reset_envs(lost)
        obs = self._shared.take_obs(step.env_ids, out)
        for env_id in news:
            obs[row_of[env_id]] = self._ready_obs[env_id]
        return StepBatch(step.env_ids, obs, reward, done, infos, final_obs)

    # ---- steps by either interface

    def _check_ready(self, env_ids: Iterable[int]) -> None:
        states = {i: self._env_states.get(i) for i in env_ids}
        not_ready = {i: state.name if state else 'unknown' for i, state in states.items() if state != EnvState.RUN}
        assert not not_ready, f'step expects environments in state RUN; found {not_ready}'

    def _begin(self, actions: Mapping[int, Any], only_news: bool) -> _Step:
        """Ask the workers for a step."""
        # These actions were chosen for games that no longer exist; the collector has to drop its part of them.
        lost = self._report(actions, 'its worker process had ended')
        return _Step(list(actions), Exchange(self._step_requests(actions, lost, only_news)), lost)

    def _step_requests(self, actions: Mapping[int, Any], lost: Iterable[int], only_news: bool) -> Iterator[Request]:
        # with `reset_inplace` another episode begins all the same, as in DI-engine
        limit = self._options.time_limit('step_timeout')
        may_be_last = not self._options.reset_inplace and self._episode_num < math.inf
        for worker in self._pool.workers:
            ours = {env_id: actions[env_id] for env_id in worker.env_ids if env_id in actions and env_id not in lost}
            if ours:
                last = [i for i in ours if may_be_last and self._env_episode_count[i] + 1 >= self._episode_num]
                yield worker, limit, ('step', ours, last, only_news)

    def _finish(self, step: _Step, reports: Optional[Sequence[int]] = None) -> Dict[int, Any]:
        """
        Wait for the answers; for a lost worker add abnormal timesteps to ``step.lost``, of ``reports`` only (None: all
        of its environments).
        """
        results: Dict[int, Any] = {}
        for worker, answer in step.exchange.answers():
            if isinstance(answer, WorkerLost):
                logger.warning('environments %s lost a step: %s', worker.env_ids, answer)
                self._lose(worker)
                step.lost.update(self._report(worker.env_ids if reports is None else reports, str(answer)))
            elif isinstance(answer, EnvFailed):
                self._env_states[answer.env_id] = EnvState.ERROR
                self.close()
                raise answer.error from None
            else:
                results.update(answer)
        return results

    def _end_episodes(self, step: _Step, results: Dict[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """Turn answers into timesteps, begin the next episode where one ended, and add the timesteps of losses."""
        timesteps: Dict[int, BaseEnvTimestep] = {}
        begun: Dict[int, Any] = {}
        for env_id, result in results.items():
            is_last = type(result) is tuple
            if is_last:
                result, begun[env_id] = result
            if type(result) is dict:
                result = self._shared.take_timestep(env_id, result, is_last)
            timesteps[env_id] = result
            self._ready_obs[env_id] = result.obs
        self._retry_reset(self._start_episodes(begun))
        for env_id, timestep in timesteps.items():
            if is_abnormal(timestep):
                self._env_states[env_id] = EnvState.ERROR
            elif timestep.done:
                self._env_episode_count[env_id] += 1
                if self._env_episode_count[env_id] >= self._episode_num:
                    self._env_states[env_id] = EnvState.DONE
                    self._lost.discard(env_id)
                elif not self._auto_reset:
                    self._env_states[env_id] = EnvState.NEED_RESET
        return {**timesteps, **step.lost}

    # ---- the rest of DI-engine's interface

    def seed(self, seed: Union[Dict[int, int], List[int], int], dynamic_seed: Optional[bool] = None) -> None:
        """Set the seeds that the next reset passes on, as ``BaseEnvManager.seed``."""
        if not self._closed:
            self._settle()  # a step under way that lost an environment resets it, with the seeds before these
        # DI-engine 0.5.3 empties the list that it is given
        super().seed(list(seed) if isinstance(seed, list) else seed, dynamic_seed)

    @property
    def ready_imgs(self) -> Dict[int, np.ndarray]:
        """Pictures of the environments that wait for an action, as ``ding.utils.render`` makes them."""
        return self._applied(self.ready_obs_id, render)

    def reward_shaping(self, env_id: int, transitions: List[dict]) -> List[dict]:
        """Let an environment shape the rewards of an episode, as ``BaseEnvManager.reward_shaping``."""
        return self._applied([env_id], methodcaller('reward_shaping', transitions)).get(env_id, transitions)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Have an environment save figures in a folder."""
        self._applied([env_id], methodcaller('enable_save_figure', figure_path))

    def _applied(self, env_ids: Iterable[int], function: Callable, *args: Any) -> Dict[int, Any]:
        """What a function gives for some environments; nothing for those of lost processes."""
        self._check_closed()
        self._settle()
        asked = set(env_ids)
        workers = [worker for worker in self._pool.workers if not (worker.lost or asked.isdisjoint(worker.env_ids))]
        return dict(ChainMap(*self._pool.ask(workers, 'apply', asked, function, *args, skips_lost=True)))

    def __getattr__(self, key: str) -> Any:
        """An attribute's value in each environment (None for a lost one not reset yet); methods are refused."""
        if key.startswith('__') or '_env_ref' not in self.__dict__:  # this object is being copied, or is half made
            raise AttributeError(key)
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f'`{key}` is a method; an env manager passes on attributes of its environments only')
        values = self._applied(range(self._env_num), getattr, key, None)
        return [values.get(env_id) for env_id in range(self._env_num)]


def _make_recorded(env_fn: Callable, replay_path: str) -> Any:
    env = env_fn()
    env.enable_save_replay(replay_path)
    return env
