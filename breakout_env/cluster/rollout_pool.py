"""Rollouts from Ray actors: each plays its part of every rollout, and the learner joins the parts."""

import time
from collections.abc import Callable
from types import ModuleType
from typing import cast

import numpy as np
import torch
from easydict import EasyDict

from ..policy.lean_ppo import Samples
from ..replay.batch import FrameBatch
from ..utils import run_registry
from .actors import PackedFragment
from .collector_pool import Collector, Collectors
from .fragment import Event, unpack
from .ray_session import ClusterError, CollectorCount

_POLL_S = 0.5
# The last parts of a rollout may take three times as long as the first half of them, or this long.
_LATE_S, _LATE_FACTOR = 60.0, 3.0
# Rollouts in a row of which no part arrives.
_EMPTY = 5


class RolloutPool(Collectors):
    """Collects rollouts by Ray actors, each with a share of the environments and a copy of the network. The parts are
    joined in the order of the actors, whose seeds follow from the run's, so a run with the same actors is repeatable.

    A part that is lost with its actor, or late, counts as env steps of weight 0: nothing is learned from it, and its
    environments begin new games. The cluster's CPUs are followed from rollout to rollout: other shares mean new actors.
    """

    lost_play = 'Its part of the rollout has weight 0.'

    def __init__(
        self, ray: ModuleType, cfg: EasyDict, count: CollectorCount, print_line: Callable[[str], None]
    ) -> None:
        super().__init__(ray, cfg, count, print_line)
        self._env_num = cfg.env.collector_env_num
        if count != 'auto' and count > self._env_num:
            raise ClusterError(
                f'--collectors is {count}; expected at most env.collector_env_num, {self._env_num}, as each plays in '
                'environments of its own'
            )
        self.events: list[Event] = []  # of the newest rollout, for TensorBoard
        self._shares: list[int] = []
        self._made = 0

    def _share_out(self) -> None:
        """Give each collector its share of the environments, where the number of collectors has changed."""
        count = min(self.wanted(), self._env_num)
        if count == len(self._collectors):
            return
        if self._collectors:
            self._print_line(f'{count} collectors share the environments from here on, {len(self._collectors)} before.')
        self.close()
        least, rest = divmod(self._env_num, count)
        self._shares = [least + (index < rest) for index in range(count)]
        for index, share in enumerate(self._shares):
            seed = np.random.SeedSequence([self._cfg.seed, self._made, index]).generate_state(1)[0] >> 1
            actor = self._actor_class.remote(self._cfg, int(seed), share)
            self._collectors.append(Collector(index, actor))
        self._made += 1
        while len(self._working()) < count:  # all of them: whoever is missing at the start would be so by chance
            self._wait([c.ready for c in self._collectors if c.ready is not None])

    def _working(self) -> list[Collector]:
        self.look_for_ready()
        return [collector for collector in self._collectors if collector.ready is None]

    def _wait(self, refs: list[object]) -> list[object]:
        """Wait a little for answers, and for a request to stop; returns what is still unanswered."""
        waiting = self._ray.wait(refs, num_returns=len(refs), timeout=_POLL_S)[1] if refs else []
        run_registry.stop_if_requested(self._cfg.exp_name)
        return waiting

    def collect(self) -> Samples:
        """A rollout by the weights and settings of this moment; it counts all of its env steps."""
        self.events = []
        for _ in range(_EMPTY):
            self._share_out()
            parts = self._collect_parts()
            template = next((part for part in parts if part is not None), None)
            if template is not None:
                break
        else:
            raise ClusterError(f'no collector has played its part of {_EMPTY} rollouts in a row')
        steps = self._n_sample // self._env_num
        whole = [_lost(template, steps * share) if part is None else part for part, share in zip(parts, self._shares)]
        self.envstep += self._n_sample
        return Samples(*(torch.cat(columns) for columns in zip(*whole)))

    def _collect_parts(self) -> list[Samples | None]:
        """The part of each actor; None for a lost one."""
        steps, begun_s = self._n_sample // self._env_num, time.monotonic()
        asked: dict[object, Collector] = {}
        for collector in self._working():
            request = steps * self._shares[collector.index], self.envstep, False, self.settings
            asked[collector.actor.collect.remote(*request, [self._weights], self._version)] = collector
        waiting, late_at_s = list(asked), float('inf')
        while waiting and time.monotonic() < late_at_s:
            waiting = self._wait(waiting)
            if 2 * len(waiting) <= len(asked) and late_at_s == float('inf'):
                now_s = time.monotonic()
                late_at_s = now_s + max(_LATE_S, _LATE_FACTOR * (now_s - begun_s))
        parts: list[Samples | None] = [None] * len(self._collectors)
        for ref, collector in asked.items():
            if ref in waiting:
                self.restart(collector, 'is late')
            else:
                parts[collector.index] = self._take(ref, collector)
        return parts

    def _take(self, ref: object, collector: Collector) -> Samples | None:
        try:
            fragment: PackedFragment = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self.note_failure(collector, error)
            return None
        collector.failures = 0
        self.add_games(fragment.games)
        self.events += fragment.events
        columns = cast(FrameBatch, unpack(fragment.payload)).collated()
        return Samples(**{name: columns[name] for name in Samples._fields})


def _lost(like: Samples, size: int) -> Samples:
    """A part of weight 0, with tensors like those of another part."""
    return Samples(*(column.new_zeros(size, *column.shape[1:]) for column in like))
