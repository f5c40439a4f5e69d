"""The evaluator of a run on Ray: evaluates in an actor while the learner trains on."""

import copy
import io
import json
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

import numpy as np
import torch

from ..replay.fragment import pack_weights
from ..utils import run_registry
from ..utils.atomic_file import write_bytes
from ..worker.evaluator import BEST_FILE, best_score_in
from .actors import EvaluatorActor, write_events
from .ray_session import ClusterError


class _Evaluation(NamedTuple):
    ref: Any
    weights: Any
    train_iter: int
    env_step: int
    checkpoint: Dict[str, Any]


class RemoteEvaluator(object):
    """
    Overview:
        Has weights evaluated by a Ray actor, one evaluation at a time, and does with the result what DI-engine's \
        evaluator does in its own process: curves, the best checkpoint, the end at ``stop_value``. The learner does \
        not wait, so the checkpoint of the best score is a copy from when the evaluation began.
    """

    def __init__(
        self,
        ray: Any,
        cfg: 'EasyDict',  # noqa: F821
        policy: 'Policy',  # noqa: F821
        tb_logger: 'SummaryWriter',  # noqa: F821
        say: Callable[[str], None],
    ) -> None:
        """
        Arguments:
            - ray (:obj:`Any`): From ``ray_session``.
            - cfg (:obj:`EasyDict`): The merged config.
            - policy (:obj:`Policy`): The learner's.
            - tb_logger (:obj:`SummaryWriter`): The run's.
            - say (:obj:`Callable`): Called with each message to the user.
        """
        self._ray, self._policy, self._tb_logger, self._say = ray, policy, tb_logger, say
        self._cfg = cfg.policy.eval.evaluator
        self._exp_name = cfg.exp_name
        actor_class = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(EvaluatorActor)
        self._actor = actor_class.remote(cfg)
        self._best_score = float('-inf')
        self.last_iteration = -1  # updates of the last evaluation that was begun
        self._evaluation: Optional[_Evaluation] = None
        run_registry.register(cfg.exp_name, 'evaluator', self)

    @property
    def is_under_way(self) -> bool:
        """Whether an evaluation has begun and not ended."""
        return self._evaluation is not None

    def should_eval(self, train_iter: int) -> bool:
        """
        Overview:
            Whether to begin an evaluation: every ``eval_freq`` updates, once the one before has ended.
        Arguments:
            - train_iter (:obj:`int`): Updates so far.
        """
        saver = run_registry.look_up(self._exp_name, 'saver')
        if saver is not None:
            saver.between_collections()
        is_due = self.last_iteration < 0 or train_iter - self.last_iteration >= self._cfg.eval_freq
        return is_due and not self.is_under_way

    def begin(self, train_iter: int, env_step: int) -> None:
        """
        Overview:
            Begin an evaluation of the policy as it is now.
        Arguments:
            - train_iter (:obj:`int`): Updates so far.
            - env_step (:obj:`int`): Env steps so far.
        """
        self.last_iteration = train_iter
        checkpoint = copy.deepcopy(self._policy.learn_mode.state_dict())
        checkpoint.update(last_iter=train_iter, last_step=env_step)  # as in DI-engine's own checkpoints
        weights = self._ray.put(pack_weights(self._policy.eval_mode.state_dict()['model']))
        ref = self._actor.evaluate.remote([weights], train_iter, env_step)
        self._evaluation = _Evaluation(ref, weights, train_iter, env_step, checkpoint)

    def look(self, timeout_s: float = 0.0) -> bool:
        """
        Overview:
            Take the result, if there is one.
        Arguments:
            - timeout_s (:obj:`float`): Seconds to wait for it.
        Returns:
            - finished (:obj:`bool`): Whether the score has reached ``stop_value``.
        Raises:
            - ClusterError: If the evaluator cannot work.
        """
        evaluation = self._evaluation
        if evaluation is None or not self._ray.wait([evaluation.ref], timeout=timeout_s)[0]:
            return False
        try:
            returns, events = self._ray.get(evaluation.ref)
        except self._ray.exceptions.ActorUnavailableError:  # it died; Ray restarts it
            weights, train_iter, env_step = evaluation.weights, evaluation.train_iter, evaluation.env_step
            ref = self._actor.evaluate.remote([weights], train_iter, env_step)
            self._evaluation = evaluation._replace(ref=ref)
            return False
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f'the evaluator cannot work: {str(error).strip().splitlines()[-1]}') from error
        self._evaluation = None
        score = float(np.mean(returns))
        write_events(events, self._tb_logger)
        self._tb_logger.flush()
        q_values = [values[1] for kind, values in events if kind == 'scalar' and values[0].endswith('held_out_q')]
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            q_value = q_values[-1] if q_values else None
            progress.note_evaluation(returns, q_value, evaluation.train_iter, evaluation.env_step)
        self._say(
            f'Evaluated at {evaluation.train_iter:,} updates and {evaluation.env_step:,} env steps: {score:.1f} points '
            f'over {len(returns)} games.'
        )
        if score > self._best_score:
            self._best_score = score
            self._save_best(evaluation.checkpoint)
        return score >= self._cfg.stop_value and evaluation.train_iter > 0

    def _save_best(self, checkpoint: Dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        try:
            write_bytes(Path(self._exp_name, 'ckpt', 'ckpt_best.pth.tar'), content.getvalue())
            write_bytes(Path(self._exp_name) / BEST_FILE, json.dumps(self._best_score).encode())
        except OSError as error:  # it must not end the training
            self._say(f'The checkpoint of the best score was not saved: {error}.')

    def close(self) -> None:
        """End the actor, an evaluation under way with it."""
        self._ray.kill(self._actor)

    # ---------------------------------------------------------------- saves

    def state(self) -> Dict[str, float]:
        """What a save of the run keeps: best score, and the last evaluation that has ended."""
        last = self.last_iteration
        if self.is_under_way:
            last = max(-1, last - self._cfg.eval_freq)
        return dict(best_score=self._best_score, last_iteration=last)

    def load_state(self, state: Mapping[str, float]) -> None:
        """Restore what ``state`` returned; the best score is that of ``ckpt_best``, which may be newer."""
        self._best_score = max(state['best_score'], best_score_in(Path(self._exp_name)))
        self.last_iteration = int(state['last_iteration'])
