"""
Slices of episodes, for recurrent policies: ``slice_len`` consecutive steps of one episode.

Beside its screens, a step of R2D2 has the hidden state that the network had before it, 4 kB. Only the first one of a
slice is used, so where slices begin at every 20th step only, the others need not be kept.
"""

from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from ding.utils import lists_to_dicts

from .batch import Extras, FrameBatch
from .memory import ReplayMemory
from .samplers import log
from .snapshot.snapshot import Restored
from .structure import OPTIONAL

# Tries at random before all starts of slices are listed.
_ROUNDS = 8
_PADDED = 'padded'


class SliceSampler(object):
    """
    Overview:
        Samples slices with uniformly random starts. A slice may start at every ``every``-th step of an episode. Of \
        the starts whose slices contain the newest stored step, only the first is used; what its slice lacks is \
        padded with copies of the last step, reward 0 and ``null``.

        Environments take turns, so the steps of an episode are not side by side: each slot has the slot of the \
        episode's next step, and of the step ``every`` earlier. FIFO eviction: all successors of a stored step are \
        stored. For its methods see ``TransitionSampler``.
    Arguments:
        - memory (:obj:`ReplayMemory`): What is sampled from. It evicts the oldest, and nothing is deleted from it.
        - slice_len, every (:obj:`int`): Steps of a slice, and from one start to the next.
    """

    def __init__(self, memory: ReplayMemory, slice_len: int, every: int) -> None:
        self._memory = memory
        self._slice_len = slice_len
        self._every = every
        self._next = np.zeros(memory.capacity, np.uint32)  # slot of the next step; its own at the end
        self._before = np.zeros(memory.capacity, np.uint32)  # slot of the step that is `every` earlier; its own if none
        self.clear()

    def clear(self) -> None:
        # episode -> its last step, the slot of it, that of its last beginning
        self._last: Dict[int, Tuple[int, int, Optional[int]]] = {}
        # Each process counts episodes from 0; new ones must not share ids with those loaded from an earlier process.
        self._first_episode = 0

    def prepare(self, transitions: Sequence[Mapping]) -> List[Dict[str, Any]]:
        prepared: List[Dict[str, Any]] = []
        last = {number: step for number, (step, _, _) in self._last.items()}
        for transition in transitions:
            expect_ids(transition)
            if transition.get('priority') is not None:
                self.update({})
            number, step = int(transition['episode_id']) + self._first_episode, int(transition['step_id'])
            if last.get(number, step - 1) != step - 1:
                raise ValueError(
                    f'transition of episode {transition["episode_id"]} has step_id {step}; expected '
                    f'{last[number] + 1}, the step after the one before: slices need all steps of an episode, in order'
                )
            last[number] = step
            kept = {key: value for key, value in transition.items() if key != OPTIONAL or step % self._every == 0}
            prepared.append(dict(kept, episode_id=number, step_id=step))
        return prepared

    def stored(self, transitions: Sequence[Mapping], slots: List[int]) -> None:
        for transition, slot in zip(transitions, slots):
            self._link(transition['episode_id'], transition['step_id'], slot)

    def _link(self, number: int, step: int, slot: int) -> None:
        _, last, beginning = self._last.pop(number, (0, slot, None))
        self._next[slot] = slot
        if self._holds(last, number, step - 1):
            self._next[last] = slot
        if step % self._every == 0:
            self._before[slot] = slot if beginning is None else beginning
            beginning = slot
        self._last[number] = step, slot, beginning
        # the episodes that were pushed to longest ago come first
        while self._last:
            oldest = next(iter(self._last))
            step, last, _ = self._last[oldest]
            if self._holds(last, oldest, step):
                break
            del self._last[oldest]

    def _holds(self, slot: int, number: int, step: int) -> bool:
        """Whether a step of an episode is still in its slot."""
        numbers, steps = self._ids(np.array([slot]))
        return bool(numbers[0] == number and steps[0] == step)

    def _ids(self, slots: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Episodes and steps in slots."""
        return self._memory.column('episode_id', slots), self._memory.column('step_id', slots)

    def sample(self, size: int) -> Optional[Tuple[np.ndarray, Extras]]:
        memory = self._memory
        beginnings = np.zeros(0, np.int64)
        if memory.count >= max(size, self._slice_len):
            for _ in range(_ROUNDS):
                some = memory.nth(memory.random.integers(memory.count, size=2 * size * self._every))
                beginnings = np.append(beginnings, self._beginnings(some))
                if len(beginnings) >= size:
                    break
            else:  # there are few
                beginnings = self._beginnings(memory.order())
                if len(beginnings):
                    beginnings = beginnings[memory.random.integers(len(beginnings), size=size)]
        if not len(beginnings):
            log.info('%d slices are to be sampled from %d steps; none are', size, memory.count)
            return None
        steps, padded = [beginnings[:size]], [np.zeros(size, np.bool_)]
        for _ in range(self._slice_len - 1):
            following = self._next[steps[-1]].astype(np.int64)
            padded.append(following == steps[-1])
            steps.append(following)
        return np.stack(steps, axis=1).ravel(), {_PADDED: np.stack(padded, axis=1).ravel()}

    def _beginnings(self, slots: np.ndarray) -> np.ndarray:
        """Those of the slots where a slice may begin."""
        slots = slots[self._ids(slots)[1] % self._every == 0]
        # where the slice before begins, if that step is still stored
        (number, step), (number_before, step_before) = self._ids(slots), self._ids(self._before[slots])
        is_first = (number_before != number) | (step_before != step - self._every)
        # it reaches the end unless so many steps follow
        reaches, last = np.ones(len(slots), np.bool_), slots
        for _ in range(self._slice_len - self._every):
            following = self._next[last].astype(np.int64)
            reaches &= following != last
            last = following
        return slots[is_first | reaches]

    def finish(self, batch: FrameBatch) -> List[Dict[str, list]]:
        """Slices as dicts of lists, from the steps of ``sample``."""
        made = []
        for step in batch:
            padded = step.pop(_PADDED)
            tensors = {key: _as_tensor(value) for key, value in step.items()}
            tensors['null'] = torch.tensor(bool(padded or step.get('null', False)))
            if padded:
                reward = tensors['reward']
                tensors['reward'] = (torch if torch.is_tensor(reward) else np).zeros_like(reward)
            made.append(tensors)
        if any(OPTIONAL in step for step in made):
            for step in made:
                step.setdefault(OPTIONAL, None)
        return cut(made, self._slice_len)

    def update(self, info: Mapping) -> None:
        """Slices have no priorities. Raises ValueError."""
        raise ValueError(
            'the replay buffer samples slices of whole episodes, uniformly (`slice_len`), and takes no priorities; '
            'expected policy.priority=False'
        )

    def state(self) -> Tuple[Dict[str, Any], Optional[np.ndarray]]:
        return {}, None

    def restored(self, restored: Restored) -> None:
        """If no slices can be sampled from the memory, it is cleared, and this raises ValueError."""
        self.clear()
        memory, slots = self._memory, self._memory.order()
        if not len(slots):
            return
        try:
            numbers, steps = (ids.tolist() for ids in self._ids(slots))
            for number, step, slot in zip(numbers, steps, slots.tolist()):
                if self._last.get(number, (step - 1,))[0] != step - 1:
                    raise KeyError
                self._link(number, step, slot)
        except KeyError:
            self.clear()
            memory.clear()
            raise ValueError(
                'the saved replay buffer cannot be sampled in slices: it has transitions without episode_id and '
                'step_id, or with gaps; expected one that was saved with `slice_len`'
            ) from None
        self._first_episode = max(numbers) + 1


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
