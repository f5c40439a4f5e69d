"""The evaluator of a run on Ray: evaluates in an actor while the learner trains."""

import copy
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ding.policy import Policy
from easydict import EasyDict
from tensorboardX import SummaryWriter

from ..run.paths import BEST_CHECKPOINT, write_best_score
from ..utils import run_registry
from ..utils.atomic_file import write_bytes
from .actors import EvaluatorActor
from .fragment import pack_weights
from .ray_session import ClusterError


class RemoteEvaluator:
    """Has weights evaluated by a Ray actor, one evaluation at a time, and does with the result what DI-engine's
    evaluator does: curves, the best checkpoint, the end at ``stop_value``. The learner does not wait, so the best
    checkpoint is a copy from when the evaluation began.
    """

    def __init__(
        self, ray: Any, cfg: EasyDict, policy: Policy, tb_logger: SummaryWriter, say: Callable[[str], None]
    ) -> None:
        """``ray``, ``cfg`` and ``say`` as in ``CollectorPool``; the learner's policy, and the run's log."""
        self._ray, self._policy, self._tb_logger, self._say = ray, policy, tb_logger, say
        self._cfg, self._exp_name = cfg.policy.eval.evaluator, cfg.exp_name
        # where it dies, Ray restarts it and repeats the evaluation
        self._actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(EvaluatorActor).remote(cfg)
        self._best_score = float('-inf')
        self.last_iteration = -1  # updates of the last evaluation that was begun
        self._result: Any | None = None  # Ray's reference, while an evaluation is under way
        self._checkpoint: dict[str, Any] = {}
        run_registry.register(cfg.exp_name, 'evaluator', self)

    @property
    def is_under_way(self) -> bool:
        return self._result is not None

    @property
    def activity(self) -> str | None:
        """What the progress line says during an evaluation; None between two."""
        return 'evaluating' if self.is_under_way else None

    def should_eval(self, train_iter: int) -> bool:
        """Whether to begin an evaluation: every ``eval_freq`` updates, once the one before has ended."""
        is_due = self.last_iteration < 0 or train_iter - self.last_iteration >= self._cfg.eval_freq
        return is_due and not self.is_under_way

    def evaluate_first(self) -> None:
        """Does nothing: the run evaluates at its end, and no pipeline of DI-engine asks for a result."""

    def begin(self, train_iter: int, env_step: int) -> None:
        """Begin an evaluation of the policy as it is after so many updates and env steps."""
        self.last_iteration = train_iter
        self._checkpoint = copy.deepcopy(self._policy.learn_mode.state_dict())
        self._checkpoint.update(last_iter=train_iter, last_step=env_step)  # as in DI-engine's own checkpoints
        weights = self._ray.put(pack_weights(self._policy.eval_mode.state_dict()['model']))
        self._result = self._actor.evaluate.remote([weights], train_iter, env_step)

    def look(self, timeout_s: float = 0.0) -> bool:
        """Take the result, if there is one within ``timeout_s`` seconds; returns whether the score has reached
        ``stop_value``. A ClusterError says that the evaluator cannot work.
        """
        if self._result is None or not self._ray.wait([self._result], timeout=timeout_s)[0]:
            return False
        try:
            returns, events = self._ray.get(self._result)
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f'the evaluator cannot work: {str(error).strip().splitlines()[-1]}') from error
        self._result, score = None, float(np.mean(returns))
        train_iter, env_step = self._checkpoint['last_iter'], self._checkpoint['last_step']
        for event in events:
            self._tb_logger.add_scalar(*event)
        self._tb_logger.flush()
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            progress.note_evaluation(returns, updates=train_iter, env_step=env_step)
        self._say(
            f'Evaluated at {train_iter:,} updates and {env_step:,} env steps: {score:.1f} points over '
            f'{len(returns)} games.'
        )
        if train_iter and score > self._best_score:  # an untrained network is no run's best agent
            self._save_best(score)
        return score >= self._cfg.stop_value and train_iter > 0

    def _save_best(self, score: float) -> None:
        content = io.BytesIO()
        torch.save(self._checkpoint, content)
        try:
            write_bytes(Path(self._exp_name) / BEST_CHECKPOINT, content.getvalue())
            self._best_score = score
            write_best_score(self._exp_name, score)
        except OSError as error:  # it must not end the training
            self._say(f'ckpt_best or its score was not saved: {error}.')

    def close(self) -> None:
        """End the actor, and an evaluation under way with it."""
        self._ray.kill(self._actor)

    def state(self) -> dict[str, float]:
        """What a save of the run keeps: best score, and the last evaluation that has ended."""
        last = max(-1, self.last_iteration - self._cfg.eval_freq) if self.is_under_way else self.last_iteration
        return dict(best_score=self._best_score, last_iteration=last)

    def load_state(self, state: Mapping[str, float]) -> None:
        self._best_score = state['best_score']
        self.last_iteration = int(state['last_iteration'])
