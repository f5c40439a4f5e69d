"""All collectors of a run as one: requested from Ray actors, counted once, restarted where they die."""

import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from easydict import EasyDict

from ..run.start import last_line
from ..utils import run_registry
from ..worker.collector import GameScores, Settings, random_play
from .actors import CollectorActor, PackedFragment
from .fragment import pack_weights, unpack
from .ray_session import EVALUATOR_CPUS, ClusterError, CollectorCount

# A collector has its next request before it has answered one, so that it never waits for the learner.
_REQUESTS_EACH = 2
# Finished fragments beyond which no more are requested: the learner is the slower side then, and play would get old.
_READY = 2
_RESIZE_EVERY_S = 5.0
# A collector whose requests fail this often in a row, without having died, cannot work.
_FAILURES = 5
_CLOSE_S = 5.0
# Seconds without a working collector after which a message says so.
_ALONE_S = 30.0


class Collector:
    """An actor, and whether it works."""

    def __init__(self, index: int, actor: Any) -> None:
        self.index, self.actor = index, actor
        self.failures = 0
        # answered once the actor works, at first and after each restart; None from then on
        self.ready: object | None = actor.ready.remote()


class Collectors(GameScores):
    """The Ray actors that collect for a run. Ray restarts those that die. It stands where DI-engine's pipelines have a
    collector, so that saves, progress and commander find one.
    """

    lost_play = 'What it was playing is collected again.'
    activity: str | None = None  # what the progress line says; None while collections are for updates

    def __init__(
        self, ray: ModuleType, cfg: EasyDict, count: CollectorCount, print_line: Callable[[str], None]
    ) -> None:
        """
        Arguments:
            ray, cfg: From ``ray_session``; the merged config.
            count: Collectors; ``'auto'`` for as many as the cluster has CPUs, now and later.
            print_line: Called with each message to the user.
        """
        super().__init__()
        self.envstep = 0  # named as DI-engine's collectors have it
        self.settings: Settings = {}  # the policy's, for the next requests
        self._ray, self._cfg, self._count, self._print_line = ray, cfg, count, print_line
        self._n_sample = cfg.policy.collect.n_sample
        self._actor_class = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(CollectorActor)
        self._collectors: list[Collector] = []
        self._weights: object | None = None
        self._version = -1
        self._worked_s = time.monotonic()
        run_registry.register(cfg.exp_name, 'collector', self)

    def set_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Put the state of a policy's collect mode, after so many updates, into Ray's object store, once for all next
        requests.
        """
        if version != self._version:
            self._weights, self._version = self._ray.put(pack_weights(state)), version

    @property
    def number(self) -> int:
        """Collectors that work now."""
        return sum(collector.ready is None for collector in self._collectors)

    def wanted(self) -> int:
        """How many collectors there should be now."""
        cpus = int(self._ray.cluster_resources().get('CPU', 1))
        return max(1, cpus - EVALUATOR_CPUS) if self._count == 'auto' else self._count

    def look_for_ready(self) -> None:
        """Note the collectors that have started to work."""
        waiting = {c.ready: c for c in self._collectors if c.ready is not None}
        for ref in self.done(list(waiting)):
            try:
                self._ray.get(ref)
                waiting[ref].ready = None
            except self._ray.exceptions.RayError as error:
                self.note_failure(waiting[ref], error)
        if self.number:
            self._worked_s = time.monotonic()
        elif time.monotonic() - self._worked_s > _ALONE_S:
            self._worked_s = time.monotonic()
            resources = self._ray.cluster_resources()
            self._print_line(f'No collector works; waiting for a CPU. The cluster has {resources}.')

    def done(self, refs: list[object]) -> list[object]:
        """Those of Ray's references that have been answered."""
        return self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else []

    def note_failure(self, collector: Collector, error: Exception) -> None:
        """Have a collector restarted that failed. A ClusterError says that it cannot work."""
        errors = self._ray.exceptions
        if isinstance(error, errors.ActorUnavailableError):
            self.forget_requests(collector)
            if collector.ready is None:
                self._print_line(f'Collector {collector.index} died; Ray restarts it. {self.lost_play}')
            collector.ready = collector.actor.ready.remote()
            return
        collector.failures += 1
        reason = last_line(error)
        if isinstance(error, errors.ActorDiedError) or collector.failures >= _FAILURES:
            raise ClusterError(f'collector {collector.index} cannot work: {reason}') from error
        self.restart(collector, f'lost what it was playing: {reason}')

    def restart(self, collector: Collector, what: str) -> None:
        """End an actor, which Ray starts again: a new process begins new episodes."""
        self._print_line(f'Collector {collector.index} {what}. {self.lost_play}')
        self.forget_requests(collector)
        self._ray.kill(collector.actor, no_restart=False)
        collector.ready = collector.actor.ready.remote()

    def forget_requests(self, collector: Collector) -> None:
        """Forget what a collector was asked for."""

    def close(self) -> None:
        """Close the actors' environments, as far as they answer within a few seconds, and end the actors."""
        closing = [c.actor.close.remote() for c in self._collectors if c.ready is None]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for collector in self._collectors:
            self._ray.kill(collector.actor)
        self._collectors.clear()

    @property
    def epsilon(self) -> float | None:
        """Of the newest requests."""
        return self.settings.get('eps')


class CollectorPool(Collectors):
    """Requests fragments from Ray actors, as many as the learner can use, and hands them over in the order of their
    arrival. Env steps and games count when a fragment is handed over: what a collector that died was asked for is
    collected again, and what is under way at the end is dropped. Nodes that leave or join change the number of
    collectors while training continues.
    """

    def __init__(
        self, ray: ModuleType, cfg: EasyDict, count: CollectorCount, print_line: Callable[[str], None]
    ) -> None:
        super().__init__(ray, cfg, count, print_line)
        self._created = 0
        self._under_way: dict[object, tuple[Collector, bool]] = {}  # collector, whether random; by Ray's reference
        # Steps of random play, and how many of them have yet to be requested.
        self._random_play = self._random_steps = 0
        self._opened_at = 0
        self._step_limit: int | None = None
        self._resized_s = float('-inf')

    def open(self, random_steps: int, step_limit: int | None) -> None:
        """Create the actors; random play comes first, and beyond the run's ``step_limit`` nothing is requested."""
        self._random_play = self._random_steps = random_steps
        self._opened_at, self._step_limit = self.envstep, step_limit
        self._resize()

    def _resize(self) -> None:
        """Create actors up to the number asked for, or follow the cluster's CPUs."""
        self._resized_s = time.monotonic()
        count = self.wanted()
        while len(self._collectors) < count:
            self._collectors.append(Collector(self._created, self._actor_class.remote(self._cfg)))
            self._created += 1
        while len(self._collectors) > count:  # those that do not work first: their node is gone
            collector = max(self._collectors, key=lambda c: (c.ready is not None, c.index))
            self.forget_requests(collector)
            self._collectors.remove(collector)
            self._ray.kill(collector.actor)
            self._print_line(f'Collector {collector.index} was removed: the cluster has CPUs for {count} now.')

    def _request(self) -> None:
        """Request from the collectors with the fewest requests. At most N + 2 requests for N collectors; a second one
        per collector only while no finished fragment waits.
        """
        ready = len(self.done(list(self._under_way)))
        while ready < _READY:
            asked = {collector: 0 for collector in self._collectors if collector.ready is None}
            for collector, _ in self._under_way.values():
                asked[collector] += 1
            if not asked or len(self._under_way) >= len(asked) + _READY:
                break
            collector = min(asked, key=asked.__getitem__)
            if asked[collector] >= (1 if ready else _REQUESTS_EACH):
                break
            under_way = self._n_sample * len(self._under_way)
            if self._step_limit is not None and self._step_limit <= self.envstep + under_way:
                break
            is_random = self._random_steps > 0
            if not is_random and self._plays_at_random:
                break  # all random play comes first, also where it may have to be collected again
            self._random_steps -= self._n_sample if is_random else 0
            request = self._n_sample, self.envstep, is_random, self.settings, [self._weights], self._version
            self._under_way[collector.actor.collect.remote(*request)] = collector, is_random

    def next_fragment(self, timeout_s: float) -> tuple[list, PackedFragment, bool] | None:
        """Hand over the fragment that arrived first, if one arrives in time; it counts from now on.

        Returns:
            Transitions, what they came in, whether they are random.
        Raises:
            ClusterError: If a collector cannot work.
        """
        if time.monotonic() - self._resized_s >= _RESIZE_EVERY_S:
            self._resize()
        self.look_for_ready()
        self._request()
        # collectors that come back are waited for as well, so that they get their requests at once
        refs = [*self._under_way, *(c.ready for c in self._collectors if c.ready is not None)]
        done = self._ray.wait(refs, num_returns=1, timeout=timeout_s)[0] if refs else []
        if not done or done[0] not in self._under_way:
            return None
        collector, is_random = self._under_way.pop(done[0])
        try:
            fragment: PackedFragment = self._ray.get(done[0])
        except self._ray.exceptions.RayError as error:
            self._random_steps += self._n_sample if is_random else 0
            self.note_failure(collector, error)
            return None
        collector.failures = 0
        self.envstep += fragment.env_steps
        self.add_games(fragment.games)
        self._request()  # so that no collector waits while the learner learns
        return list(unpack(fragment.payload)), fragment, is_random

    def forget_requests(self, collector: Collector) -> None:
        for ref, (of, is_random) in list(self._under_way.items()):
            if of is collector:
                del self._under_way[ref]
                self._random_steps += self._n_sample if is_random else 0

    @property
    def activity(self) -> str | None:  # type: ignore[override]
        """What the progress line says during random play; None afterwards."""
        return random_play(self.envstep - self._opened_at, self._random_play) if self._plays_at_random else None

    @property
    def _plays_at_random(self) -> bool:
        return self._random_steps > 0 or any(random for _, random in self._under_way.values())
