"""DI-engine's env manager interface over a few worker processes, each with a group of environments."""

import logging
import math
import multiprocessing
import os
import platform
import time
import weakref
from types import MethodType
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Union

import numpy as np
import treetensor.numpy as tnp
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY, make_key_as_identifier, remove_illegal_item
from easydict import EasyDict

from ..utils.option_checks import section
from .options import read_options
from .shared_buffers import SharedSteps
from .worker_handle import GroupWorker, WorkerEnded, WorkerLost
from .worker_main import EnvFailed

logger = logging.getLogger(__name__)
# What workers get to close their environments (finish a video, close a window) before they are killed.
CLOSING_S = 5.0


@ENV_MANAGER_REGISTRY.register('breakout')
class GroupEnvManager(BaseEnvManager):
    """
    Overview:
        Steps environments in a few processes, by default one for each core, each with a group of them: one message to \
        a process and step where DI-engine's ``subprocess`` sends one to each environment, and results in shared \
        memory. A step is over when all its environments are, so that runs are repeatable. The interface is that of \
        DI-engine's managers, and any of its environments will do.

        A process that dies or does not answer in time costs its own environments the episodes they were in, and \
        nobody else anything. They come back from ``step`` as DI-engine marks a lost step, ``info['abnormal']``. \
        ``reset`` starts them again in a new process, as DI-engine's collectors ask it to; for whoever does not ask, \
        as its evaluators, the next look at the ready observations does (with ``auto_reset``).
    Interfaces:
        ``launch``, ``reset``, ``step``, ``seed``, ``close``, ``enable_save_replay``, ``enable_save_figure``, \
        ``reward_shaping``, ``random_action``, ``env_state_done``, ``default_config``.
    Properties:
        ``ready_obs``, ``ready_obs_id``, ``ready_imgs``, ``done``, ``closed``, ``env_num``, ``env_ref``, \
        ``observation_space``, ``action_space``, ``reward_space``, ``method_name_list``.
    """

    config = dict(
        # (float) Episodes each environment plays before it is done.
        episode_num=float('inf'),
        # (int) Tries of a reset before the manager gives up.
        max_retry=1,
        # (str) What is tried again: 'reset' the environment, or 'renew' it, which makes a new one.
        retry_type='reset',
        # (bool) Begin a new episode within the step that ended the last one.
        auto_reset=True,
        # (bool) Hand out the new episode's first observation in the timestep that ended the last one, as DI-engine's
        # process managers do by this name; False hands out the last one, as its ``base`` does.
        reset_inplace=True,
        # (float) Seconds for a step of one environment before its process counts as lost; None for no limit.
        step_timeout=60,
        # (float) Seconds for a reset of one environment; None for ``connect_timeout`` for all of a process.
        reset_timeout=None,
        # (float) Seconds between two tries of a reset.
        retry_waiting_time=0.1,
        # (int) Processes, at most one for each environment; None for one for each core that this process may use.
        worker_num=None,
        # (bool) Pass observations, rewards and ends through shared memory where they are arrays of the declared shape.
        shared_memory=True,
        # (str) How processes are started: 'fork' or 'spawn'.
        context='spawn' if platform.system().lower() == 'windows' else 'fork',
        # (float) Seconds for a process to start and make its environments.
        connect_timeout=60,
    )

    def __init__(self, env_fn: List[Callable], cfg: Mapping = EasyDict({})) -> None:
        """
        Overview:
            Check the config; ``launch`` starts the processes.
        Arguments:
            - env_fn (:obj:`List[Callable]`): What makes each environment.
            - cfg (:obj:`Mapping`): Options as in ``config``; those not named keep their defaults.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed; the message names the option.
        """
        self._workers: List[GroupWorker] = []
        # before EasyDict, which takes no keys but strings
        cfg = EasyDict({**self.default_config(), **section('the config of the env manager', cfg), **read_options(cfg)})
        super().__init__(env_fn, cfg)
        worker_num = _usable_cores() if cfg.worker_num is None else cfg.worker_num
        self._context = multiprocessing.get_context(cfg.context)
        self._connect_timeout = cfg.connect_timeout
        self._groups = [
            list(map(int, ids)) for ids in np.array_split(range(self._env_num), min(worker_num, self._env_num))
        ]
        self._shared: Optional[SharedSteps] = None
        self._given_seeds: Dict[int, tuple] = {}
        self._restarts = 0
        self._lost: Set[int] = set()  # with their process, and not reset since
        self._untold: Set[int] = set()  # lost outside of a step, so that no timestep has said so yet
        self._owner_pid = os.getpid()
        # a manager that is dropped without being closed does not leave its processes to the interpreter's end
        weakref.finalize(self, _end, self._workers, self._owner_pid)

    # ---- launching and closing

    def _create_state(self) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._ready_obs: Dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._reset_param: Dict[int, Optional[dict]] = {env_id: {} for env_id in range(self._env_num)}
        self._closed = False
        try:
            if self._cfg.shared_memory and self._shared is None:
                self._shared = SharedSteps(self._context, self._env_num, self._observation_space, self._reward_space)
            for env_ids in self._groups:  # one by one: close is to find those that were started before an error
                self._workers.append(self._start(env_ids))
            for worker in self._workers:
                self._open(worker)
        except BaseException:  # half a launch leaves no process
            self.close()
            raise
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.INIT)

    def _start(self, env_ids: List[int]) -> GroupWorker:
        env_fns = {env_id: self._env_fn[env_id] for env_id in env_ids}
        worker = GroupWorker(self._context, env_fns, self._shared, self._auto_reset, self._cfg.reset_inplace)
        worker.send('open')
        return worker

    def _open(self, worker: GroupWorker) -> None:
        """Wait until a process has made its environments."""
        self._result(worker.receive(self._connect_timeout))
        self._prepare(worker, worker.env_ids)

    def _prepare(self, worker: GroupWorker, env_ids: List[int]) -> None:
        """Give new environments what the old ones were given before their first reset."""
        for env_id in env_ids:
            if self._env_replay_path is not None:
                self._call(worker, env_id, 'enable_save_replay', self._env_replay_path[env_id])
            if env_id in self._given_seeds and self._env_seed[env_id] is None:
                seed, *dynamic = self._given_seeds[env_id]
                # environments whose games are to differ shall not play those again that they had before
                self._restarts += 1
                derived = np.random.SeedSequence([seed, self._restarts]).generate_state(1)[0] >> 1
                self._env_seed[env_id] = seed if dynamic == [False] else int(derived)

    def close(self) -> None:
        """
        Overview:
            Close the environments and end the processes, within a bounded time and from any state.
        """
        _end(self._workers, self._owner_pid)
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        self._lost.clear()
        self._untold.clear()
        self._closed = True

    # ---- resetting

    def reset(self, reset_param: Optional[Mapping[int, Optional[dict]]] = None) -> None:
        """
        Overview:
            Reset environments, in all processes at once; those of a lost process get a new one.
        Arguments:
            - reset_param (:obj:`Optional[Mapping]`): Arguments of ``reset`` (dict or None) for each environment that \
                is to be reset; None for all, with the arguments they had last.
        Raises:
            - RuntimeError: If one can not be reset; the manager is closed then.
        """
        self._check_closed()
        if reset_param is None:
            reset_param = self._reset_param
        self._reset_param.update(reset_param)
        self._reset(list(reset_param))
        self._untold.difference_update(reset_param)  # the caller has begun anew

    def _reset(self, env_ids: Iterable[int]) -> None:
        self._retry_reset(self._try_reset(set(env_ids)))

    def _retry_reset(self, errors: Dict[int, Exception]) -> None:
        """
        Go on after a first try in which some environments failed. A process that was killed is no failure of its
        environments, so that once does not count; twice is theirs, as where one crashes it.
        """
        tries_left, may_be_a_kill = self._max_retry - 1, True
        while errors:
            for error in errors.values():
                logger.info('a reset failed, %d tries left', tries_left, exc_info=error)
            if may_be_a_kill and all(isinstance(error, WorkerEnded) for error in errors.values()):
                may_be_a_kill = False
            elif tries_left > 0:
                tries_left -= 1
                time.sleep(self._retry_waiting_time)
            else:
                break
            errors = self._try_reset(set(errors))
        if not errors:
            return
        env_id, error = next(iter(errors.items()))
        message = f'Env {env_id} reset has exceeded max retries({self._max_retry})'
        logger.error(message)
        self.close()
        raise RuntimeError(f'{message}, and the latest exception is: {error}') from error

    def _try_reset(self, env_ids: Iterable[int]) -> Dict[int, Exception]:
        """Reset some environments; what went wrong with which."""
        errors: Dict[int, Exception] = {}
        waiting = []
        for index, worker in enumerate(self._workers):
            ours = [env_id for env_id in worker.env_ids if env_id in env_ids]
            if not ours:
                continue
            for env_id in ours:
                self._env_states[env_id] = EnvState.RESET
            try:
                if not worker.alive:
                    self._lose(worker)
                    worker = self._restart(index)
                worker.send('reset', {env_id: self._reset_param[env_id] for env_id in ours}, self._new_seeds(ours))
                waiting.append((worker, ours))
            except (WorkerLost, EnvFailed) as error:  # counts as a try; the caller decides about another
                self._lose(self._workers[index])
                errors.update(dict.fromkeys(ours, error))
        for worker, ours in waiting:
            timeout_s = self._connect_timeout if self._reset_timeout is None else self._reset_timeout * len(ours)
            try:
                errors.update(self._take_resets(worker, self._result(worker.receive(timeout_s))))
            except (WorkerLost, EnvFailed) as error:  # as above
                self._lose(worker)
                errors.update(dict.fromkeys(ours, error))
        return errors

    def _take_resets(self, worker: GroupWorker, results: Dict[int, Any]) -> Dict[int, Exception]:
        """Set the observations that episodes begin with; what went wrong with which."""
        errors: Dict[int, Exception] = {}
        in_shared_memory = [env_id for env_id, result in results.items() if result is None]
        observations = dict(zip(in_shared_memory, self._shared.take_obs(in_shared_memory) if in_shared_memory else ()))
        for env_id, result in results.items():
            if isinstance(result, EnvFailed):
                errors[env_id] = result.error
                self._env_states[env_id] = EnvState.ERROR
                if self._retry_type == 'renew':
                    self._renew(worker, env_id)
                continue
            self._ready_obs[env_id] = observations[env_id] if result is None else result[0]
            self._env_states[env_id] = EnvState.RUN
            self._lost.discard(env_id)
        return errors

    def _renew(self, worker: GroupWorker, env_id: int) -> None:
        """Put a new environment in the place of a failed one."""
        try:
            worker.send('renew', env_id)
            self._result(worker.receive(self._connect_timeout))
            self._prepare(worker, [env_id])
        except (WorkerLost, EnvFailed):  # the next try starts the process anew
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
        not_ready = {
            env_id: self._env_states[env_id].name for env_id in actions if self._env_states[env_id] != EnvState.RUN
        }
        assert not not_ready, f'step expects environments in state RUN; found {not_ready}'
        # The actions were chosen for games that are gone; the collector is to drop what it has of them.
        lost = {env_id: _abnormal('its worker process had ended') for env_id in self._untold.intersection(actions)}
        self._untold.difference_update(lost)
        try:
            results = self._step({env_id: action for env_id, action in actions.items() if env_id not in lost}, lost)
        except BaseException:  # interrupted: steps were played that nobody has seen; only a reset helps these games
            for env_id in actions:
                if self._env_states[env_id] == EnvState.RUN:
                    self._env_states[env_id] = EnvState.NEED_RESET
            raise
        timesteps = self._timesteps(results)
        self._note_ends(timesteps)
        next_episodes = {env_id: result[1] for env_id, result in results.items() if type(result) is tuple}
        if next_episodes:
            errors: Dict[int, Exception] = {}
            for worker in self._workers:
                ours = {env_id: result for env_id, result in next_episodes.items() if env_id in worker.env_ids}
                errors.update(self._take_resets(worker, ours))
            self._retry_reset(errors)
        timesteps.update(lost)
        return {env_id: timesteps.pop(env_id) for env_id in actions} | timesteps

    def _step(self, actions: Mapping[int, Any], lost: Dict[int, BaseEnvTimestep]) -> Dict[int, Any]:
        """What the workers send for a step; those of lost ones are added to ``lost``."""
        results: Dict[int, Any] = {}
        waiting = []
        for worker in self._workers:
            ours = {env_id: actions[env_id] for env_id in worker.env_ids if env_id in actions}
            if ours:
                try:
                    shape = None if self._shared is None else self._shared.put_actions(ours)
                    worker.send('step', ours if shape is None else list(ours), shape, self._last_episodes(ours))
                    waiting.append((worker, len(ours)))
                except WorkerLost as error:  # costs its environments a step, and nobody else anything
                    lost.update(self._lose_step(worker, error))
        for worker, count in waiting:
            try:
                timeout_s = None if self._step_timeout is None else self._step_timeout * count
                results.update(self._result(worker.receive(timeout_s)))
            except WorkerLost as error:  # as above
                lost.update(self._lose_step(worker, error))
            except EnvFailed as failure:  # the environment's own error is the caller's to see
                self._env_states[failure.env_id] = EnvState.ERROR
                self.close()
                raise failure.error from None
        return results

    def _timesteps(self, results: Dict[int, Any]) -> Dict[int, BaseEnvTimestep]:
        """What the workers sent and what they left in shared memory, put together; sets the ready observations."""
        timesteps: Dict[int, BaseEnvTimestep] = {}
        in_shared_memory = [env_id for env_id, result in results.items() if type(result) is dict]
        if in_shared_memory:
            columns = (
                self._shared.take_obs(in_shared_memory),
                self._shared.take_rewards(in_shared_memory),
                self._shared.take_dones(in_shared_memory),
            )
            for env_id, obs, reward, done in zip(in_shared_memory, *columns):
                timesteps[env_id] = BaseEnvTimestep(obs, reward, done, results[env_id])
                self._ready_obs[env_id] = obs
        for env_id, result in results.items():
            if type(result) is dict:
                continue
            timesteps[env_id] = result[0] if type(result) is tuple else result
            self._ready_obs[env_id] = timesteps[env_id].obs
        return timesteps

    def _last_episodes(self, env_ids: Iterable[int]) -> List[int]:
        """Those that are not to begin another episode. Resetting in place does so all the same, as DI-engine's does."""
        if self._cfg.reset_inplace or self._episode_num == math.inf:
            return []
        return [env_id for env_id in env_ids if self._env_episode_count[env_id] + 1 >= self._episode_num]

    def _note_ends(self, timesteps: Dict[int, BaseEnvTimestep]) -> None:
        for env_id, timestep in timesteps.items():
            if _is_abnormal(timestep):
                self._env_states[env_id] = EnvState.ERROR
            elif timestep.done:
                self._env_episode_count[env_id] += 1
                if self._env_episode_count[env_id] >= self._episode_num:
                    self._env_states[env_id] = EnvState.DONE
                elif not self._auto_reset:
                    self._env_states[env_id] = EnvState.NEED_RESET

    # ---- lost processes

    def _lose(self, worker: GroupWorker) -> None:
        """End a process that is of no use any more."""
        if not worker.lost:
            worker.end()
            playing = [env_id for env_id in worker.env_ids if self._env_states[env_id] != EnvState.DONE]
            self._env_states.update(dict.fromkeys(playing, EnvState.ERROR))
            self._lost.update(playing)
            self._untold.update(playing)

    def _lose_step(self, worker: GroupWorker, error: WorkerLost) -> Dict[int, BaseEnvTimestep]:
        logger.warning('environments %s lost a step: %s', worker.env_ids, error)
        self._lose(worker)
        lost = self._untold.intersection(worker.env_ids)
        self._untold.difference_update(lost)
        return {env_id: _abnormal(str(error)) for env_id in sorted(lost)}

    def _restart(self, index: int) -> GroupWorker:
        """A new process in the place of a lost one."""
        worker = self._workers[index] = self._start(self._groups[index])
        self._open(worker)
        return worker

    def _bring_back(self) -> None:
        """Start environments again that were lost with their process and that nobody has reset since."""
        if self._lost and self._auto_reset and not self._closed:
            self._reset(sorted(self._lost))

    # ---- the rest of DI-engine's interface

    @property
    def ready_obs(self) -> Dict[int, Any]:
        """
        Overview:
            The observations that wait for an action, by environment.
        """
        self._bring_back()
        return super().ready_obs

    @property
    def ready_obs_id(self) -> List[int]:
        """
        Overview:
            The environments that wait for an action.
        """
        self._bring_back()
        return super().ready_obs_id

    def seed(self, seed: Union[Dict[int, int], List[int], int], dynamic_seed: Optional[bool] = None) -> None:
        """
        Overview:
            Set the seeds that the next reset hands out, as ``BaseEnvManager.seed``.
        """
        # a list is used up entry by entry, and need not be the caller's
        super().seed(list(seed) if isinstance(seed, list) else seed, dynamic_seed)

    @property
    def ready_imgs(self, render_mode: Optional[str] = 'rgb_array') -> Dict[int, np.ndarray]:
        """
        Overview:
            Pictures of the environments that wait for an action.
        Returns:
            - images (:obj:`Dict[int, np.ndarray]`): As ``ding.utils.render`` makes them.
        """
        self._check_closed()
        images: Dict[int, np.ndarray] = {}
        ready = set(self.ready_obs_id)
        for worker in self._workers:
            ours = [env_id for env_id in worker.env_ids if env_id in ready]
            if ours:
                worker.send('images', ours, render_mode)
                images.update(self._result(worker.receive(self._connect_timeout)))
        return images

    def reward_shaping(self, env_id: int, transitions: List[dict]) -> List[dict]:
        """Let an environment shape the rewards of an episode, as ``BaseEnvManager.reward_shaping``."""
        return self._call(self._worker_of(env_id), env_id, 'reward_shaping', transitions)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Have an environment save figures in a folder."""
        self._call(self._worker_of(env_id), env_id, 'enable_save_figure', figure_path)

    def __getattr__(self, key: str) -> List[Any]:
        """
        Overview:
            An attribute of each environment.
        Raises:
            - AttributeError: If the environments have none of this name.
            - RuntimeError: If it is a method.
        """
        if key.startswith('__') or '_env_ref' not in self.__dict__:  # this object is being copied, or is half made
            raise AttributeError(key)
        if not hasattr(self._env_ref, key):
            raise AttributeError(f'env `{type(self._env_ref)}` has no attribute `{key}`')
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f'`{key}` is a method; an env manager hands out attributes of its environments only')
        self._check_closed()
        values: Dict[int, Any] = {}
        for worker in self._workers:
            if worker.lost:
                values.update(dict.fromkeys(worker.env_ids))  # they have none before they are reset
                continue
            worker.send('attribute', key)
            values.update(self._result(worker.receive(self._connect_timeout)))
        return [values[env_id] for env_id in range(self._env_num)]

    def _worker_of(self, env_id: int) -> GroupWorker:
        self._check_closed()
        return next(worker for worker in self._workers if env_id in worker.env_ids)

    def _call(self, worker: GroupWorker, env_id: int, method: str, *args: Any) -> Any:
        worker.send('call', env_id, method, *args)
        return self._result(worker.receive(self._connect_timeout))

    @staticmethod
    def _result(answer: Any) -> Any:
        if isinstance(answer, EnvFailed):
            raise answer
        return answer


@ENV_MANAGER_REGISTRY.register('breakout_v2')
class GroupEnvManagerV2(GroupEnvManager):
    """
    Overview:
        ``GroupEnvManager`` for DI-engine's task pipelines: stacked observations in, a list of timesteps out.
    """

    @property
    def ready_obs(self) -> tnp.ndarray:
        """
        Overview:
            The observations that wait for an action, stacked in the order of ``ready_obs_id``.
        """
        return tnp.stack([tnp.array(obs) for obs in super().ready_obs.values()])

    def step(self, actions: Union[List[np.ndarray], tnp.ndarray, np.ndarray]) -> List[tnp.ndarray]:
        """
        Overview:
            Step the environments that wait for an action.
        Arguments:
            - actions (:obj:`Union[List[np.ndarray], np.ndarray]`): One for each, in the order of ``ready_obs_id``.
        Returns:
            - timesteps (:obj:`List[tnp.ndarray]`): ``obs``, ``reward``, ``done``, ``info`` and ``env_id`` of each. \
                Task pipelines know no lost step: there an environment whose process was lost ends its episode as \
                cut off (``info.abnormal``), with the observation it had, no reward and a return of NaN, and begins \
                a new one. A learner takes that for an end, and the mean of an evaluation is NaN then, as its games \
                are not all known.
        """
        before, ready = dict(self._ready_obs), self.ready_obs_id
        timesteps = super().step(dict(zip(ready, actions)))
        lost = [env_id for env_id, timestep in timesteps.items() if timestep.obs is None and _is_abnormal(timestep)]
        if lost:
            self.reset({env_id: self._reset_param[env_id] for env_id in lost})
        return [
            _tree(env_id, _cut_off(timesteps[env_id], before[env_id]) if env_id in lost else timesteps[env_id])
            for env_id in ready[: len(actions)]
        ]


def _cut_off(timestep: BaseEnvTimestep, obs: Any) -> BaseEnvTimestep:
    info = {**timestep.info, 'TimeLimit.truncated': True, 'eval_episode_return': np.float32(np.nan)}
    return BaseEnvTimestep(obs, np.zeros(1, np.float32), True, info)


def _tree(env_id: int, timestep: BaseEnvTimestep) -> tnp.ndarray:
    # a key of info becomes an attribute, so it has to be an identifier
    info = remove_illegal_item(make_key_as_identifier(timestep.info))
    return tnp.array(
        {'obs': timestep.obs, 'reward': timestep.reward, 'done': timestep.done, 'info': info, 'env_id': env_id}
    )


def _abnormal(error: str) -> BaseEnvTimestep:
    """DI-engine's mark of a lost step."""
    return BaseEnvTimestep(None, None, None, {'abnormal': True, 'error': error})


def _is_abnormal(timestep: BaseEnvTimestep) -> bool:
    return isinstance(timestep.info, dict) and timestep.info.get('abnormal', False)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _end(workers: List[GroupWorker], owner_pid: int) -> None:
    """End processes and forget them; in a fork, which has no say in them, only forget them."""
    ours = os.getpid() == owner_pid
    if ours:
        for worker in workers:
            worker.ask_to_end()
        deadline = time.monotonic() + CLOSING_S
        for worker in workers:
            worker.end(deadline)
    workers.clear()
