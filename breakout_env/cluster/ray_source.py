"""Training with collectors on Ray: this process learns, Ray actors collect and evaluate (docs/scale.md)."""

from collections.abc import Callable, Generator, Iterator, Mapping

import torch
from ding.worker import BaseSerialCommander, IBuffer

from ..policy.lean_ppo import Samples
from ..run.config import collects_rollouts
from ..run.pipeline import Fragment, RunParts
from ..utils import run_registry
from ..utils.busy_cores import waits_more_than_it_runs
from ..worker.collector import Settings
from ..worker.overlap import overlapped
from .actors import PackedFragment
from .collector_pool import CollectorPool
from .fragment import unpack, unpack_rollout
from .ray_session import CollectorCount, ray_session
from .remote_evaluator import RemoteEvaluator

_POLL_S = 0.5  # between two looks at a request to stop


class OnRay:
    """An ``ExperienceSource`` of Ray actors: they play a round while the learner learns from the one before, as
    ``overlapped`` says. The fragments of a round are parts of one rollout, or transitions to learn from one by one.
    ``train(config, seed, budget, source=OnRay)`` trains from them.

    Arguments:
        collectors: How many; ``'auto'`` for as many as the cluster has CPUs.
        address: Of a cluster; None for a local Ray that ends with the run.
    Raises:
        ClusterError: If the run cannot continue with this cluster, also later.
    """

    def __init__(self, parts: RunParts, collectors: CollectorCount = 'auto', address: str | None = None) -> None:
        self._cfg, self._policy, self._learner = parts.cfg, parts.policy, parts.learner
        if waits_more_than_it_runs():  # beside programs that take the cores, nice actors would hardly get any time
            self._cfg.env.manager.nice = 0
        ray = parts.at_the_end.enter_context(ray_session(address, collectors))
        self.evaluator = RemoteEvaluator(ray, parts)
        parts.at_the_end.callback(self.evaluator.close)
        self.collector = CollectorPool(ray, parts.cfg, collectors, parts.print_line)
        parts.at_the_end.callback(self.collector.close)

    def start(self, commander: BaseSerialCommander, replay_buffer: IBuffer) -> None:
        self.collector.random_steps = self.collector.random_steps_left = self._cfg.policy.get('random_collect_size', 0)

    def fragments(self, settings: Iterator[Settings], push: Callable[[Fragment], None]) -> Generator[Fragment]:
        for fragments, is_random in overlapped(self._rounds(settings), push=lambda _: None):
            for fragment in fragments:
                push(fragment)
                if not is_random:
                    yield fragment

    def _rounds(self, settings: Iterator[Settings]) -> Iterator[Callable[[], tuple[list[Fragment], bool]]]:
        for of_round in settings:
            self.collector.settings = of_round
            self.collector.set_weights(self._policy.collect_mode.state_dict(), self._learner.train_iter)
            self._learner.run_progress.poll()
            yield self._play_round

    def _play_round(self) -> tuple[list[Fragment], bool]:
        """The fragments of a round, and whether they are random play."""
        is_random, env_step = self.collector.random_steps_left > 0, self.collector.envstep
        packed = self.collector.play_round()
        if collects_rollouts(self._cfg):
            return self._joined(packed), is_random
        fragments = []
        for fragment in packed.values():
            env_step += fragment.env_steps
            fragments.append(Fragment(list(unpack(fragment.payload)), env_step))
        return fragments, is_random

    def _joined(self, packed: Mapping[int, PackedFragment]) -> list[Fragment]:
        """One fragment with the whole rollout, where a lost part has weight 0; none if all parts are lost."""
        parts: dict[int, list[torch.Tensor]] = {}
        for index, fragment in packed.items():
            parts[index] = list(unpack_rollout(fragment.payload))
        if not parts:
            return []
        like = next(iter(parts.values()))
        for index, size in enumerate(self.collector.sizes()):
            if index not in packed:
                parts[index] = [column.new_zeros(size, *column.shape[1:]) for column in like]
                self.collector.envstep += size
        device = self._policy.collect_mode.get_attribute('device')
        rollout = Samples(*(torch.cat(columns).to(device) for columns in zip(*(parts[i] for i in sorted(parts)))))
        return [Fragment(rollout, self.collector.envstep)]

    def evaluate_if_due(self) -> bool:
        """Begin an evaluation if it is time; its result is taken later, as the learner does not wait for it."""
        if self.evaluator.should_eval(self._learner.train_iter):
            self.evaluator.begin(self._learner.train_iter, self.collector.envstep)
        return self.evaluator.poll()

    def evaluate(self) -> None:
        while self.evaluator.activity or self.evaluator.updates != self._learner.train_iter:
            if not self.evaluator.activity:
                self.evaluator.begin(self._learner.train_iter, self.collector.envstep)
            self.evaluator.poll(_POLL_S)
            run_registry.after_env_step(self._cfg.exp_name)
