"""
Collectors that say more than DI-engine's: the points of whole games, and which episode and step a transition is.

A training episode ends with each life, so that DI-engine's returns are those of single lives; the score that people
know a game by is told at its end only, in ``info['game_return']``.
"""

import itertools
from collections import deque
from typing import Any, Deque, Dict, List, Optional

import numpy as np
from ding.utils import SERIAL_COLLECTOR_REGISTRY
from ding.worker import SampleSerialCollector
from ding.worker.collector.base_serial_collector import INF, TrajBuffer

from ..utils import run_registry
from .step_callback import WatchedManager

# One count for all collectors of a process: two of them may fill one replay buffer.
_EPISODE_IDS = itertools.count()
# The score of training is the mean over so many games, as in most published curves.
GAMES_IN_MEAN = 100


@SERIAL_COLLECTOR_REGISTRY.register('full_games')
class FullGamesCollector(SampleSerialCollector):
    """
    Overview:
        DI-engine's ``sample`` collector, which also notes the points of whole games and writes their mean to \
        TensorBoard (``collector_step/game_return_mean``). Games are counted through random play, too.
    Interfaces:
        ``reset_env``, ``collect``, ``state``, ``load_state``.
    Properties:
        ``games``, ``game_return_mean``, ``epsilon``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.games = 0
        self.epsilon: Optional[float] = None
        self._game_returns: Deque[float] = deque(maxlen=GAMES_IN_MEAN)
        super().__init__(*args, **kwargs)
        run_registry.register(self._exp_name, 'collector', self)

    def reset_env(self, _env: Optional[Any] = None) -> None:
        """
        Overview:
            As the base.
        Arguments:
            - _env (:obj:`Optional[BaseEnvManager]`): The env manager to play in from now on; None for the same.
        """
        super().reset_env(None if _env is None else WatchedManager(_env, self._look_at))

    def _look_at(self, timesteps: Dict[int, Any]) -> None:
        for timestep in timesteps.values():
            if timestep.done and 'game_return' in timestep.info:
                self.games += 1
                self._game_returns.append(float(timestep.info['game_return']))
        run_registry.poll_progress(self._exp_name)

    def collect(self, *args: Any, **kwargs: Any) -> List[Any]:
        """
        Overview:
            As the base.
        Arguments:
            - args, kwargs: As the base's.
        Returns:
            - transitions (:obj:`List[Any]`): What the policy made of the transitions.
        """
        settings = args[5] if len(args) > 5 else kwargs.get('policy_kwargs')
        self.epsilon = (settings or {}).get('eps')
        games_before = self.games
        transitions = super().collect(*args, **kwargs)
        if self.games > games_before and self._tb_logger is not None:
            self._tb_logger.add_scalar(
                f'{self._instance_name}_step/game_return_mean', self.game_return_mean, self._total_envstep_count
            )
        return transitions

    @property
    def game_return_mean(self) -> Optional[float]:
        """Mean points of the last 100 games; None before the first has ended."""
        return float(np.mean(self._game_returns)) if self._game_returns else None

    def state(self) -> Dict[str, Any]:
        """What a save of the run keeps."""
        return dict(games=self.games, game_returns=list(self._game_returns))

    def load_state(self, state: Dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
        self.games = state['games']
        self._game_returns = deque(state['game_returns'], maxlen=GAMES_IN_MEAN)


class NumberedTrajBuffer(TrajBuffer):
    """
    Overview:
        DI-engine's list of the transitions that one environment made lately, which numbers each as it comes in. The \
        list is emptied in mid-episode, too, whenever a piece of it goes to the policy; the numbers run on.
    Interfaces:
        ``append``, ``start_episode``.
    """

    def __init__(self, env_id: int, **kwargs: Any) -> None:
        """
        Overview:
            Begin with the first episode.
        Arguments:
            - env_id (:obj:`int`): The environment.
            - kwargs (:obj:`Any`): The base's arguments.
        """
        super().__init__(**kwargs)
        self._env_id = env_id
        self.start_episode()

    def start_episode(self) -> None:
        """
        Overview:
            Number what comes as the steps of a new episode.
        """
        self._episode_id = next(_EPISODE_IDS)
        self._step_id = 0

    def append(self, data: dict) -> None:
        """
        Overview:
            Take in a transition, with ``env_id``, ``episode_id`` and ``step_id`` added.
        Arguments:
            - data (:obj:`dict`): The transition.
        """
        super().append(dict(data, env_id=self._env_id, episode_id=self._episode_id, step_id=self._step_id))
        self._step_id += 1


@SERIAL_COLLECTOR_REGISTRY.register('sample_with_ids')
class SampleWithIdsCollector(FullGamesCollector):
    """
    Overview:
        ``full_games`` for any policy, random play included. Its transitions carry ``env_id``, \
        ``episode_id`` (one for each episode of the process) and ``step_id`` (0, 1, ... within it), and it hands over \
        everything it collected: the base cuts a collection to ``n_sample``, which would tear holes into episodes.
    Interfaces:
        ``reset``, ``collect``.
    """

    def reset(self, _policy: Optional[Any] = None, _env: Optional[Any] = None) -> None:
        """
        Overview:
            As the base; every environment is in a new episode.
        Arguments:
            - _policy, _env: As the base's.
        """
        super().reset(_policy, _env)
        maxlen = None if self._traj_len == INF else self._traj_len
        self._traj_buffer = {
            env_id: NumberedTrajBuffer(env_id, maxlen=maxlen, deepcopy=self._deepcopy_obs)
            for env_id in range(self._env_num)
        }

    def _reset_stat(self, env_id: int) -> None:
        # the base calls it wherever an episode is over: at its end, and after a step that went wrong
        super()._reset_stat(env_id)
        self._traj_buffer[env_id].start_episode()

    def collect(self, *args: Any, **kwargs: Any) -> List[Any]:
        """
        Overview:
            Collect at least ``n_sample`` transitions.
        Arguments:
            - args, kwargs: As the base's; ``drop_extra`` is off unless asked for.
        Returns:
            - transitions (:obj:`List[Any]`): What the policy made of the transitions.
        """
        if len(args) < 3:  # where the base has it
            kwargs.setdefault('drop_extra', False)
        return super().collect(*args, **kwargs)
