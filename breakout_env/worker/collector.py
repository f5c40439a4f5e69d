"""
Collectors that add to DI-engine's the scores of full games, and ids of episodes and steps.

A training episode ends with each life, so DI-engine's returns are those of single lives. The score of a game comes with
its last step, in ``info['game_return']``.
"""

import itertools
from collections import deque
from typing import Any, Deque, Dict, Iterable, List, Mapping, Optional

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.utils import SERIAL_COLLECTOR_REGISTRY

from ..utils import run_registry
from ..utils.weak import weakly
from .nstep_collector import NstepCollector, TailBuffer
from .step_callback import StepCallback

# Shared by all collectors of a process: two of them may fill one replay buffer.
_EPISODE_IDS = itertools.count()
# As in most published curves, the score of training is the mean over so many games.
GAMES_IN_MEAN = 100


class GameScores(object):
    """The scores of the full games that a run has collected, for the progress line, the log and saves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.games = 0
        self._game_returns: Deque[float] = deque(maxlen=GAMES_IN_MEAN)
        super().__init__(*args, **kwargs)

    def add_games(self, scores: Iterable[float]) -> None:
        """Count games that have ended."""
        for score in scores:
            self.games += 1
            self._game_returns.append(score)

    @property
    def game_return_mean(self) -> Optional[float]:
        """Mean score of the last 100 games; None before the first has ended."""
        return float(np.mean(self._game_returns)) if self._game_returns else None

    def state(self) -> Dict[str, Any]:
        """The state that is saved with a run."""
        return dict(games=self.games, game_returns=list(self._game_returns))

    def load_state(self, state: Dict[str, Any]) -> None:
        """Restore what ``state`` returned."""
        self.games = state['games']
        self._game_returns = deque(state['game_returns'], maxlen=GAMES_IN_MEAN)


def scores_in(timesteps: Mapping[int, BaseEnvTimestep]) -> List[float]:
    """The scores of the full games that ended in a step of an env manager."""
    return [float(step.info['game_return']) for step in timesteps.values() if step.done and 'game_return' in step.info]


@SERIAL_COLLECTOR_REGISTRY.register('full_games')
class FullGamesCollector(GameScores, NstepCollector):
    """
    Overview:
        DI-engine's ``sample`` collector with the n-step returns of ``NstepCollector``. It also records the scores of \
        full games, those of random play included, and writes their mean to TensorBoard \
        (``collector_step/game_return_mean``).
    Examples:
        >>> from ding.worker import get_serial_collector_cls
        >>> from easydict import EasyDict
        >>> get_serial_collector_cls(EasyDict(type='full_games', import_names=['breakout_env'])).__name__
        'FullGamesCollector'
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.epsilon: Optional[float] = None
        super().__init__(*args, **kwargs)
        run_registry.register(self._exp_name, 'collector', self)

    def reset_env(self, _env: Optional[BaseEnvManager] = None) -> None:
        """Continue in an env manager, or reset the present one."""
        super().reset_env(None if _env is None else StepCallback(_env, weakly(self._on_step)))

    def _on_step(self, timesteps: Dict[int, BaseEnvTimestep]) -> None:
        self.add_games(scores_in(timesteps))
        run_registry.poll_progress(self._exp_name)

    def collect(self, *args: Any, **kwargs: Any) -> List[Any]:
        """The base's ``collect``."""
        policy_kwargs = args[5] if len(args) > 5 else kwargs.get('policy_kwargs')
        self.epsilon = (policy_kwargs or {}).get('eps')
        games_before = self.games
        transitions = super().collect(*args, **kwargs)
        self._log_scores(games_before)
        return transitions

    def _log_scores(self, games_before: int) -> None:
        """Write the mean score to TensorBoard if games have ended since there were ``games_before``."""
        if self.games > games_before and self._tb_logger is not None:
            self._tb_logger.add_scalar(
                f'{self._instance_name}_step/game_return_mean', self.game_return_mean, self._total_envstep_count
            )


class NumberedTrajBuffer(TailBuffer):
    """
    The list of the latest transitions of one environment, which adds ``env_id``, ``episode_id`` and ``step_id``
    to each. The collector also empties the list within an episode; the ids continue.
    """

    def __init__(self, env_id: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._env_id = env_id
        self.start_episode()

    def start_episode(self) -> None:
        """Number the next transitions as the steps of a new episode."""
        self._episode_id = next(_EPISODE_IDS)
        self._step_id = 0

    def append(self, data: dict) -> None:
        """Add a transition and its ids."""
        super().append(dict(data, env_id=self._env_id, episode_id=self._episode_id, step_id=self._step_id))
        self._step_id += 1


@SERIAL_COLLECTOR_REGISTRY.register('sample_with_ids')
class SampleWithIdsCollector(FullGamesCollector):
    """
    Overview:
        ``full_games`` for any policy. Its transitions, those of random play included, carry ``env_id``, \
        ``episode_id`` (unique in the process) and ``step_id`` (0, 1, ... within the episode). It returns all \
        transitions: the base cuts a collection to ``n_sample``, which would leave gaps in episodes.
    """

    def _new_buffer(self, env_id: int) -> NumberedTrajBuffer:
        return NumberedTrajBuffer(env_id, self._nstep - 1, deepcopy=self._deepcopy_obs)

    def _reset_stat(self, env_id: int) -> None:
        # the base calls this at the end of an episode, and after an abnormal step, which ends it, too
        super()._reset_stat(env_id)
        self._traj_buffer[env_id].start_episode()

    def collect(self, *args: Any, **kwargs: Any) -> List[Any]:
        """The base's ``collect``, which returns at least ``n_sample`` transitions: ``drop_extra`` is off by default."""
        if len(args) < 3:  # it is the base's third argument
            kwargs.setdefault('drop_extra', False)
        return super().collect(*args, **kwargs)
