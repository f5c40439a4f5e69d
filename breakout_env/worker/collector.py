"""What all collectors add to DI-engine's: the scores of full games, and a place in the run's registry.

A training episode ends with each life, so DI-engine's returns are scores of lives. The score of a game comes with its
last step, in ``info['game_return']``.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from ding.envs import BaseEnvTimestep
from ding.worker import SampleSerialCollector

from ..compat.ding_lost_workers import ClosesWithoutWorkers
from ..utils import run_registry

# As in most published curves, the score of training is the mean over so many games.
GAMES_IN_MEAN = 100
# What a policy acts with, besides its weights: epsilon.
Settings = dict[str, float]


class GameScores:
    """The scores of the full games that a run has collected, for the progress line, the log and saves."""

    games = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._game_returns: deque[float] = deque(maxlen=GAMES_IN_MEAN)
        super().__init__(*args, **kwargs)

    def add_games(self, scores: Iterable[float]) -> None:
        """Count games that have ended."""
        for score in scores:
            self.games += 1
            self._game_returns.append(score)

    def scores_since(self, games: int) -> list[float]:
        """The scores of the games that have ended since there were ``games``; at most 100."""
        ended = self.games - games
        return list(self._game_returns)[-ended:] if ended else []

    @property
    def game_return_mean(self) -> float | None:
        """Mean score of the last 100 games; None before the first has ended."""
        return float(np.mean(self._game_returns)) if self._game_returns else None

    def state(self) -> dict[str, Any]:
        """The state that is saved with a run."""
        return dict(games=self.games, game_returns=list(self._game_returns))

    def load_state(self, state: dict[str, Any]) -> None:
        self.games = state['games']
        self._game_returns = deque(state['game_returns'], maxlen=GAMES_IN_MEAN)


def scores_in(timesteps: Mapping[int, BaseEnvTimestep]) -> list[float]:
    """The scores of the full games that ended in a step of an env manager."""
    return [float(step.info['game_return']) for step in timesteps.values() if step.done and 'game_return' in step.info]


def random_play(done: int, steps: int) -> str:
    """What the progress line says while so many env steps of random play are collected."""
    return f'random play, {min(done, steps):,} of {steps:,} env steps'


class ScoringCollector(GameScores, ClosesWithoutWorkers, SampleSerialCollector):
    """The base of this package's collectors. It writes the mean score of the last games, including random play,
    to TensorBoard (``collector_step/game_return_mean``).
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        # The probability of a random action in the newest collection, for the log.
        self.epsilon: float | None = None
        # Of the random play that is under way: its env steps, and those that are done.
        self._random_steps = self._random_steps_done = 0
        super().__init__(*args, **kwargs)
        run_registry.register(self._exp_name, 'collector', self)

    @property
    def activity(self) -> str | None:
        """What the progress line says while the collector plays at random; None while it collects for updates."""
        return random_play(self._random_steps_done, self._random_steps) if self._random_steps else None

    def _note_step(self, env_steps: int, scores: Iterable[float]) -> None:
        """After each step of the environments: how many took it, and the scores of games that ended in it."""
        self._random_steps_done += env_steps
        self.add_games(scores)
        run_registry.after_env_step(self._exp_name)

    def _log_scores(self, games_before: int) -> None:
        """Write the mean score to TensorBoard if games have ended since there were ``games_before``."""
        if self.games > games_before and self._tb_logger is not None:
            self._tb_logger.add_scalar(
                f'{self._instance_name}_step/game_return_mean', self.game_return_mean, self._total_envstep_count
            )
