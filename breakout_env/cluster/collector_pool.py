"""All collectors of a run as one: ordered from Ray actors, counted once, restarted where they die."""

import logging
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

import numpy as np

from ..replay.fragment import pack_weights, unpack
from ..utils import run_registry
from ..worker.collector import GAMES_IN_MEAN
from .actors import CollectorActor, Fragment
from .ray_session import EVALUATOR_CPUS, ClusterError

_log = logging.getLogger(__name__)

# A collector has its next request before it has answered one, so that it never waits for the learner.
_REQUESTS_EACH = 2
# Finished fragments beyond which no more are requested: the learner is the slower side then, and play would get old.
_READY = 2
_RESIZE_EVERY_S = 5.0
# A collector whose requests fail this often in a row, without having died, cannot work.
_FAILURES = 5
_CLOSE_S = 5.0


class _Request(NamedTuple):
    collector: '_Collector'
    n_sample: int
    is_random: bool


class _Collector(object):
    """An actor, and what it was asked for."""

    def __init__(self, index: int, actor: Any) -> None:
        self.index = index
        self.actor = actor
        self.requests: List[Any] = []
        self.failures = 0
        # answered when the actor works, at first and after each restart
        self.ready: Optional[Any] = actor.ready.remote()


class CollectorPool(object):
    """
    Overview:
        Requests rollout fragments from Ray actors, as many as the learner can use, and hands them over in the order \
        of their arrival. Env steps, episodes and games count when a fragment is handed over: what a collector that \
        died was asked for is collected again, and what is under way at the end counts nowhere. Ray restarts actors \
        that die; nodes that leave or join change the number of collectors while training goes on.

        It stands where DI-engine's pipelines have a collector, so that saves, progress and commander find one.
    """

    def __init__(
        self,
        ray: Any,
        cfg: 'EasyDict',  # noqa: F821
        count: Optional[int],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Arguments:
            - ray (:obj:`Any`): From ``ray_session``.
            - cfg (:obj:`EasyDict`): The merged config.
            - count (:obj:`Optional[int]`): Collectors; None for as many as the cluster has CPUs, now and later.
            - say (:obj:`Callable`): Called with each message to the user.
            - clock (:obj:`Callable`): Seconds.
        """
        # named as DI-engine's collectors have them
        self.envstep = self.episodes = self.games = 0
        self.settings: Dict[str, Any] = {}  # the policy's, for the next requests
        self.sent_bytes = 0
        self._game_returns: Deque[float] = deque(maxlen=GAMES_IN_MEAN)
        self._ray, self._cfg, self._count, self._say, self._clock = ray, cfg, count, say, clock
        self._n_sample = cfg.policy.collect.n_sample
        self._actor_class = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(CollectorActor)
        self._collectors: List[_Collector] = []
        self._created = 0
        self._under_way: Dict[Any, _Request] = {}
        self._weights: Optional[Any] = None
        self._version = -1
        self._random_steps = 0
        self._step_limit: Optional[int] = None
        self._resized_s = float('-inf')
        run_registry.register(cfg.exp_name, 'collector', self)

    # ---------------------------------------------------------------- requesting

    def open(self, random_steps: int, step_limit: Optional[int]) -> None:
        """
        Overview:
            Create the actors and begin to request.
        Arguments:
            - random_steps (:obj:`int`): Env steps of random play, before all others.
            - step_limit (:obj:`Optional[int]`): Env steps of the run, beyond which nothing is requested.
        """
        self._random_steps, self._step_limit = random_steps, step_limit
        self._resize()
        self._request()

    def set_weights(self, state_dict: Dict[str, Any], version: int) -> None:
        """
        Overview:
            The weights of the next requests: put into Ray's object store once, for all collectors.
        Arguments:
            - state_dict (:obj:`Dict[str, Any]`): The model's.
            - version (:obj:`int`): Updates they have seen.
        """
        if version != self._version:
            content = pack_weights(state_dict)
            self._weights, self._version = self._ray.put(content), version
            self.sent_bytes += len(content)

    @property
    def number(self) -> int:
        """Collectors that work now."""
        return sum(collector.ready is None for collector in self._collectors)

    def _resize(self) -> None:
        """Follow the cluster's CPUs, where no number was asked for."""
        self._resized_s = self._clock()
        count = self._count
        if count is None:
            count = max(1, int(self._ray.cluster_resources().get('CPU', 1)) - EVALUATOR_CPUS)
        while len(self._collectors) < count:
            index, self._created = self._created, self._created + 1
            actor = self._actor_class.remote(self._cfg, index)
            self._collectors.append(_Collector(index, actor))
        while len(self._collectors) > count:  # those that do not work first: their node is gone
            collector = max(self._collectors, key=lambda c: (c.ready is not None, c.index))
            self._forget_requests(collector)
            self._collectors.remove(collector)
            self._ray.kill(collector.actor)
            self._say(f'Collector {collector.index} was removed: the cluster has CPUs for {count} now.')

    def _request(self) -> None:
        """
        Request from the collectors with the fewest requests while more fragments are wanted: in all at most one a
        collector and two more, a second one of a collector only if no finished fragment waits.
        """
        refs = list(self._under_way)
        ready = len(self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if refs else 0
        while ready < _READY:
            working = [collector for collector in self._collectors if collector.ready is None]
            collector = min(working, key=lambda c: len(c.requests), default=None)
            if collector is None or len(collector.requests) >= (1 if ready else _REQUESTS_EACH):
                break
            if len(self._under_way) >= len(working) + _READY:
                break
            under_way = sum(request.n_sample for request in self._under_way.values())
            if self._step_limit is not None and self._step_limit <= self.envstep + under_way:
                break
            is_random = self._random_steps > 0
            if is_random:
                self._random_steps -= self._n_sample
            elif any(request.is_random for request in self._under_way.values()):
                break  # all random play comes first, also where it may have to be collected again
            settings = {} if is_random else self.settings
            ref = collector.actor.collect.remote(
                self._n_sample, self.envstep, is_random, settings, [self._weights], self._version
            )
            collector.requests.append(ref)
            self._under_way[ref] = _Request(collector, self._n_sample, is_random)

    # ---------------------------------------------------------------- arriving

    def next_fragment(self, timeout_s: float) -> Optional[tuple]:
        """
        Overview:
            Hand over the fragment that arrived first; it counts from now on.
        Arguments:
            - timeout_s (:obj:`float`): Seconds to wait for one.
        Returns:
            - fragment (:obj:`Optional[tuple]`): Transitions, the ``Fragment`` they came in, and whether they are \
                random play; None if none came.
        Raises:
            - ClusterError: If a collector cannot work.
        """
        if self._clock() - self._resized_s >= _RESIZE_EVERY_S:
            self._resize()
        self._look_for_ready()
        self._request()
        # collectors that come back are waited for as well, so that they get their requests at once
        refs = [*self._under_way, *(c.ready for c in self._collectors if c.ready is not None)]
        done = self._ray.wait(refs, num_returns=1, timeout=timeout_s)[0] if refs else []
        if not done or done[0] not in self._under_way:
            return None
        request = self._under_way.pop(done[0])
        request.collector.requests.remove(done[0])
        try:
            fragment: Fragment = self._ray.get(done[0])
            transitions = unpack(fragment.payload)
        except (self._ray.exceptions.RayError, ValueError) as error:
            self._random_steps += request.n_sample if request.is_random else 0
            self._note_failure(request.collector, error)
            return None
        request.collector.failures = 0
        self.envstep += fragment.env_steps
        self.episodes += fragment.episodes
        self.games += len(fragment.games)
        self._game_returns.extend(fragment.games)
        self._request()
        return transitions, fragment, request.is_random

    def _note_failure(self, collector: _Collector, error: Exception) -> None:
        errors = self._ray.exceptions
        if isinstance(error, errors.ActorUnavailableError):
            self._forget_requests(collector)
            if collector.ready is None:
                self._say(f'Collector {collector.index} died; Ray restarts it. What it was playing is collected again.')
            collector.ready = collector.actor.ready.remote()
            return
        collector.failures += 1
        reason = str(error).strip().splitlines()[-1]
        if isinstance(error, errors.ActorDiedError) or collector.failures >= _FAILURES:
            raise ClusterError(f'collector {collector.index} cannot work: {reason}') from error
        self._say(f'Collector {collector.index} lost a fragment, which is collected again: {reason}')

    def _forget_requests(self, collector: _Collector) -> None:
        for ref in collector.requests:
            request = self._under_way.pop(ref)
            self._random_steps += request.n_sample if request.is_random else 0
        collector.requests.clear()

    def _look_for_ready(self) -> None:
        """Which collectors have begun to work since the last look."""
        waiting = {c.ready: c for c in self._collectors if c.ready is not None}
        if not waiting:
            return
        for ref in self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0)[0]:
            collector = waiting[ref]
            try:
                self._ray.get(ref)
                collector.ready = None
            except self._ray.exceptions.RayError as error:
                self._note_failure(collector, error)

    def close(self) -> None:
        """Close the actors' environments, as far as they answer within a few seconds."""
        closing = [c.actor.close.remote() for c in self._collectors if c.ready is None]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for collector in self._collectors:
            self._ray.kill(collector.actor)
        self._collectors.clear()
        self._under_way.clear()

    # ---------------------------------------------------------------- what others ask of a collector

    @property
    def epsilon(self) -> Optional[float]:
        """Of the newest requests."""
        return self.settings.get('eps')

    @property
    def game_return_mean(self) -> Optional[float]:
        """Mean score of the last 100 games; None before the first has ended."""
        return float(np.mean(self._game_returns)) if self._game_returns else None

    def state(self) -> Dict[str, Any]:
        """What a save of the run keeps; a collector in one process reads it, too."""
        return dict(games=self.games, game_returns=list(self._game_returns), episodes=self.episodes)

    def load_state(self, state: Dict[str, Any]) -> None:
        """Restore what ``state`` returned, of a run in one process, too."""
        self.games = state['games']
        self.episodes = state.get('episodes', 0)
        self._game_returns = deque(state['game_returns'], maxlen=GAMES_IN_MEAN)
