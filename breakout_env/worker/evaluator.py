"""An evaluator whose best score outlives a resumed run."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.utils import SERIAL_EVALUATOR_REGISTRY
from ding.worker import InteractionSerialEvaluator

from ..compat.ding_lost_workers import ClosesWithoutWorkers
from ..utils import run_registry
from .step_callback import StepCallback, weakly

_log = logging.getLogger(__name__)


@SERIAL_EVALUATOR_REGISTRY.register('resumable')
class ResumableEvaluator(ClosesWithoutWorkers, InteractionSerialEvaluator):
    """DI-engine's evaluator, with a best score that is saved with the run. To ``compile_config`` give DI-engine's
    ``InteractionSerialEvaluator`` as the class: for others it does not set ``n_episode``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Games of the evaluation that is under way, and how many each environment has ended.
        self._games = 0
        self._ended: Counter[int] = Counter()
        super().__init__(*args, **kwargs)
        self._is_due = False
        self._update_state()
        run_registry.register(self._exp_name, 'evaluator', self)

    def reset_env(self, _env: BaseEnvManager | None = None) -> None:
        super().reset_env(None if _env is None else StepCallback(_env, weakly(self._on_step)))

    def should_eval(self, train_iter: int) -> bool:
        """Whether it is time."""
        is_due, self._is_due = self._is_due, False
        return super().should_eval(train_iter) or is_due

    def evaluate_first(self) -> None:
        """Evaluate when the pipeline asks the next time, however few updates there were."""
        self._is_due = True

    @property
    def activity(self) -> str | None:
        """What the progress line says during an evaluation; None between two."""
        if not self._games:
            return None
        each = -(-self._games // self._env_num)  # one that has ended its share plays on until all have
        ended = sum(min(games, each) for games in self._ended.values())
        return f'evaluating, game {min(ended + 1, self._games)} of {self._games}'

    def eval(
        self,
        save_ckpt_fn: Any = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[bool, dict[str, list]]:
        best_saved = self._max_episode_return
        due: list[str] = []  # the name of a checkpoint, if the score is the best so far
        self._games = n_episode or self._default_n_episode
        self._ended.clear()
        try:
            finished, info = super().eval(save_ckpt_fn and due.append, train_iter, envstep, n_episode, *args, **kwargs)
        finally:
            self._games = 0
        if due:
            saver = run_registry.look_up(self._exp_name, 'saver')
            try:
                save_ckpt_fn(*due)
                if train_iter:  # any score of a trained network is better than that of the untrained one
                    best_saved = self._max_episode_return
                    if saver is not None:
                        saver.note_best_score(float(best_saved))
            except OSError as error:  # of the disk, which must not end the training
                _log.warning('ckpt_best or its score was not saved, the training continues: %s', error)
            self._max_episode_return: float = best_saved
        self._update_state()
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            progress.note_evaluation([float(value) for value in info['eval_episode_return']])
        return finished, info

    def _on_step(self, timesteps: dict[int, BaseEnvTimestep]) -> None:
        self._ended.update(env_id for env_id, timestep in timesteps.items() if timestep.done)
        run_registry.after_env_step(self._exp_name)

    def _update_state(self) -> None:
        self._state = dict(best_score=float(self._max_episode_return), last_iteration=int(self._last_eval_iter))

    def state(self) -> dict[str, float]:
        """Best score and iteration after the last finished evaluation; an unfinished one will be repeated."""
        return self._state

    def load_state(self, state: Mapping[str, float]) -> None:
        self._max_episode_return = state['best_score']
        self._last_eval_iter = state['last_iteration']
        self._update_state()
