"""
Slices of episodes, for recurrent policies: which steps of which episode are stored, and where a slice may begin.

A slice is ``slice_len`` consecutive steps of one episode. Beside its screens, a step of R2D2 has the hidden state that
the network had before it, 4 kB. Only the first one of a slice is used, so where slices begin at every 20th step only,
the others need not be kept.
"""

from array import array
from bisect import bisect_left
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from ding.utils import lists_to_dicts

from .memory import ReplayMemory

# DI-engine's name of the hidden state before a step.
_STATE = 'prev_state'
# Tries at random before all places where a slice may begin are listed.
_ROUNDS = 8
_PADDED = 'padded'


class _Episode(NamedTuple):
    first_step: int
    insertion_ids: 'array[int]'  # of its steps, one after the other


class SliceSampler(object):
    """
    Overview:
        Samples slices from a memory: a stored step, uniformly, and the slice that begins at it or at the last start \
        before it, so that a start counts as often as steps are stored from it to the next one. Starts are the steps \
        whose ``step_id`` is a multiple of ``every``, up to the first from which a slice reaches the end of what is \
        stored of the episode. A slice that reaches beyond it is padded with copies of its last step, reward 0 and \
        ``null``.
    Arguments:
        - memory (:obj:`ReplayMemory`): It evicts the oldest and nothing else, so that it has no holes.
        - slice_len, every (:obj:`int`): Steps of a slice, and from one beginning to the next.
    """

    def __init__(self, memory: ReplayMemory, slice_len: int, every: int) -> None:
        self._memory = memory
        self._slice_len = slice_len
        self._every = every
        self.clear()

    def clear(self) -> None:
        """Forget all episodes."""
        self._episodes: Dict[int, _Episode] = {}
        # Each process counts episodes from 0; new ones must not share ids with those loaded from an earlier process.
        self._first_episode = 0

    def prepare(self, transitions: Sequence[Mapping]) -> List[Dict[str, Any]]:
        """The transitions as they are stored; a ValueError if they are not the next steps of their episodes."""
        prepared: List[Dict[str, Any]] = []
        next_steps: Dict[int, int] = {}
        for transition in transitions:
            expect_ids(transition)
            number, step = int(transition['episode_id']) + self._first_episode, int(transition['step_id'])
            episode = self._episodes.get(number)
            stored = None if episode is None else episode.first_step + len(episode.insertion_ids)
            expected = next_steps.get(number, stored)
            if expected not in (None, step):
                raise ValueError(
                    f'transition of episode {transition["episode_id"]} has step_id {step}; expected {expected}, the '
                    'step after the one before: slices need all steps of an episode, in order'
                )
            next_steps[number] = step + 1
            kept = {key: value for key, value in transition.items() if key != _STATE or step % self._every == 0}
            prepared.append(dict(kept, episode_id=number, step_id=step))
        return prepared

    def pushed(self, transitions: Sequence[Mapping], insertion_ids: Sequence[int]) -> None:
        """Take notice of prepared transitions that were stored."""
        for transition, insertion_id in zip(transitions, insertion_ids):
            self._add(transition['episode_id'], transition['step_id'], insertion_id)
        oldest = self._oldest
        for number in list(self._episodes):  # in the order of their first steps
            if self._episodes[number].insertion_ids[-1] >= oldest:
                break
            del self._episodes[number]

    def _add(self, number: int, step: int, insertion_id: int) -> None:
        self._episodes.setdefault(number, _Episode(step, array('q'))).insertion_ids.append(insertion_id)

    def loaded(self) -> None:
        """Take notice of a memory with other content. If no slices can be sampled from it: cleared, a ValueError."""
        self.clear()
        rows = self._memory.rows()
        ids = (self._memory.column((key,), rows, None) for key in ('episode_id', 'step_id'))
        for i, (number, step, insertion_id) in enumerate(zip(*ids, self._memory.insertion_ids(rows))):
            if insertion_id == self._oldest + i and isinstance(number, int) and isinstance(step, int):
                self._add(number, step, insertion_id)
                first, known = self._episodes[number]
                if step == first + len(known) - 1:
                    continue
            self.clear()
            self._memory.clear()
            raise ValueError(
                'the saved replay buffer cannot be sampled in slices: it has transitions without episode_id and '
                'step_id, or with gaps; expected one that was saved with `slice_len`'
            )
        self._first_episode = max(self._episodes, default=-1) + 1

    @property
    def _oldest(self) -> int:
        return self._memory.push_count - self._memory.count

    def sample(self, size: int) -> Optional[Tuple[np.ndarray, np.ndarray]]:
        """
        Overview:
            Slices, one after the other; None where none may begin.
        Returns:
            - rows (:obj:`np.ndarray`): Of their steps in the memory.
            - padded (:obj:`np.ndarray`): Whether a step is a copy that pads a slice.
        """
        slices: List[Sequence[int]] = []
        for _ in range(_ROUNDS):
            rows = self._memory.sample(2 * size, replace=True)
            ids = (self._memory.column((key,), rows, None) for key in ('episode_id', 'step_id'))
            slices += filter(None, (self._slice(number, step - step % self._every) for number, step in zip(*ids)))
            if len(slices) >= size:
                break
        else:  # there are few
            slices = self._all_slices()
            if not slices:
                return None
            slices = [slices[i] for i in self._memory.random.integers(len(slices), size=size)]
        length = self._slice_len
        lengths = np.array([len(ids) for ids in slices[:size]])
        padded = np.arange(length) >= lengths[:, None]
        filled = np.array([[*ids, *[ids[-1]] * (length - len(ids))] for ids in slices[:size]])
        return self._memory.rows_at((filled.ravel() - self._oldest).tolist()), padded.ravel()

    def _slice(self, number: int, start: int) -> Optional[Sequence[int]]:
        """The insertion ids of the slice that begins at a step; None if none may begin there."""
        episode = self._episodes.get(number)
        if episode is None:  # the disk was full when it was stored
            return None
        ids = episode.insertion_ids
        first = episode.first_step + bisect_left(ids, self._oldest)  # earlier steps are evicted
        end = episode.first_step + len(ids)
        reaches_more = start - self._every < first or start - self._every + self._slice_len < end
        if not first <= start < end or not reaches_more:
            return None
        at = start - episode.first_step
        return ids[at : at + self._slice_len]

    def _all_slices(self) -> List[Sequence[int]]:
        found = (
            self._slice(number, start)
            for number, (first, ids) in self._episodes.items()
            for start in range(-(-first // self._every) * self._every, first + len(ids), self._every)
        )
        return [ids for ids in found if ids]

    def cut(self, steps: Sequence[Mapping]) -> List[Dict[str, list]]:
        """Slices from the steps in the rows that ``sample`` returned, with its ``padded``."""
        made = []
        for step in steps:
            padded = step[_PADDED]
            tensors = {key: _as_tensor(value) for key, value in step.items() if key != _PADDED}
            tensors['null'] = torch.tensor(bool(padded or step.get('null', False)))
            if padded:
                tensors['reward'] = torch.zeros_like(tensors['reward'])
            made.append(tensors)
        if any(_STATE in step for step in made):
            for step in made:
                step.setdefault(_STATE, None)
        return cut(made, self._slice_len)


def expect_ids(keys: Collection[str]) -> None:
    """Refuse transitions without the keys that slices of episodes need."""
    missing = [key for key in ('episode_id', 'step_id', 'reward') if key not in keys]
    if missing:
        raise ValueError(
            f'the replay buffer samples slices (`slice_len`), but its transitions lack {", ".join(missing)}; choose '
            "the collector that adds ids: create_config.collector=dict(type='sample_with_ids', "
            "import_names=['breakout_env'])"
        )


def cut(steps: Sequence[Dict[str, Any]], length: int) -> List[Dict[str, list]]:
    """Slices, one after the other, as dicts of lists with a value for each step: the form of DI-engine's R2D2."""
    return [lists_to_dicts(steps[i : i + length], recursive=True) for i in range(0, len(steps), length)]


def _as_tensor(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_tensor(inner) for key, inner in value.items()}
    return torch.tensor(value) if isinstance(value, (bool, int, float)) else value
