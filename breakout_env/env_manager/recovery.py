"""How episodes begin: resets that are tried again, and new workers in place of lost ones."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState

from .errors import EnvFailed, ResetFailed, WorkerEnded, WorkerLost
from .options import EnvManagerOptions
from .pool import WorkerPool, replies_to, send
from .worker_main import ResetReply
from .workers import Worker

logger = logging.getLogger(__name__)
Errors = dict[int, Exception]  # why environments could not be reset, by environment
Seeds = dict[int, int | None] | list[int | None]


class Recovery:
    """Begins the episodes of an env manager: resets environments, retries resets that fail, and starts a new worker in
    place of a lost one, whose environments get DI-engine's mark of a lost step when the caller steps them next.
    """

    def __init__(
        self, pool: WorkerPool, options: EnvManagerOptions, states: dict[int, EnvState], ready_obs: dict[int, Any]
    ) -> None:
        """``states`` and ``ready_obs`` are the manager's: they are changed here, too."""
        self._pool, self._options = pool, options
        self._states, self._ready_obs = states, ready_obs
        self.reset_kwargs: dict[int, dict | None] = {}
        # Environments lost with their worker and not reset since: in state RUN until a step has told the caller, then
        # in state ERROR.
        self.lost: set[int] = set()
        # The seeds of the next resets; one becomes None when it was used.
        self.next_seeds: Seeds = dict.fromkeys(states)
        self.dynamic_seed: bool | None = None
        self._given_seeds: dict[int, tuple] = {}  # the last arguments of ``seed``, by environment
        self._reseed_count = 0

    # ---- resets

    def reset(self, env_ids: set[int]) -> None:
        """Reset some environments, and retry resets that fail; a ResetFailed when no attempt is left."""
        self.retry(self._reset_once(env_ids))

    def retry(self, errors: Errors) -> None:
        """Retry resets after a first attempt. A first attempt that ends in a dead worker is free: someone may have
        killed it.
        """
        max_retry = max(self._options.max_retry, 1)
        is_free = all(isinstance(error, WorkerEnded) for error in errors.values())
        attempts_left = max_retry if is_free else max_retry - 1
        while errors:
            for error in errors.values():
                logger.info('a reset failed, %d attempts left', attempts_left, exc_info=error)
            if attempts_left == 0:
                env_id, error = next(iter(errors.items()))
                failed = f'Env {env_id} reset has exceeded max retries({max_retry})'
                raise ResetFailed(f'{failed}, and the latest exception is: {error}') from error
            attempts_left -= 1
            time.sleep(self._options.retry_waiting_time)
            # the environments of a lost worker are new in any case
            old = {env_id for env_id, error in errors.items() if not isinstance(error, WorkerLost)}
            errors = self._reset_once(set(errors), old if self._options.retry_type == 'renew' else ())

    def _reset_once(self, env_ids: set[int], renewed: Collection[int] = ()) -> Errors:
        """Reset some environments, in new workers where needed; make ``renewed`` ones again before."""
        self._states.update(dict.fromkeys(env_ids, EnvState.RESET))
        errors = self._replace_workers(env_ids)
        self.reseed(renewed)
        commands = []
        limit = 'connect_timeout' if self._options.reset_timeout is None else 'reset_timeout'
        for worker in self._pool.workers:
            wanted = [env_id for env_id in worker.env_ids if env_id in env_ids and env_id not in errors]
            if wanted:
                kwargs = {env_id: self.reset_kwargs[env_id] for env_id in wanted}
                seeds = self._take_seeds(wanted)
                commands.append(send(worker, self._options, limit, 'reset', kwargs, seeds, renewed))
        for worker, result, error in replies_to(commands):
            if error is None:
                errors.update(self.begin_episodes(result))
            else:
                self.lose(worker)
                errors.update(dict.fromkeys(env_ids.intersection(worker.env_ids), error))
        return errors

    def _replace_workers(self, env_ids: set[int]) -> Errors:
        """Start new workers for some environments where the old ones have ended."""
        errors: Errors = {}
        for index, worker in enumerate(self._pool.workers):
            wanted = env_ids.intersection(worker.env_ids)
            if wanted and not worker.alive:
                self.lose(worker)
                try:
                    self._pool.replace(index)
                    self.reseed(worker.env_ids)
                except (WorkerLost, EnvFailed, OSError) as error:  # counts as an attempt
                    self.lose(self._pool.workers[index])
                    errors.update(dict.fromkeys(wanted, error.with_traceback(None)))
        return errors

    def begin_episodes(self, replies: Mapping[int, ResetReply]) -> Errors:
        """Take in the observations that episodes begin with; returns the errors of resets that failed."""
        errors: Errors = {}
        for env_id, reply in replies.items():
            if reply.error is not None:
                errors[env_id] = reply.error
                self._states[env_id] = EnvState.ERROR
                continue
            self._states[env_id] = EnvState.RUN
            self.lost.discard(env_id)
            self._ready_obs[env_id] = reply.obs
        return errors

    # ---- seeds

    def _take_seeds(self, env_ids: list[int]) -> dict[int, tuple]:
        """Arguments of ``seed`` for the environments that wait for a seed."""
        dynamic = () if self.dynamic_seed is None else (self.dynamic_seed,)
        seeds = {i: (self.next_seeds[i], *dynamic) for i in env_ids if self.next_seeds[i] is not None}
        for env_id in seeds:
            self.next_seeds[env_id] = None
        self._given_seeds.update(seeds)
        return seeds

    def reseed(self, env_ids: Iterable[int]) -> None:
        """Seed environments that were made again, so that they do not repeat games, unless the seed is fixed."""
        for env_id in env_ids:
            if env_id in self._given_seeds and self.next_seeds[env_id] is None:
                seed, *dynamic = self._given_seeds[env_id]
                self._reseed_count += 1
                derived = np.random.SeedSequence([seed, self._reseed_count]).generate_state(1)[0] >> 1
                self.next_seeds[env_id] = seed if dynamic == [False] else int(derived)

    # ---- lost workers

    def lose(self, worker: Worker) -> None:
        """End a worker that can't be used any more."""
        if not worker.lost:
            worker.end()
            self.lost.update(env_id for env_id in worker.env_ids if self._states[env_id] == EnvState.RUN)

    def report(self, env_ids: Iterable[int], error: str) -> dict[int, BaseEnvTimestep]:
        """Timesteps with DI-engine's mark of a lost step, for environments whose loss is not reported yet."""
        unreported = sorted(i for i in self.lost.intersection(env_ids) if self._states[i] == EnvState.RUN)
        self._states.update(dict.fromkeys(unreported, EnvState.ERROR))
        return {env_id: BaseEnvTimestep(None, None, None, dict(abnormal=True, error=error)) for env_id in unreported}

    def reset_reported(self) -> None:
        """Reset lost environments whose loss was reported to the caller, unless the caller has reset them."""
        reported = {env_id for env_id in self.lost if self._states[env_id] == EnvState.ERROR}
        if reported:
            self.reset(reported)
