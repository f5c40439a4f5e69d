"""Steps of many environments in arrays, a half of them acted for while the other half plays."""

import logging
import math
from collections import deque
from typing import Any, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState

from .recovery import RecoveringManager
from .worker_main import EnvFailed, is_abnormal
from .workers import Exchange, Request, WorkerLost

logger = logging.getLogger(__name__)


class StepBatch(NamedTuple):
    """
    Overview:
        One step of each of some environments, in rows: the observations that wait for an action (where an episode \
        ended, the first one of the next), rewards and dones. ``infos``, by row, are those of episodes that ended or \
        were lost (``info['abnormal']``, with no reward); ``final_obs``, by row, the last observations of those that \
        ended, as far as the manager has them.
    Shapes:
        - obs: :math:`(N, ...)`; reward: :math:`(N)`, float32; done: :math:`(N)`, bool.
    """

    env_ids: Sequence[int]
    obs: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: Dict[int, Dict[str, Any]]
    final_obs: Dict[int, Any]


class _Underway(NamedTuple):
    """A step that workers have been asked for, and timesteps of environments that were lost before or in it."""

    env_ids: Sequence[int]
    exchange: Exchange
    lost: Dict[int, BaseEnvTimestep]


class BatchedManager(RecoveringManager):
    """
    Overview:
        The part of ``GroupEnvManager`` that steps environments. Its array interface has EnvPool's two calls, in an \
        order that the caller fixes, so that runs are repeatable::

            workers     half 0 | half 1 | half 0 | half 1
            caller               act 0  | act 1  | act 0     receives a half, chooses its actions, sends them

        ``send`` gives some environments their actions and returns; ``recv`` waits for the oldest step under way. \
        Episodes begin by themselves, those lost with a worker process, too. DI-engine's interface may be used between \
        steps; steps under way are received and dropped then.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As ``RecoveringManager``."""
        super().__init__(*args, **kwargs)
        self._underway: Deque[_Underway] = deque()
        # Environments whose newest observation is in shared memory only.
        self._stale: Set[int] = set()

    @property
    def takes_batches(self) -> bool:
        """
        Whether the array interface can be used, after ``launch``: it needs shared memory, observations and rewards that
        are arrays of one shape, ``auto_reset``, and no ``episode_num``.
        """
        if self._shared is None or not self._shared.takes_batches:
            return False
        return bool(self._auto_reset and self._episode_num == math.inf)

    @property
    def halves(self) -> List[List[int]]:
        """The environments in two halves, each with half of every process; in one where a process has but one."""
        return self._pool.halves

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
        assert self._shared is not None, 'this env manager has no shared memory: look at takes_batches'
        if self._lost:
            self._fetch_underway()
            self._restart_lost()
        self._check_running(env_ids)
        # one by one in arrays of one number, as DI-engine's policies give them
        of_envs = dict(zip(env_ids, np.reshape(actions, (-1, 1))))
        self._underway.append(self._begin(of_envs, only_news=not with_infos))

    def recv(self, out: Optional[np.ndarray] = None) -> StepBatch:
        """
        Overview:
            Wait for the oldest step under way; may be repeated after an interruption.
        Arguments:
            - out (:obj:`Optional[np.ndarray]`): Where the observations go; new memory if None.
        Raises:
            - Exception: What an environment raised; the manager is closed then.
        """
        assert self._shared is not None and self._underway, 'recv was called without a step under way'
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
            news = self._end_step(step, {i: result for i, result in results.items() if type(result) is not dict})
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
            self._retry_reset(self._try_reset(lost))
        obs = self._shared.take_obs(step.env_ids, out)
        for env_id in news:
            obs[row_of[env_id]] = self._ready_obs[env_id]
        self._stale.update(step.env_ids)
        self._stale.difference_update(news)
        return StepBatch(step.env_ids, obs, reward, done, infos, final_obs)

    def _settle(self) -> None:
        """Receive and drop the steps under way; the ready observations are up to date then."""
        while self._underway:
            self.recv()
        if self._stale:
            assert self._shared is not None
            env_ids = sorted(self._stale)
            self._ready_obs.update(zip(env_ids, self._shared.take_obs(env_ids)))
            self._stale.clear()

    def _fetch_underway(self) -> None:
        for step in self._underway:
            step.exchange.answers()

    # ---- what both interfaces use

    def _check_running(self, env_ids: Iterable[int]) -> None:
        not_ready = {i: self._env_states[i].name for i in env_ids if self._env_states[i] != EnvState.RUN}
        assert not not_ready, f'step expects environments in state RUN; found {not_ready}'

    def _begin(self, actions: Mapping[int, Any], only_news: bool) -> _Underway:
        """Ask the workers for a step."""
        # These actions were chosen for games that no longer exist; the collector has to drop its part of them.
        lost = self._report(actions, 'its worker process had ended')
        return _Underway(list(actions), Exchange(self._step_requests(actions, lost, only_news)), lost)

    def _step_requests(self, actions: Mapping[int, Any], lost: Iterable[int], only_news: bool) -> Iterator[Request]:
        for worker in self._pool.workers:
            ours = {env_id: actions[env_id] for env_id in worker.env_ids if env_id in actions and env_id not in lost}
            if ours:
                timeout_s = None if self._step_timeout is None else self._step_timeout * len(ours)
                yield worker, timeout_s, ('step', ours, self._last_episodes(ours), only_news)

    def _last_episodes(self, env_ids: Iterable[int]) -> List[int]:
        """Those that must not begin another episode. With ``reset_inplace`` they do all the same, as in DI-engine."""
        if self._options.reset_inplace or self._episode_num == math.inf:
            return []
        return [env_id for env_id in env_ids if self._env_episode_count[env_id] + 1 >= self._episode_num]

    def _finish(self, step: _Underway, reports: Optional[Sequence[int]] = None) -> Dict[int, Any]:
        """
        What the workers send for a step. Timesteps of environments that are lost in it are added to those of the step;
        ``reports``: whose loss may be reported, None for all environments of the worker.
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

    def _timesteps(self, results: Dict[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """Join what the workers sent and what they left in shared memory; sets the ready observations."""
        timesteps: Dict[int, BaseEnvTimestep] = {}
        infos: Dict[bool, Dict[int, dict]] = {False: {}, True: {}}  # of those in shared memory
        for env_id, result in results.items():
            is_last = type(result) is tuple
            of_env = result[0] if is_last else result
            if type(of_env) is dict:
                infos[is_last][env_id] = of_env
            else:
                timesteps[env_id] = of_env
        for are_last, of_envs in infos.items():
            if of_envs:
                assert self._shared is not None
                obs, rewards, dones = self._shared.take_timesteps(list(of_envs), are_last)
                for row, (env_id, info) in enumerate(of_envs.items()):
                    timesteps[env_id] = BaseEnvTimestep(obs[row], rewards[row], bool(dones[row]), info)
        self._ready_obs.update((env_id, timestep.obs) for env_id, timestep in timesteps.items())
        return timesteps

    def _end_step(self, step: _Underway, results: Dict[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """The timesteps of what workers sent, and of losses; the episodes after those that ended have begun."""
        timesteps = self._timesteps(results)
        begun = {env_id: result[1] for env_id, result in results.items() if type(result) is tuple}
        if (
            step.lost
            or any(isinstance(r, EnvFailed) for r in begun.values())
            or any(map(is_abnormal, timesteps.values()))
        ):
            self._fetch_underway()  # nobody may wait for another answer of a worker while it is asked for a reset
        errors: Dict[int, Exception] = {}
        for env_id, first in begun.items():
            errors.update(self._start_episodes(self._pool.worker_of(env_id), {env_id: first}))
        self._retry_reset(errors)
        for env_id, timestep in timesteps.items():
            if is_abnormal(timestep):
                self._env_states[env_id] = EnvState.ERROR
            elif timestep.done:
                self._env_episode_count[env_id] += 1
                if self._env_episode_count[env_id] >= self._episode_num:
                    self._env_states[env_id] = EnvState.DONE
                    self._lost.discard(env_id)
                    self._unreported.discard(env_id)
                elif not self._auto_reset:
                    self._env_states[env_id] = EnvState.NEED_RESET
        return {**timesteps, **step.lost}
