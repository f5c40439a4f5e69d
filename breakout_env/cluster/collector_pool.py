"""All collectors of a run as one: Ray actors that play in rounds, counted once, restarted where they die."""

import math
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from easydict import EasyDict

from ..run.config import collects_rollouts
from ..run.start import last_line
from ..utils import run_registry
from ..worker.collector import GameScores, Settings, random_play
from .actors import CollectorActor, PackedFragment
from .fragment import on_cpu
from .ray_session import EVALUATOR_CPUS, ClusterError, CollectorCount

_POLL_S = 0.5  # between two looks at a request to stop
_PATIENCE_S = 60.0  # with new collectors, and with the last fragments of a round once half of them are there
_FAILURES = 5  # in a row: a collector that fails so often, without having died, cannot work
_CLOSE_S = 5.0


class _Collector:
    """An actor, what it plays in a round, and whether it works."""

    def __init__(self, index: int, actor: Any, n_sample: int) -> None:
        self.index, self.actor, self.n_sample = index, actor, n_sample
        self.failures = 0
        # answered once the actor works, at first and after each restart; None from then on
        self.ready: object | None = actor.ready.remote()


class CollectorPool(GameScores):
    """Plays rounds: each collector plays one fragment with the same weights. Of a policy that learns from rollouts, the
    collectors share the environments of one rollout, with seeds that follow from the run's, so that a run with the same
    collectors is repeatable; else each has all environments of the config, and games by chance. The fragment of a
    collector that dies or is late is lost. It stands where DI-engine's pipelines have a collector.
    """

    def __init__(
        self, ray: ModuleType, cfg: EasyDict, count: CollectorCount, print_line: Callable[[str], None]
    ) -> None:
        """``ray``: from ``ray_session``; ``count``: as of ``OnRay``; ``print_line``: gets each message to the user."""
        super().__init__()
        self.envstep = 0  # named as DI-engine's collectors have it
        self.settings: Settings = {}  # the policy's, for the next round
        self.random_steps = self.random_steps_left = 0  # of the random play before the first update
        self._ray, self._cfg, self._count, self._print_line = ray, cfg, count, print_line
        self._shares_envs = collects_rollouts(cfg)
        self._env_num, self._n_sample = cfg.env.collector_env_num, cfg.policy.collect.n_sample
        self._actor_class = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(CollectorActor)
        self._collectors: list[_Collector] = []
        self._weights: object | None = None
        self._version = -1
        run_registry.register(cfg.exp_name, 'collector', self)

    def set_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Put a state of the policy, after so many updates, into Ray's object store, once for all collectors."""
        if version != self._version:
            self._weights, self._version = self._ray.put(on_cpu(state)), version

    def play_round(self) -> dict[int, PackedFragment]:
        """The fragments by collector, without those that are lost. Their env steps and games count from now on. A
        ClusterError says that a collector cannot work.
        """
        self._resize()
        if not self._working():
            self._print_line(f'No collector works; waiting for a CPU of {self._ray.cluster_resources()}.')
        while not (working := self._working()):
            self._wait([collector.ready for collector in self._collectors], 1)
        is_random = self.random_steps_left > 0
        settings = {name: 1.0 if is_random and name == 'eps' else value for name, value in self.settings.items()}
        asked: dict[object, _Collector] = {}
        for collector in working:
            request = collector.n_sample, settings, [self._weights], self._version
            asked[collector.actor.collect.remote(*request)] = collector
        self._wait(list(asked), (len(asked) + 1) // 2)
        self._wait(list(asked), len(asked), _PATIENCE_S)
        fragments: dict[int, PackedFragment] = {}
        for ref, collector in asked.items():
            try:
                fragments[collector.index] = fragment = self._ray.get(ref, timeout=0)
            except self._ray.exceptions.RayError as error:  # a GetTimeoutError if it is late
                self._lose(collector, error)
                continue
            collector.failures = 0
            self.add_games(fragment.games)
            self.envstep += fragment.env_steps
            self.random_steps_left -= fragment.env_steps if is_random else 0
        return fragments

    def sizes(self) -> list[int]:
        """Env steps that the fragment of each collector should have, also of those that are lost."""
        return [collector.n_sample for collector in self._collectors]

    def _resize(self) -> None:
        """Have as many collectors as were asked for and as the cluster has CPUs for."""
        room = max(1, int(self._ray.cluster_resources().get('CPU', 1)) - EVALUATOR_CPUS)
        count = room if self._count == 'auto' else min(room, self._count)
        count = min(count, self._env_num) if self._shares_envs else count
        before = len(self._collectors)
        if count == before:
            return
        if before:
            self._print_line(f'{count} collectors from here on, {before} before: the cluster has CPUs for {room}.')
        if self._shares_envs:
            self.close()
        self._collectors.sort(key=lambda collector: collector.ready is not None)  # last: their node may be gone
        for collector in self._collectors[count:]:
            self._ray.kill(collector.actor)
        del self._collectors[count:]
        for index in range(len(self._collectors), count):
            seed = None
            envs = self._env_num
            n_sample = self._n_sample
            if self._shares_envs:
                seed = int(np.random.SeedSequence([self._cfg.seed, count, index]).generate_state(1)[0] >> 1)
                envs = self._env_num // count + (index < self._env_num % count)
                n_sample = self._n_sample // self._env_num * envs
            actor = self._actor_class.remote(self._cfg, seed, envs)
            self._collectors.append(_Collector(index, actor, n_sample))
        for index, collector in enumerate(self._collectors):
            collector.index = index
        # who takes part in the next round should not be chance
        starting = [collector.ready for collector in self._collectors if collector.ready is not None]
        self._wait(starting, len(starting), _PATIENCE_S)

    def _working(self) -> list[_Collector]:
        """The collectors that work now."""
        for collector in self._collectors:
            if collector.ready is not None and self._ray.wait([collector.ready], timeout=0)[0]:
                try:
                    self._ray.get(collector.ready)
                    collector.ready = None
                except self._ray.exceptions.RayError as error:
                    self._lose(collector, error)
        return [collector for collector in self._collectors if collector.ready is None]

    def _wait(self, refs: list[object], count: int, patience_s: float = math.inf) -> None:
        """Wait for so many answers, or for so long. Raises ``Stopped`` if a stop was requested."""
        late_at_s = time.monotonic() + patience_s
        while len(self._ray.wait(refs, num_returns=count, timeout=_POLL_S)[0]) < count:
            run_registry.stop_if_requested(self._cfg.exp_name)
            if time.monotonic() > late_at_s:
                return

    def _lose(self, collector: _Collector, error: Exception) -> None:
        """Have a collector restarted that failed. A ClusterError says that it cannot work."""
        reason = last_line(error)
        if not isinstance(error, self._ray.exceptions.ActorUnavailableError):  # which Ray restarts by itself
            collector.failures += 1
            if isinstance(error, self._ray.exceptions.ActorDiedError) or collector.failures >= _FAILURES:
                raise ClusterError(f'collector {collector.index} cannot work: {reason}') from error
            self._ray.kill(collector.actor, no_restart=False)
        if collector.ready is None:
            self._print_line(f'Collector {collector.index} is restarted, and what it was playing is lost: {reason}')
        collector.ready = collector.actor.ready.remote()

    def close(self) -> None:
        """Close the actors' environments, as far as they answer within a few seconds, and end the actors."""
        closing = [collector.actor.close.remote() for collector in self._collectors if collector.ready is None]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for collector in self._collectors:
            self._ray.kill(collector.actor)
        self._collectors.clear()

    @property
    def activity(self) -> str | None:
        """What the progress line says during random play; None afterwards."""
        played = self.random_steps - self.random_steps_left
        return random_play(played, self.random_steps) if self.random_steps_left > 0 else None

    @property
    def epsilon(self) -> float | None:
        """Of the newest round."""
        return self.settings.get('eps')
