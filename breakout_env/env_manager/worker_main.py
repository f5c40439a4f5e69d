"""What runs in a worker process: a group of environments, and the loop that takes the manager's commands."""

import logging
import math
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import CloudPickleWrapper

from ..utils import signals
from .errors import EnvFailed
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps, is_abnormal

logger = logging.getLogger(__name__)
# How long an idle worker sleeps before it checks that the manager's process still exists.
CHECK_OWNER_MS = 1000
# Waking a process that sleeps takes some 0.1 ms on a virtual machine, much of an environment's step. While commands
# follow each other closely, a worker polls for the next one for this long before it sleeps, and yields its core at each
# poll. If its last wait was longer, as when a network chooses the actions, it sleeps at once.
POLL_COMMANDS_S = 0.0003


class ResetReply(NamedTuple):
    """The reset of one environment: its first observation, or its error."""

    obs: object = None
    error: Exception | None = None


class StepReply(NamedTuple):
    """A step of one environment. ``timestep`` is None if all but the info is in shared memory; where the step begins
    the next episode, ``next_episode`` says how.
    """

    info: dict
    timestep: BaseEnvTimestep | None = None
    next_episode: ResetReply | None = None


class EnvGroup:
    """Some environments in one process, stepped one after the other. The manager's commands are its public methods."""

    def __init__(self, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions) -> None:
        """``env_fns`` by index in the manager; ``shared``: where results go."""
        self.envs: dict[int, BaseEnv] = {}
        self._env_fns, self._shared, self._options = env_fns, shared, options
        self._reset_kwargs: dict[int, dict] = {env_id: {} for env_id in env_fns}
        self._seeds: dict[int, tuple] = {}  # that environments have not taken yet

    def carry_out(self, command: str, args: tuple) -> tuple[object, EnvFailed | None]:
        """The result of a command, or its error."""
        try:
            return getattr(self, command)(*args), None
        except EnvFailed as failed:
            return None, failed

    def open(self) -> None:
        for env_id in self._env_fns:
            self._renew(env_id)

    def _renew(self, env_id: int) -> None:
        if env_id in self.envs:
            self._call(env_id, self.envs.pop(env_id).close)
        self.envs[env_id] = self._call(env_id, self._env_fns[env_id])

    def step(self, actions: dict[int, object], changed_only: bool) -> dict[int, tuple]:
        """Step some environments; ``changed_only`` leaves out replies with only an info. A reply is a ``StepReply``
        as a plain tuple, which takes less time to pickle.
        """
        replies: dict[int, tuple] = {}
        for env_id, action in actions.items():
            if type(action) is int:  # environments get what DI-engine's policies give
                action = np.array([action])
            reply = self._call(env_id, self._step, env_id, action)
            if not (changed_only and reply.timestep is None):
                replies[env_id] = tuple(reply)
        return replies

    def _step(self, env_id: int, action: object) -> StepReply:
        timestep = self.envs[env_id].step(action)
        info = timestep.info
        lost = is_abnormal(info)
        if timestep.done and self._options.auto_reset and not lost:
            # in place, as in DI-engine, without the arguments that `reset` was given last
            kwargs = {} if self._options.reset_inplace else self._reset_kwargs[env_id]
            return StepReply(info, timestep, self._reset(env_id, kwargs))
        is_plain = type(timestep) is BaseEnvTimestep and type(info) is dict and not lost
        is_shared = is_plain and self._shared.put_timestep(env_id, timestep)
        return StepReply(info, None if is_shared else timestep)

    def reset(
        self, kwargs: dict[int, dict | None], seeds: dict[int, tuple], renewed: Collection[int]
    ) -> dict[int, ResetReply]:
        """Seed and reset some environments, with arguments of ``reset`` for each and of ``seed`` for some. ``renewed``
        ones are closed and made again before.
        """
        replies: dict[int, ResetReply] = {}
        self._seeds.update(seeds)
        for env_id, kwargs_of_env in kwargs.items():
            self._reset_kwargs[env_id] = kwargs_of_env or {}
            replies[env_id] = self._reset(env_id, self._reset_kwargs[env_id], env_id in renewed)
        return replies

    def _reset(self, env_id: int, kwargs: dict, renews: bool = False) -> ResetReply:
        try:
            if renews:
                self._renew(env_id)
            if env_id in self._seeds:
                self._call(env_id, self.envs[env_id].seed, *self._seeds[env_id])
                del self._seeds[env_id]
            obs = self._call(env_id, self.envs[env_id].reset, **kwargs)
        except EnvFailed as failed:  # a reply, as the other environments have been reset or stepped
            return ResetReply(error=failed.error)
        return ResetReply(obs)

    def apply(self, env_ids: Collection[int], function: Callable, *args: object) -> dict[int, object]:
        wanted = {env_id: env for env_id, env in self.envs.items() if env_id in env_ids}
        return {env_id: self._call(env_id, function, env, *args) for env_id, env in wanted.items()}

    def close(self) -> None:
        """Close all environments, even if some raise."""
        for env_id in list(self.envs):
            try:
                self._call(env_id, self.envs.pop(env_id).close)
            except EnvFailed:
                logger.warning('closing environment %d failed', env_id, exc_info=True)

    def _call(self, env_id: int, function: Callable, *args: object, **kwargs: object) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # the manager raises it in the user's process
            raise EnvFailed(env_id, _portable(error)) from error
        self._shared.note_call(env_id)
        return result


def _portable(error: Exception) -> Exception:
    """The error with its traceback in the message, as a traceback can't be pickled; of the same class if possible."""
    text = '\nEnv Process Exception:\n' + ''.join(traceback.format_tb(error.__traceback__)) + repr(error)
    try:
        portable = type(error)(text)
        pickle.loads(pickle.dumps(portable))  # noqa: S301  # made here
        if str(portable) == text:  # KeyError would show it with escapes
            return portable
    except Exception:  # its constructor or its state is special
        logger.debug('%s can only be passed on as a RuntimeError', type(error).__name__)
    return RuntimeError(text)


def run_group(
    connection: Connection,
    owner_pid: int,
    ends_with_owner: bool,
    env_fns: CloudPickleWrapper,
    shared: SharedSteps,
    options: EnvManagerOptions,
) -> None:
    """The main function of a worker process: carry out commands until ``close`` or the manager's process has ended.
    With ``ends_with_owner`` the kernel kills this process then, even a stopped one.
    """
    # Ctrl-C and a closed terminal signal the whole process group; the manager's process decides what follows.
    # The other handlers that a fork inherits are the trainer's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if ends_with_owner:
        signals.follow_parent(owner_pid)
    os.nice(options.nice)
    torch.set_num_threads(1)
    cv2.setNumThreads(0)  # 0, not 1: after a fork, 1 waits for OpenCV threads that only the parent has
    group = EnvGroup(env_fns.data, shared, options)
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    waited_s = math.inf
    try:
        while True:
            waited_s = _wait_for_command(poller, owner_pid, waited_s)
            number, command, args = pickle.loads(connection.recv_bytes())  # noqa: S301  # from the process that started this one
            reply = group.carry_out(command, args)
            try:
                message = pickle.dumps((number, *reply), pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # an attribute or info that cannot be pickled, such as a lock
                message = pickle.dumps((number, None, EnvFailed(min(env_fns.data), _portable(error))))
            connection.send_bytes(message)
            if command == 'close':
                return
    except (EOFError, BrokenPipeError, ConnectionResetError):
        logger.debug('worker %d: its manager has ended', os.getpid())
    finally:
        group.close()


def _wait_for_command(poller: select.poll, owner_pid: int, last_wait_s: float) -> float:
    """Wait until a command can be read. Returns how long that took; EOFError if the manager's process has ended."""
    start = time.perf_counter()
    if last_wait_s < POLL_COMMANDS_S:
        while time.perf_counter() - start < POLL_COMMANDS_S and not poller.poll(0):
            os.sched_yield()
    while not poller.poll(CHECK_OWNER_MS):
        # The pipe does not show it: workers have copies of its other end.
        if os.getppid() != owner_pid:
            raise EOFError
    return time.perf_counter() - start
