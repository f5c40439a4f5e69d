"""Training with collectors on Ray: this process learns, Ray actors collect and evaluate. On this machine, and on a
cluster with as many collectors as it has CPUs, now and later. docs/scale.md has Slurm and Kubernetes.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial

from ding.worker import BaseSerialCommander, IBuffer

from ..policy.initial_weights import InitialWeights
from ..run.budget import Budget
from ..run.config import ConfigFile
from ..run.pipeline import Fragment, RunParts, train
from ..utils import run_registry
from ..worker.collector import Settings
from .collector_pool import CollectorPool
from .ray_session import CollectorCount, ray_session
from .remote_evaluator import RemoteEvaluator

# How long the learner waits for a fragment before it checks the budget and a request to stop.
_POLL_S = 0.5


class OnRay:
    """An ``ExperienceSource`` of Ray actors. Fragments are learned from in the order of their arrival.

    Arguments:
        collectors: How many; ``'auto'`` for as many as the cluster has CPUs.
        address: Of a cluster; None for a local Ray that ends with the run.
    """

    def __init__(self, parts: RunParts, collectors: CollectorCount, address: str | None) -> None:
        self._cfg, self._policy, self._learner = parts.cfg, parts.policy, parts.learner
        self._tb_logger = parts.tb_logger
        ray = parts.at_the_end.enter_context(ray_session(address, collectors))
        self.evaluator = RemoteEvaluator(ray, parts)
        parts.at_the_end.callback(self.evaluator.close)
        self.collector = CollectorPool(ray, parts.cfg, collectors, parts.print_line)
        parts.at_the_end.callback(self.collector.close)

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
            for event in packed.events:
                self._tb_logger.add_scalar(*event)
            push(fragment := Fragment(transitions, self.collector.envstep))
            if not is_random:
                yield fragment

    def _prepare(self, settings: Settings) -> None:
        """Settings and weights of the next requests."""
        self.collector.settings = settings
        self.collector.set_weights(self._policy.collect_mode.state_dict()['model'], self._learner.train_iter)

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


def train_on_ray(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    collectors: CollectorCount = 'auto',
    ray_address: str | None = None,
    changes: Mapping[str, object] = {},
    initial: InitialWeights | None = None,
) -> str:
    """As ``train``, with collectors on Ray: ``collectors`` and ``ray_address`` as of ``OnRay``.

    Raises:
        ClusterError: If the run cannot continue with this cluster.
    """
    source = partial(OnRay, collectors=collectors, address=ray_address)
    return train(config, seed, budget, resume, changes=changes, source=source, initial=initial)
