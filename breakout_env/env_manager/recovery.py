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
from .shared_buffers import SharedSteps
from .worker_main import ResetReply
from .workers import PendingReplies, Worker, WorkerPool

logger = logging.getLogger(__name__)
Errors = dict[int, Exception]  # why environments could not be reset, by environment


class Recovery:
    """Begins the episodes of an env manager: resets environments, retries resets that fail, and starts a new worker in
    place of a lost one. The environments of a lost worker get DI-engine's mark of a lost step (``info['abnormal']``)
    when the caller steps them next, and new games at their reset.
    """

    def __init__(
        self,
        pool: WorkerPool,
        shared: SharedSteps,
        options: EnvManagerOptions,
        states: dict[int, EnvState],
        ready_obs: dict[int, Any],
    ) -> None:
        """``states`` and ``ready_obs`` are the manager's: they are changed here, too."""
        self._pool, self._shared, self._options = pool, shared, options
        self._states, self._ready_obs = states, ready_obs
        self.reset_kwargs: dict[int, dict | None] = {}
        # Environments that were lost with their worker and not reset since. They are in state RUN until a step has
        # told the caller, then in state ERROR.
        self.lost: set[int] = set()
        self._next_seeds: dict[int, int | None] | list[int | None] = dict.fromkeys(states)
        self._dynamic_seed: bool | None = None
        # The arguments of ``seed`` that each environment was given last.
        self._given_seeds: dict[int, tuple] = {}
        self._reseed_count = 0

    # ---- resets

    def reset(self, env_ids: set[int], renewed: Collection[int] = ()) -> Errors:
        """Reset some environments once, those ``renewed`` after they were made again, in new workers where needed."""
        errors: Errors = {}
        self._states.update(dict.fromkeys(env_ids, EnvState.RESET))
        self.reseed(renewed)
        for index, worker in enumerate(self._pool.workers):
            wanted = env_ids.intersection(worker.env_ids)
            if not wanted or worker.alive:
                continue
            self.lose(worker)
            try:
                self._pool.replace(index)
                self.reseed(worker.env_ids)
            except (WorkerLost, EnvFailed, OSError) as error:  # counts as an attempt
                self.lose(self._pool.workers[index])
                errors.update(dict.fromkeys(wanted, error.with_traceback(None)))
        for reply in self._ask(env_ids.difference(errors), renewed).wait():
            if reply.error is None:
                errors.update(self.begin_episodes(reply.result))
            else:
                self.lose(reply.worker)
                errors.update(dict.fromkeys(env_ids.intersection(reply.worker.env_ids), reply.error))
        return errors

    def retry(self, errors: Errors, max_retry: int, retry_type: str, waiting_s: float) -> None:
        """Retry after a first attempt that failed for some environments. A ResetFailed says that no attempt is left.
        The first attempt that ends in a dead worker is free: someone may have killed it. The second counts, as an
        environment may crash it.
        """
        attempts_left, may_be_a_kill = max_retry - 1, True
        while errors:
            for error in errors.values():
                logger.info('a reset failed, %d attempts left', attempts_left, exc_info=error)
            if may_be_a_kill and all(isinstance(error, WorkerEnded) for error in errors.values()):
                may_be_a_kill = False
            elif attempts_left > 0:
                attempts_left -= 1
                time.sleep(waiting_s)
            else:
                env_id, error = next(iter(errors.items()))
                failed = f'Env {env_id} reset has exceeded max retries({max_retry})'
                raise ResetFailed(f'{failed}, and the latest exception is: {error}') from error
            # the environments of a lost worker are new in any case
            old = {env_id for env_id, error in errors.items() if not isinstance(error, WorkerLost)}
            errors = self.reset(set(errors), old if retry_type == 'renew' else ())

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
            self._ready_obs[env_id] = self._shared.take_obs([env_id])[0] if reply.is_shared else reply.obs
        return errors

    def _ask(self, env_ids: set[int], renewed: Collection[int]) -> PendingReplies:
        pending = PendingReplies()
        limit = self._options.time_limit('connect_timeout' if self._options.reset_timeout is None else 'reset_timeout')
        for worker in self._pool.workers:
            wanted = [env_id for env_id in worker.env_ids if env_id in env_ids]
            if wanted:
                kwargs = {env_id: self.reset_kwargs[env_id] for env_id in wanted}
                pending.ask(worker, limit, 'reset', kwargs, self._take_seeds(wanted), renewed)
        return pending

    # ---- seeds

    def set_seeds(self, seeds: dict[int, int | None] | list[int | None], dynamic_seed: bool | None) -> None:
        """The seeds of the next resets, by environment; one becomes None, in the caller's object, when it was used."""
        self._next_seeds, self._dynamic_seed = seeds, dynamic_seed

    def _take_seeds(self, env_ids: list[int]) -> dict[int, tuple]:
        """Arguments of ``seed`` for the environments that wait for a seed."""
        dynamic = () if self._dynamic_seed is None else (self._dynamic_seed,)
        seeds = {i: (self._next_seeds[i], *dynamic) for i in env_ids if self._next_seeds[i] is not None}
        for env_id in seeds:
            self._next_seeds[env_id] = None
        self._given_seeds.update(seeds)
        return seeds

    def reseed(self, env_ids: Iterable[int]) -> None:
        """Seed environments that were made again, so that they do not repeat games, unless the seed is fixed."""
        for env_id in env_ids:
            if env_id in self._given_seeds and self._next_seeds[env_id] is None:
                seed, *dynamic = self._given_seeds[env_id]
                self._reseed_count += 1
                derived = np.random.SeedSequence([seed, self._reseed_count]).generate_state(1)[0] >> 1
                self._next_seeds[env_id] = seed if dynamic == [False] else int(derived)

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

    @property
    def reported(self) -> set[int]:
        """Lost environments whose loss the caller knows, and that nobody has reset."""
        return {env_id for env_id in self.lost if self._states[env_id] == EnvState.ERROR}
