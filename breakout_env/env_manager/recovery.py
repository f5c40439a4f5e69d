"""How episodes begin: resets that are tried again, and other processes in the place of lost ones."""

import logging
import time
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState
from easydict import EasyDict

from ..utils.options import shown
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_main import EnvFailed
from .workers import Exchange, Request, WorkerEnded, WorkerLost, WorkerPool, WorkerProcess

logger = logging.getLogger(__name__)


class RecoveringManager(BaseEnvManager):
    """
    Overview:
        The part of ``GroupEnvManager`` that begins episodes: it retries resets that fail, and starts another process \
        in the place of a lost one. The environments of a lost process get DI-engine's mark of a lost step \
        (``info['abnormal']``) where a caller's step needs them next, and new games at their reset.
    """

    config = EnvManagerOptions().model_dump()

    def __init__(self, env_fn: List[Callable], cfg: Optional[Mapping] = None) -> None:
        """
        Arguments:
            - env_fn (:obj:`List[Callable]`): What makes each environment.
            - cfg (:obj:`Optional[Mapping]`): ``EnvManagerOptions``; those not named keep their defaults.
        Raises:
            - ValueError: If ``env_fn`` is no such list, or an option is unknown or its value not allowed; the message \
                names it.
        """
        self._options = EnvManagerOptions.read(cfg)
        if not (isinstance(env_fn, Sequence) and env_fn and all(map(callable, env_fn))):
            raise ValueError(f'env_fn is {shown(env_fn)}; expected a list with a function for each environment')
        super().__init__(env_fn, EasyDict(self._options.model_dump()))
        self._connect_timeout = self._options.connect_timeout  # DI-engine's name, as its tests expect
        self._pool = WorkerPool(self._options, self._env_num)
        self._shared = SharedSteps(self._pool.context, self._env_num, self._observation_space, self._reward_space)
        # The arguments of ``seed`` that each environment was given last.
        self._given_seeds: Dict[int, tuple] = {}
        self._reseed_count = 0
        # Environments lost with their process and not reset since. Their state is RUN until a step has told the caller,
        # then ERROR.
        self._lost: Set[int] = set()

    # ---- resets

    def _reset_envs(self, env_ids: Set[int]) -> None:
        """Reset some environments, those of a lost process in a new one."""
        self._retry_reset(self._try_reset(env_ids))

    def _retry_reset(self, errors: Dict[int, Exception]) -> None:
        """
        Retry after a first attempt in which some environments failed. An attempt in which a process ended does not
        count the first time, as somebody may have killed it; the second time it does, as an environment may crash it.
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
                self.close()
                failed = f'Env {env_id} reset has exceeded max retries({self._max_retry})'
                raise RuntimeError(f'{failed}, and the latest exception is: {error}') from error
            # those of a lost process are new in any case
            old = {env_id for env_id, error in errors.items() if not isinstance(error, WorkerLost)}
            errors = self._try_reset(set(errors), old if self._retry_type == 'renew' else ())

    def _try_reset(self, env_ids: Set[int], renewed: Collection[int] = ()) -> Dict[int, Exception]:
        """Reset some environments, those ``renewed`` after they were made again; the errors of those that failed."""
        errors: Dict[int, Exception] = {}
        self._env_states.update(dict.fromkeys(env_ids, EnvState.RESET))
        self._reseed(renewed)
        for index, worker in enumerate(self._pool.workers):
            ours = env_ids.intersection(worker.env_ids)
            if ours and not worker.alive:
                self._lose(worker)
                try:
                    self._pool.replace(index)
                    self._reseed(worker.env_ids)
                except (WorkerLost, EnvFailed, OSError) as error:  # counts as an attempt; the caller decides
                    self._lose(self._pool.workers[index])
                    errors.update(dict.fromkeys(ours, error.with_traceback(None)))
        for worker, answer in Exchange(self._reset_requests(env_ids.difference(errors), renewed)).answers():
            if isinstance(answer, (WorkerLost, EnvFailed)):  # as above
                self._lose(worker)
                errors.update(dict.fromkeys(env_ids.intersection(worker.env_ids), answer))
            else:
                errors.update(self._start_episodes(answer))
        return errors

    def _reset_requests(self, env_ids: Set[int], renewed: Collection[int]) -> Iterator[Request]:
        limit = self._options.time_limit('connect_timeout' if self._options.reset_timeout is None else 'reset_timeout')
        for worker in self._pool.workers:
            ours = [env_id for env_id in worker.env_ids if env_id in env_ids]
            if ours:
                kwargs = {env_id: self._reset_param[env_id] for env_id in ours}
                command = 'reset', kwargs, self._new_seeds(ours), renewed
                yield worker, limit, command

    def _start_episodes(self, results: Dict[int, Any]) -> Dict[int, Exception]:
        """Set the observations that episodes begin with; the errors of environments that could not be reset."""
        errors: Dict[int, Exception] = {}
        for env_id, result in results.items():
            if isinstance(result, EnvFailed):
                errors[env_id] = result.error
                self._env_states[env_id] = EnvState.ERROR
                continue
            self._env_states[env_id] = EnvState.RUN
            self._lost.discard(env_id)
            if result is None:
                (self._ready_obs[env_id],) = self._shared.take_obs([env_id])
            else:
                self._ready_obs[env_id] = result[0]
        return errors

    # ---- seeds

    def _new_seeds(self, env_ids: List[int]) -> Dict[int, tuple]:
        """Arguments of ``seed`` for those environments that have not had theirs yet."""
        seeds = {}
        for env_id in env_ids:
            if self._env_seed[env_id] is not None:
                dynamic = () if self._env_dynamic_seed is None else (self._env_dynamic_seed,)
                seeds[env_id] = self._given_seeds[env_id] = (self._env_seed[env_id], *dynamic)
                self._env_seed[env_id] = None
        return seeds

    def _reseed(self, env_ids: Iterable[int]) -> None:
        """Seed environments that were made again: where games are to differ, they must not repeat those played."""
        for env_id in env_ids:
            if env_id in self._given_seeds and self._env_seed[env_id] is None:
                seed, *dynamic = self._given_seeds[env_id]
                self._reseed_count += 1
                derived = np.random.SeedSequence([seed, self._reseed_count]).generate_state(1)[0] >> 1
                self._env_seed[env_id] = seed if dynamic == [False] else int(derived)

    # ---- lost processes

    def _lose(self, worker: WorkerProcess) -> None:
        """End a process that can not be used any more."""
        if not worker.lost:
            worker.end()
            self._lost.update(env_id for env_id in worker.env_ids if self._env_states[env_id] == EnvState.RUN)

    def _report(self, env_ids: Iterable[int], error: str) -> Dict[int, BaseEnvTimestep]:
        """Timesteps with DI-engine's mark of a lost step for environments whose loss is not reported yet."""
        lost = [
            env_id for env_id in sorted(self._lost.intersection(env_ids)) if self._env_states[env_id] == EnvState.RUN
        ]
        self._env_states.update(dict.fromkeys(lost, EnvState.ERROR))
        return {env_id: BaseEnvTimestep(None, None, None, dict(abnormal=True, error=error)) for env_id in lost}

    def _restart_lost(self) -> None:
        """Start lost environments again that were reported and that the caller has not reset."""
        if self._lost and self._auto_reset and not self._closed:
            self._reset_envs({env_id for env_id in self._lost if self._env_states[env_id] == EnvState.ERROR})
