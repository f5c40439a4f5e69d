"""An evaluator whose best score outlives a stop, and which shows what it sees: a game to watch, and Q values."""

import json
import math
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np
import torch
from ding.utils import SERIAL_EVALUATOR_REGISTRY
from ding.worker import InteractionSerialEvaluator

from ..utils import run_registry
from ..utils.atomic_file import write_bytes
from .held_out import held_out_states
from .sample_game import SampleGame
from .step_callback import WatchedManager

BEST_FILE = Path('resume', 'best_score.json')
SAMPLE_EVERY_S = 600.0  # a game in TensorBoard is up to half a megabyte


def best_score_in(folder: Path) -> float:
    """
    Overview:
        The score of ``ckpt_best``, as the last evaluation that wrote it has noted.
    Arguments:
        - folder (:obj:`Path`): Of the run.
    Returns:
        - score (:obj:`float`): Minus infinity if there is none, or no number.
    """
    try:
        score = float(json.loads((folder / BEST_FILE).read_text()))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return -math.inf
    return score if math.isfinite(score) else -math.inf


@SERIAL_EVALUATOR_REGISTRY.register('resumable')
class ResumableEvaluator(InteractionSerialEvaluator):
    """
    Overview:
        DI-engine's evaluator, with a best score that can be saved. To TensorBoard it also writes

        - ``evaluator_step/held_out_q``: the mean of the highest Q value over states that no run has trained on, the \
          same for all runs (Mnih et al. 2013, section 5.1); a curve that explodes or stands still tells more, and \
          sooner, than the score;
        - ``evaluator/sample_game``: what the network saw in a game of this evaluation, every ten minutes.

        A resumed run is evaluated once before it goes on: DI-engine's pipeline needs a result of its own process when \
        it ends, however soon that is.
    Interfaces:
        ``reset_env``, ``should_eval``, ``eval``, ``state``, ``load_state``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sample: Optional[SampleGame] = None
        self._sampled_at_s = -SAMPLE_EVERY_S
        super().__init__(*args, **kwargs)
        self._is_resumed = False
        self._note()
        run_registry.register(self._exp_name, 'evaluator', self)

    def reset_env(self, _env: Optional[Any] = None) -> None:
        """
        Overview:
            As the base.
        Arguments:
            - _env (:obj:`Optional[BaseEnvManager]`): The env manager to play in from now on; None for the same.
        """
        super().reset_env(None if _env is None else WatchedManager(_env, self._look_at))

    def should_eval(self, train_iter: int) -> bool:
        """Whether it is time; the pipelines ask between two collections, so a request to stop is looked at, too."""
        saver = run_registry.look_up(self._exp_name, 'saver')
        if saver is not None:
            saver.between_collections()
        is_first, self._is_resumed = self._is_resumed, False
        return super().should_eval(train_iter) or is_first

    def eval(
        self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1, *args: Any, **kwargs: Any
    ) -> Tuple[bool, Dict[str, list]]:
        """As the base's."""
        best_before = self._max_episode_return
        if time.monotonic() - self._sampled_at_s >= SAMPLE_EVERY_S:
            self._sample = SampleGame()
        finished, info = super().eval(save_ckpt_fn, train_iter, envstep, *args, **kwargs)
        self._note()
        if self._max_episode_return > best_before:
            # at once, as ckpt_best is: a run that is killed now goes on from a save that knows of neither
            write_bytes(self._best_path, json.dumps(self._state['best_score']).encode())
        self._show(info, envstep)
        return finished, info

    # ---------------------------------------------------------------- what it shows

    def _look_at(self, timesteps: Dict[int, Any]) -> None:
        run_registry.poll_progress(self._exp_name)
        if self._sample is not None and 0 in timesteps:
            self._sample.look_at(timesteps[0])

    def _show(self, info: Mapping[str, Any], envstep: int) -> None:
        q_value = self._held_out_q()
        if self._tb_logger is not None:
            if q_value is not None:
                self._tb_logger.add_scalar(f'{self._instance_name}_step/held_out_q', q_value, envstep)
            if self._sample is not None:
                self._sampled_at_s = time.monotonic()
                self._sample.write(self._tb_logger, f'{self._instance_name}/sample_game', envstep)
        self._sample = None
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            progress.note_evaluation([float(value) for value in info['eval_episode_return']], q_value)

    def _held_out_q(self) -> Optional[float]:
        """Mean of the highest Q value over the held-out states; None for policies without, or other screens."""
        model = self._policy_cfg.get('model') or {}
        if model.get('type') != 'pixel_dqn':
            return None
        states = held_out_states(model.get('obs_shape'), model.get('action_shape'))
        if states is None:
            return None
        output = self._policy.forward({i: torch.from_numpy(state) for i, state in enumerate(states)})
        return float(np.mean([float(values['logit'].max()) for values in output.values()]))

    # ---------------------------------------------------------------- over stops and starts

    @property
    def _best_path(self) -> Path:
        return Path(self._exp_name) / BEST_FILE

    def _note(self) -> None:
        self._state = dict(best_score=float(self._max_episode_return), last_iteration=int(self._last_eval_iter))

    def state(self) -> Dict[str, float]:
        """Best score and iteration after the last evaluation that was finished; one under way will be done again."""
        return self._state

    def load_state(self, state: Mapping[str, float]) -> None:
        """Take over what ``state`` gave; the best score is that of ``ckpt_best``, which may be newer."""
        self._max_episode_return = max(state['best_score'], best_score_in(Path(self._exp_name)))
        self._last_eval_iter = state['last_iteration']
        self._is_resumed = True
        self._note()
