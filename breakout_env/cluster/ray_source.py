"""Training with collectors on Ray: this process learns, Ray actors collect and evaluate. On this machine, and on a
cluster with as many collectors as it has CPUs, now and later. docs/scale.md has Slurm and Kubernetes.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from ding.utils import SERIAL_COLLECTOR_REGISTRY
from ding.worker import BaseSerialCommander, IBuffer

from ..run.budget import Budget
from ..run.config import ConfigFile
from ..run.pipeline import ExperienceSource, Fragment, RunParts, train
from ..utils import run_registry
from ..worker.collector import Settings
from ..worker.overlap import overlapped
from .collector_pool import CollectorPool, Collectors
from .fragment import Event
from .ray_session import CollectorCount, ray_session
from .remote_evaluator import RemoteEvaluator
from .rollout_pool import RolloutPool

# How long the learner waits for a fragment before it checks the budget and a request to stop.
_POLL_S = 0.5


class OnRay:
    """An ``ExperienceSource`` of Ray actors.

    Arguments:
        collectors: How many; ``'auto'`` for as many as the cluster has CPUs.
        address: Of a cluster; None for a local Ray that ends with the run.
    """

    pool_class: type[Collectors]
    collector: Any

    def __init__(self, parts: RunParts, collectors: CollectorCount, address: str | None) -> None:
        self._cfg, self._policy, self._learner = parts.cfg, parts.policy, parts.learner
        self._tb_logger = parts.tb_logger
        ray = parts.at_the_end.enter_context(ray_session(address, collectors))
        self.evaluator = RemoteEvaluator(ray, parts)
        parts.at_the_end.callback(self.evaluator.close)
        self.collector = self.pool_class(ray, parts.cfg, collectors, parts.print_line)
        parts.at_the_end.callback(self.collector.close)

    def start(self, commander: BaseSerialCommander, replay_buffer: IBuffer, budget: Budget) -> None:
        """Nothing to begin with."""

    def _prepare(self, settings: Settings) -> None:
        """Settings and weights of the next requests."""
        self.collector.settings = settings
        self.collector.set_weights(self._policy.collect_mode.state_dict(), self._learner.train_iter)

    def _log(self, events: Iterable[Event]) -> None:
        for event in events:
            self._tb_logger.add_scalar(*event)

    def evaluate_if_due(self) -> bool:
        """Begin an evaluation if it is time; its result is taken later, as the learner does not wait for it."""
        if self.evaluator.should_eval(self._learner.train_iter):
            self.evaluator.begin(self._learner.train_iter, self.collector.envstep)
        return self.evaluator.poll()

    def evaluate(self) -> None:
        while self.evaluator.is_under_way or self.evaluator.updates != self._learner.train_iter:
            if not self.evaluator.is_under_way:
                self.evaluator.begin(self._learner.train_iter, self.collector.envstep)
            self.evaluator.poll(_POLL_S)
            run_registry.after_env_step(self._cfg.exp_name)


class TransitionsOnRay(OnRay):
    """Actors collect transitions for a replay buffer. Fragments are learned from in the order of their arrival."""

    pool_class = CollectorPool

    def start(self, commander: BaseSerialCommander, replay_buffer: IBuffer, budget: Budget) -> None:
        self._prepare(commander.step())
        self.collector.open(self._cfg.policy.get('random_collect_size', 0), budget.env_steps)

    def fragments(self, settings: Iterator[Settings], push: Callable[[Fragment], None]) -> Generator[Fragment]:
        for of_collection in settings:
            self._prepare(of_collection)
            self._learner.run_progress.poll()
            if (collected := self.collector.next_fragment(_POLL_S)) is None:
                continue
            transitions, packed, is_random = collected
            self._log(packed.events)
            push(fragment := Fragment(transitions, self.collector.envstep))
            if not is_random:
                yield fragment


class RolloutsOnRay(OnRay):
    """Actors play a rollout together while the learner learns from the one before, as ``overlapped`` says."""

    pool_class = RolloutPool

    def fragments(self, settings: Iterator[Settings], push: Callable[[Fragment], None]) -> Generator[Fragment]:
        return overlapped(self._collections(settings), push)

    def _collections(self, settings: Iterator[Settings]) -> Iterator[Callable[[], Fragment]]:
        for of_collection in settings:
            self._log(self.collector.events)
            self._prepare(of_collection)
            yield self._collect

    def _collect(self) -> Fragment:
        rollout = self.collector.collect()
        device = self._policy.collect_mode.get_attribute('device')
        return Fragment(type(rollout)(*(column.to(device) for column in rollout)), self.collector.envstep)


def train_on_ray(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    collectors: CollectorCount = 'auto',
    ray_address: str | None = None,
    changes: Mapping[str, object] = {},
) -> str:
    """As ``train``, with collectors on Ray: ``collectors`` and ``ray_address`` as of ``OnRay``.

    Raises:
        ClusterError: If the run cannot continue with this cluster.
    """

    def source(parts: RunParts) -> ExperienceSource:
        collector = SERIAL_COLLECTOR_REGISTRY[parts.cfg.policy.collect.collector.type]
        kind = RolloutsOnRay if getattr(collector, 'collects_rollouts', False) else TransitionsOnRay
        return kind(parts, collectors, ray_address)

    return train(config, seed, budget, resume, changes=changes, source=source)
