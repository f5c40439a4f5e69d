"""A collector that says which episode and step a transition is: DI-engine's transitions do not."""

import itertools
from typing import Any, List, Optional

from ding.utils import SERIAL_COLLECTOR_REGISTRY
from ding.worker import SampleSerialCollector
from ding.worker.collector.base_serial_collector import INF, TrajBuffer

# One count for all collectors of a process: two of them may fill one replay buffer.
_EPISODE_IDS = itertools.count()


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
class SampleWithIdsCollector(SampleSerialCollector):
    """
    Overview:
        DI-engine's ``sample`` collector for any policy, random play included. Its transitions carry ``env_id``, \
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
