"""DI-engine's env manager interface, and one of arrays, over a few processes with a group of environments each."""

import logging
import math
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from ding.envs import BaseEnv, BaseEnvManager, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY, render
from easydict import EasyDict

from ..utils.options import describe
from .errors import EnvNotReady, NoStepPending, ResetFailed, StepPending, WorkerLost
from .options import EnvManagerOptions
from .pool import Command, WorkerPool, replies_to, send
from .recovery import Recovery
from .shared_buffers import SharedSteps, StepBatch, is_abnormal
from .worker_main import StepReply

logger = logging.getLogger(__name__)


class _Step(NamedTuple):
    """A step under way: its actions, the commands to the workers, and timesteps of environments that they lost."""

    actions: Mapping[int, object]
    commands: list[Command]
    lost: dict[int, BaseEnvTimestep]


@ENV_MANAGER_REGISTRY.register('breakout')
class GroupEnvManager(BaseEnvManager):
    """Steps environments in a few processes, by default one for each core: one message to a process and step, results
    in shared memory. A step is over when all its environments are, so that runs are repeatable.

    Beside DI-engine's interface there is one of arrays, with EnvPool's two calls in an order that the caller fixes:
    ``send`` gives some environments their actions, ``recv`` waits for the oldest step under way::

        workers     half 0 | half 1 | half 0 | half 1
        caller               act 0  | act 1  | act 0     receives a half, chooses its actions, sends them

    A process that dies or hangs costs only the episodes of its environments. ``step`` returns these with DI-engine's
    mark of a lost step, ``info['abnormal']``. ``reset``, which DI-engine's collectors call then, starts them in a new
    process; without it, the next access to the ready observations does (with ``auto_reset``), in batches ``recv``.

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

    config = EnvManagerOptions().model_dump()

    def __init__(self, env_fn: Sequence[Callable], cfg: Mapping | None = None) -> None:
        """Check the functions that make environments, and the options. A ValueError names what is wrong."""
        self._options = EnvManagerOptions.read(cfg)
        if not (isinstance(env_fn, Sequence) and env_fn and all(map(callable, env_fn))):
            raise ValueError(f'env_fn is {describe(env_fn)}; expected a list with a function for each environment')
        super().__init__(env_fn, EasyDict(self._options.model_dump()))
        self._connect_timeout = self._options.connect_timeout  # DI-engine's name, as its tests expect
        self.pool = WorkerPool(self._options, self._env_num)
        self._shared = SharedSteps(self.pool.context, self._env_num, self._observation_space, self._reward_space)
        # Observations that wait for an action; one that is missing here is in shared memory.
        self._ready_obs: dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._recovery = Recovery(self.pool, self._options, self._env_states, self._ready_obs)
        self._underway: deque[_Step] = deque()
        # The last observations of episodes that ended in ``step``; with ``reset_inplace`` its timesteps lack them.
        self.final_obs: dict[int, object] = {}

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check ``env.manager`` of a merged config; a ValueError names what is wrong."""
        EnvManagerOptions.read(cfg['env']['manager'])

    def _create_state(self) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._recovery.reset_kwargs.update({env_id: {} for env_id in range(self._env_num)})
        self._closed = False
        env_fns = self._env_fn
        if self._env_replay_path is not None:
            env_fns = [partial(_make_recorded, *one) for one in zip(env_fns, self._env_replay_path)]
        try:
            self.pool.start(env_fns, self._shared)
        except BaseException:  # a failed launch leaves no process
            self.close()
            raise
        self._recovery.reseed(range(self._env_num))

    def close(self) -> None:
        """Close the environments and end the processes, within a bounded time and from any state."""
        self.pool.close()
        self._underway.clear()
        self._env_states.update(dict.fromkeys(range(self._env_num), EnvState.VOID))
        self._recovery.lost.clear()
        self._closed = True

    def reset(self, reset_param: Mapping[int, dict | None] | None = None) -> None:
        """Reset environments, in all processes at once; a new process replaces a lost one.

        Arguments:
            reset_param: Arguments of ``reset`` by environment; None for all environments, with their last arguments.
        Raises:
            ResetFailed: If one can not be reset; the manager is closed then.
            ValueError: If there is no such environment.
        """
        self._check_closed()
        self._drop_pending_steps()
        kwargs = self._recovery.reset_kwargs if reset_param is None else reset_param
        if unknown := set(kwargs).difference(self._env_states):
            raise ValueError(f'reset found no environments {unknown}; expected 0 to {self._env_num - 1}')
        self._recovery.reset_kwargs.update(kwargs)
        self._recover(self._recovery.reset, set(kwargs))

    def _recover(self, reset: Callable, *args: object) -> None:
        """Reset environments by the ``Recovery``; close if it fails."""
        try:
            reset(*args)
        except ResetFailed:
            self.close()
            raise

    # ---- steps by DI-engine's interface

    def step(self, actions: Mapping[int, object]) -> dict[int, BaseEnvTimestep]:
        """Step environments, and begin a new episode where one ended.

        Arguments:
            actions: An action for each environment to step.
        Returns:
            A timestep for each of them, in this order, then one with ``info['abnormal']`` for any other environment
            that was lost with its process. Observations and rewards are new arrays.
        Raises:
            Exception: What an environment raised; the manager is closed then.
        """
        self._check_closed()
        self._drop_pending_steps()
        self._check_ready(actions)
        try:
            step = self._start_step(actions, changed_only=False)
            replies = self._await_replies(step)
        except BaseException:  # interrupted: environments took steps whose results are lost, so they need a reset
            for env_id in actions:
                if self._env_states[env_id] == EnvState.RUN:
                    self._env_states[env_id] = EnvState.NEED_RESET
            raise
        timesteps = self._end_episodes(step, replies)
        begun = [env_id for env_id, reply in replies.items() if reply.next_episode is not None]
        self.final_obs = {env_id: timesteps[env_id].obs for env_id in begun}
        if self._options.reset_inplace:
            for env_id in begun:
                timesteps[env_id] = timesteps[env_id]._replace(obs=self._ready_obs[env_id])
        return {env_id: timesteps.pop(env_id) for env_id in actions} | timesteps

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations that wait for an action, by environment."""
        return {env_id: self._ready_obs[env_id] for env_id in self.ready_obs_id}

    @property
    def ready_obs_id(self) -> list[int]:
        """The environments that wait for an action."""
        self._drop_pending_steps()
        self._restart_lost()
        return super().ready_obs_id

    def _restart_lost(self) -> None:
        """Start lost environments again whose loss was reported, if the caller has not reset them."""
        if self._recovery.lost and self._auto_reset and not self._closed:
            self._recover(self._recovery.reset_reported)

    def _drop_pending_steps(self) -> None:
        """Receive and drop the steps under way; the ready observations are up to date then."""
        while self._underway:
            self.recv()
        if len(self._ready_obs) < self._env_num:
            env_ids = [env_id for env_id in range(self._env_num) if env_id not in self._ready_obs]
            self._ready_obs.update(zip(env_ids, self._shared.take_obs(env_ids)))

    # ---- steps in arrays

    @property
    def takes_batches(self) -> bool:
        """Whether ``send`` and ``recv`` work: they need arrays of one shape, ``auto_reset``, and no ``episode_num``."""
        return bool(self._shared.takes_batches and self._auto_reset and self._episode_num == math.inf)

    @property
    def halves(self) -> list[list[int]]:
        """Two halves of the environments, each with half of every process. All in one if no process has two, or if they
        run in this process, where none plays while the caller decides.
        """
        if self._options.context == 'inline':
            return [list(range(self.env_num))]
        middles = [(group, (len(group) + 1) // 2) for group in self.pool.groups]
        first = [env_id for group, middle in middles for env_id in group[:middle]]
        second = [env_id for group, middle in middles for env_id in group[middle:]]
        return [first, second] if second else [first]

    def waiting_obs(self, env_ids: Sequence[int], out: np.ndarray | None = None) -> np.ndarray:
        """The observations that wait for an action: :math:`(N, ...)`, in ``out`` if given."""
        ready = self.ready_obs
        return np.stack([ready[env_id] for env_id in env_ids], out=out)

    def send(self, actions: np.ndarray, env_ids: Sequence[int], with_infos: bool = False) -> None:
        """Begin a step of some environments. ``actions`` has an integer for each; ``with_infos`` makes ``recv`` return
        the ``info`` of all of them. Raises ``StepPending`` or ``EnvNotReady`` if one does not wait for an action.
        """
        self._check_closed()
        if not self.takes_batches:
            raise ValueError('this env manager takes no batches: look at takes_batches')
        if np.size(actions) != len(env_ids):
            raise ValueError(f'send got {np.size(actions)} actions for {len(env_ids)} environments')
        self._restart_lost()
        self._check_ready(env_ids)
        # in numbers, as pickling an array takes ten times as long; the worker makes arrays of one number of them
        of_envs = dict(zip(env_ids, np.ravel(actions).tolist()))
        self._underway.append(self._start_step(of_envs, changed_only=not with_infos))
        if self._ready_obs:
            for env_id in env_ids:
                self._ready_obs.pop(env_id, None)

    def recv(self, out: np.ndarray | None = None) -> StepBatch:
        """Wait for the oldest step under way; may be repeated after an interruption. The observations go into ``out``
        if given. Raises ``NoStepPending``, and what an environment raised; the manager is closed then.
        """
        if not self._underway:
            raise NoStepPending('recv was called without a step under way; call send first')
        step = self._underway[0]
        env_ids = list(step.actions)
        replies = self._await_replies(step, env_ids)
        self._underway.popleft()
        reward, done = self._shared.take_ends(env_ids)
        batch = StepBatch(env_ids, self._shared.take_obs(env_ids, out), reward, done, {}, {})
        if replies or step.lost:
            self._enter_changes(step, replies, batch)
        return batch

    def _enter_changes(self, step: _Step, replies: Mapping[int, StepReply], batch: StepBatch) -> None:
        """Enter into a batch what shared memory does not have, and begin the next episodes."""
        row_of = {env_id: row for row, env_id in enumerate(batch.env_ids)}
        changes = {env_id: reply for env_id, reply in replies.items() if reply.timestep is not None}
        batch.infos.update((row_of[env_id], reply.info) for env_id, reply in replies.items() if env_id not in changes)
        timesteps = self._end_episodes(step, changes)
        for env_id, timestep in timesteps.items():
            batch.enter(row_of[env_id], timestep, timestep.obs)
        # but not the environments that `send` has started again since they were lost
        lost = {i for i, each in timesteps.items() if is_abnormal(each.info) and self._env_states[i] != EnvState.RUN}
        self._recover(self._recovery.reset, lost)
        for env_id in timesteps:
            batch.obs[row_of[env_id]] = self._ready_obs[env_id]

    # ---- steps by either interface

    def _check_ready(self, env_ids: Iterable[int]) -> None:
        states = {i: self._env_states.get(i) for i in env_ids}
        not_ready = {i: state.name if state else 'unknown' for i, state in states.items() if state != EnvState.RUN}
        if not_ready:
            raise EnvNotReady(f'step expects environments in state RUN; found {not_ready}')
        for step in self._underway:
            if pending := states.keys() & step.actions.keys():
                raise StepPending(f'a step of environments {sorted(pending)} is under way; call recv first')

    def _start_step(self, actions: Mapping[int, object], changed_only: bool) -> _Step:
        """Ask the workers for a step. ``changed_only``: whether they leave out replies that have only an info."""
        # These actions belong to games that died with their worker; the collector has to drop its part of them.
        step = _Step(actions, [], self._recovery.report(actions, 'its worker process had ended'))
        for worker in self.pool.workers:
            wanted = {i: actions[i] for i in worker.env_ids if i in actions and i not in step.lost}
            if wanted:
                step.commands.append(send(worker, self._options, 'step_timeout', 'step', wanted, changed_only))
        return step

    def _await_replies(self, step: _Step, reports: Sequence[int] | None = None) -> dict[int, StepReply]:
        """Wait for the replies, by environment; for a lost worker add abnormal timesteps to ``step.lost``, of
        ``reports`` only (None: all of its environments).
        """
        replies: dict[int, StepReply] = {}
        for worker, result, error in replies_to(step.commands):
            if error is None:
                replies.update({env_id: StepReply(*values) for env_id, values in result.items()})
            elif isinstance(error, WorkerLost):
                logger.warning('environments %s lost a step: %s', worker.env_ids, error)
                self._recovery.lose(worker)
                step.lost.update(self._recovery.report(worker.env_ids if reports is None else reports, str(error)))
            else:
                self.close()
                raise error.error from None
        return replies

    def _end_episodes(self, step: _Step, replies: Mapping[int, StepReply]) -> dict[int, BaseEnvTimestep]:
        """Turn replies into timesteps, begin the next episode where one ended, and add the timesteps of losses."""
        timesteps: dict[int, BaseEnvTimestep] = {}
        for env_id, (info, timestep, _) in replies.items():
            if timestep is None:
                timestep = self._shared.take_timestep(env_id, info)
            timesteps[env_id] = timestep
            self._ready_obs[env_id] = timestep.obs
        begun = {i: reply.next_episode for i, reply in replies.items() if reply.next_episode is not None}
        self._recover(self._recovery.retry, self._recovery.begin_episodes(begun))
        for env_id, timestep in timesteps.items():
            if is_abnormal(timestep.info):
                self._env_states[env_id] = EnvState.ERROR
            elif timestep.done:
                self._env_states[env_id] = self._end_episode(env_id)
        return {**timesteps, **step.lost}

    def _end_episode(self, env_id: int) -> EnvState:
        """Count an episode; the state that follows."""
        self._env_episode_count[env_id] += 1
        if self._env_episode_count[env_id] >= self._episode_num:
            return EnvState.DONE
        return EnvState.RUN if self._auto_reset else EnvState.NEED_RESET

    # ---- the rest of DI-engine's interface

    def seed(self, seed: dict[int, int] | list[int] | int, dynamic_seed: bool | None = None) -> None:
        """Set the seeds that the next reset passes on, as ``BaseEnvManager.seed``."""
        if not self._closed:
            self._drop_pending_steps()  # a step that lost an environment resets it, with the seeds before these
        # DI-engine 0.5.3 empties the list that it is given
        super().seed(list(seed) if isinstance(seed, list) else seed, dynamic_seed)
        self._recovery.next_seeds, self._recovery.dynamic_seed = self._env_seed, dynamic_seed

    @property
    def ready_imgs(self) -> dict[int, np.ndarray]:
        """Pictures of the environments that wait for an action, as ``ding.utils.render`` makes them."""
        return self._applied(self.ready_obs_id, render)

    def reward_shaping(self, env_id: int, transitions: list[dict]) -> list[dict]:
        """Let an environment shape the rewards of an episode, as ``BaseEnvManager.reward_shaping``."""
        return self._applied([env_id], methodcaller('reward_shaping', transitions)).get(env_id, transitions)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Have an environment save figures in a folder."""
        self._applied([env_id], methodcaller('enable_save_figure', figure_path))

    def _applied(self, env_ids: Iterable[int], function: Callable, *args: object) -> dict[int, Any]:
        """Call a function on some environments in their workers; lost workers are skipped."""
        self._check_closed()
        self._drop_pending_steps()
        asked = set(env_ids)
        workers = [worker for worker in self.pool.workers if not (worker.lost or asked.isdisjoint(worker.env_ids))]
        return dict(ChainMap(*self.pool.ask(workers, 'apply', asked, function, *args, skips_lost=True)))

    def __getattr__(self, key: str) -> Any:
        """An attribute's value in each environment (None for a lost one not reset yet); methods are refused."""
        if key.startswith('__') or '_env_ref' not in self.__dict__:  # this object is being copied, or is half made
            raise AttributeError(key)
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f'`{key}` is a method; an env manager passes on attributes of its environments only')
        values = self._applied(range(self._env_num), getattr, key, None)
        return [values.get(env_id) for env_id in range(self._env_num)]


def _make_recorded(env_fn: Callable[[], BaseEnv], replay_path: str) -> BaseEnv:
    env = env_fn()
    env.enable_save_replay(replay_path)
    return env
