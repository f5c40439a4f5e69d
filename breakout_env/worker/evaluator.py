"""The evaluator of a run: when an evaluation is due, and what the run keeps of its result."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.utils import SERIAL_EVALUATOR_REGISTRY
from ding.worker import InteractionSerialEvaluator
from easydict import EasyDict

from ..compat.ding_lost_workers import ClosesWithoutWorkers
from ..utils import run_registry
from .step_callback import StepCallback, weakly

_log = logging.getLogger(__name__)


class EvaluationRecord:
    """What a run keeps of its evaluations: the best score, and when the last one was. The base of its evaluators."""

    _cfg: EasyDict
    _exp_name: str

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._best_score = -math.inf
        # Updates before the newest evaluation that has begun, and before the newest one that has ended.
        self._begun_at = self._ended_at = -1
        self._is_asked_for = False
        run_registry.register(self._exp_name, 'evaluator', self)

    def should_eval(self, train_iter: int) -> bool:
        """Whether it is time, as DI-engine's evaluators count it: an evaluation begins if the answer is yes."""
        is_asked_for, self._is_asked_for = self._is_asked_for, False
        is_due = train_iter == 0 or train_iter - self._begun_at >= self._cfg.eval_freq
        if not is_due or train_iter == self._begun_at:
            return is_asked_for
        self._begun_at = train_iter
        return True

    def evaluate_first(self) -> None:
        """Evaluate when the pipeline asks the next time, however few updates there were."""
        self._is_asked_for = True

    def note_result(
        self, returns: list[float], train_iter: int, save_checkpoint: Callable[[], None] | None, **seen: int
    ) -> None:
        """Save the checkpoint if its score is the best so far, and write the row of the log."""
        score = float(np.mean(returns))
        if save_checkpoint is not None and score > self._best_score:
            saver = run_registry.look_up(self._exp_name, 'saver')
            try:
                save_checkpoint()
                if train_iter:  # any score of a trained network is better than that of the untrained one
                    self._best_score = score
                    if saver is not None:
                        saver.note_best_score(score)
            except OSError as error:  # of the disk, which must not end the training
                _log.warning('ckpt_best or its score was not saved, the training continues: %s', error)
        self._ended_at = self._begun_at
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            progress.note_evaluation(returns, **seen)

    def state(self) -> dict[str, float]:
        """The state that is saved with a run; an evaluation that has not ended will be repeated."""
        return dict(best_score=self._best_score, last_iteration=self._ended_at)

    def load_state(self, state: Mapping[str, float]) -> None:
        self._best_score = state['best_score']
        self._begun_at = self._ended_at = int(state['last_iteration'])


@SERIAL_EVALUATOR_REGISTRY.register('resumable')
class ResumableEvaluator(EvaluationRecord, ClosesWithoutWorkers, InteractionSerialEvaluator):
    """DI-engine's evaluator, with a best score that is saved with the run. To ``compile_config`` give DI-engine's
    ``InteractionSerialEvaluator`` as the class: for others it does not set ``n_episode``.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        # Games of the evaluation that is under way, and how many have ended.
        self._games = self._ended = 0
        super().__init__(*args, **kwargs)

    def reset_env(self, _env: BaseEnvManager | None = None) -> None:
        super().reset_env(None if _env is None else StepCallback(_env, weakly(self._on_step)))

    @property
    def activity(self) -> str | None:
        """What the progress line says during an evaluation; None between two."""
        if not self._games:
            return None
        # an environment that has ended its share plays on until all have
        return f'evaluating, game {min(self._ended + 1, self._games)} of {self._games}'

    def eval(
        self,
        save_ckpt_fn: Callable[[str], None] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        *args: object,
        **kwargs: object,
    ) -> tuple[bool, dict[str, list]]:
        self._games = n_episode or self._default_n_episode
        self._ended = 0
        try:
            finished, info = super().eval(None, train_iter, envstep, n_episode, *args, **kwargs)
        finally:
            self._games = 0
        returns = [float(np.mean(value)) for value in info['eval_episode_return']]
        self.note_result(returns, train_iter, save_ckpt_fn and partial(save_ckpt_fn, 'ckpt_best.pth.tar'))
        return finished, info

    def _on_step(self, timesteps: dict[int, BaseEnvTimestep]) -> None:
        self._ended += sum(timestep.done for timestep in timesteps.values())
        run_registry.after_env_step(self._exp_name)
