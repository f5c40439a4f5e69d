"""The evaluator of a run on Ray: evaluates in an actor while the learner trains."""

import copy
import io
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ..run.paths import BEST_CHECKPOINT
from ..run.pipeline import RunParts
from ..run.start import last_line
from ..utils.atomic_file import write_bytes
from ..worker.evaluator import EvaluationRecord
from .actors import EvaluatorActor
from .fragment import on_cpu
from .ray_session import ClusterError


class RemoteEvaluator(EvaluationRecord):
    """Has weights evaluated by a Ray actor, one evaluation at a time, and does with the result what DI-engine's
    evaluator does: curves, the best checkpoint, the end at ``stop_value``. The learner does not wait, so the best
    checkpoint is a copy from when the evaluation began.
    """

    def __init__(self, ray: ModuleType, parts: RunParts) -> None:
        self._ray, self._parts = ray, parts
        self._cfg, self._exp_name = parts.cfg.policy.eval.evaluator, parts.cfg.exp_name
        super().__init__()
        # where it dies, Ray restarts it and repeats the evaluation
        self._actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(EvaluatorActor).remote(parts.cfg)
        self._result: object = None  # Ray's reference to the newest
        self._checkpoint: dict[str, Any] = {}
        self.activity: str | None = None  # what the progress line says; None between two evaluations
        self.updates = -1  # before the newest evaluation; -1 before the first one

    def should_eval(self, train_iter: int) -> bool:
        """As the base's, once the evaluation before has ended."""
        return self.activity is None and super().should_eval(train_iter)

    def begin(self, train_iter: int, env_step: int) -> None:
        """Begin an evaluation of the policy as it is after so many updates and env steps."""
        self._checkpoint = copy.deepcopy(self._parts.policy.learn_mode.state_dict())
        self._checkpoint.update(last_iter=train_iter, last_step=env_step)  # as in DI-engine's own checkpoints
        weights = self._ray.put(on_cpu(self._parts.policy.eval_mode.state_dict()))
        self._result = self._actor.evaluate.remote([weights])
        self.activity = 'evaluating'
        self.updates = train_iter

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Take the result, if there is one within ``timeout_s`` seconds; returns whether the score has reached
        ``stop_value``. A ClusterError says that the evaluator cannot work.
        """
        if self.activity is None or not self._ray.wait([self._result], timeout=timeout_s)[0]:
            return False
        try:
            returns = self._ray.get(self._result)
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f'the evaluator cannot work: {last_line(error)}') from error
        self.activity = None
        score = float(np.mean(returns))
        updates, env_step = self.updates, self._checkpoint['last_step']
        for axis, at in (('iter', updates), ('step', env_step)):  # as DI-engine's evaluator
            self._parts.tb_logger.add_scalar(f'evaluator_{axis}/reward_mean', score, at)
        self._parts.print_line(
            f'Evaluated at {updates:,} updates and {env_step:,} env steps: {score:.1f} points over '
            f'{len(returns)} games.'
        )
        content = io.BytesIO()
        torch.save(self._checkpoint, content)
        save = partial(write_bytes, Path(self._exp_name) / BEST_CHECKPOINT, content.getvalue())
        self.note_result(returns, updates, save, updates=updates, env_step=env_step)
        return score >= self._cfg.stop_value and updates > 0

    def close(self) -> None:
        """End the actor, and an evaluation under way with it."""
        self._ray.kill(self._actor)
