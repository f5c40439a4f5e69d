"""
Which transitions a batch gets: single ones, uniformly or by priority, or slices of episodes.

Slices, ``slice_len`` consecutive steps of one episode, are for recurrent policies. Beside its screens, a step of R2D2
has the hidden state that the network had before it, 4 kB. Only the first one of a slice is used, so where slices begin
at every 20th step only, the others need not be kept.
"""

import logging
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from ding.utils import lists_to_dicts

from .batch import Extras, FrameBatch
from .memory import ReplayMemory
from .options import ReplayOptions
from .snapshot.snapshot import Restored
from .structure import OPTIONAL
from .sum_tree import SumTree

log = logging.getLogger(__name__)
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'IS', 'priority'])
# Added to a priority, so that none is 0 (Schaul et al. 2016 and DI-engine's advanced buffer do so).
_EPSILON = 1e-5
# Importance weights are float32: beyond it, one transition would be all that is ever sampled.
_LARGEST_PRIORITY = float(np.finfo(np.float32).max)
# Tries at random before all starts of slices are listed.
_ROUNDS = 8
_PADDED = 'padded'


class TransitionSampler(object):
    """
    Overview:
        Samples uniformly until priorities arrive, as DI-engine's advanced buffer does; from then on in proportion to \
        the priority to the power of ``alpha``, with importance-sampling weights to the power of ``beta``, which rises \
        to 1 (Schaul et al. 2016). A new transition has the highest priority so far.

        A sampler has these methods; their caller has the memory's lock.
    Arguments:
        - memory (:obj:`ReplayMemory`): What is sampled from.
        - options (:obj:`ReplayOptions`): The exponents.
    """

    def __init__(self, memory: ReplayMemory, options: ReplayOptions) -> None:
        self._memory = memory
        self._alpha, self.beta = options.alpha, options.beta
        self._beta_step = (1 - options.beta) / options.anneal_step if options.anneal_step else 0.0
        self._tree: Optional[SumTree] = None
        self._max_priority = 1.0
        # of prepared transitions that are not stored yet: their weights, and the highest priority that they came with
        self._pushed: List[float] = []
        self._highest = -1.0

    def prepare(self, transitions: Sequence[Mapping]) -> Sequence[Mapping]:
        """Transitions as they are to be stored. Raises ValueError if they cannot be sampled later."""
        given, of_new = [t.get('priority') for t in transitions], self._max_priority**self._alpha
        self._pushed = [of_new if priority is None else self._weight(priority) for priority in given]
        self._highest = max((float(priority) for priority in given if priority is not None), default=-1.0)
        if any(not _ADDED.isdisjoint(t) for t in transitions):
            return [{k: v for k, v in t.items() if k not in _ADDED} for t in transitions]
        return transitions

    def _weight(self, priority: float) -> float:
        priority = float(priority)
        if not 0 <= priority <= _LARGEST_PRIORITY:
            raise ValueError(
                f'a priority is {priority}; expected a number from 0 to {_LARGEST_PRIORITY:.1e} (float32). Of a TD '
                'error it means that the training has diverged: lower policy.learn.learning_rate'
            )
        return (priority + _EPSILON) ** self._alpha

    def stored(self, transitions: Sequence[Mapping], slots: List[int]) -> None:
        """Some of the prepared transitions were stored, in order."""
        weights, self._pushed = self._pushed[: len(slots)], self._pushed[len(slots) :]
        if self._highest >= 0:
            self._track()
            self._max_priority = max(self._max_priority, self._highest)
        if self._tree is not None:
            self._tree.set(np.array(slots), np.array(weights))

    def _track(self) -> SumTree:
        """Priorities count from now on; present transitions have priority 1."""
        if self._tree is None:
            self._tree = SumTree(self._memory.capacity)
            if self._memory.count:
                self._tree.set(np.arange(self._memory.count), np.ones(self._memory.count))
        return self._tree

    def sample(self, size: int) -> Optional[Tuple[np.ndarray, Extras]]:
        """Slots, and what is added to each transition; None if there are too few."""
        memory = self._memory
        if memory.count < size:
            log.info('%d transitions are to be sampled, but there are %d; none are', size, memory.count)
            return None
        if self._tree is None:
            slots = memory.nth(memory.random.choice(memory.count, size, replace=False, shuffle=False))
            importance = priorities = np.ones(size)
        else:
            # one from each of ``size`` equal shares of the sum
            shares = (np.arange(size) + memory.random.random(size)) / size
            slots = self._tree.find(shares * self._tree.total)
            weights = self._tree.get(slots).astype(np.float64)
            importance = (weights / self._tree.smallest) ** -self.beta
            priorities = weights ** (1 / self._alpha) if self._alpha else np.ones(size)
            self.beta = min(1.0, self.beta + self._beta_step)
        return slots, dict(
            replay_unique_id=memory.ids(slots),
            replay_buffer_idx=slots,
            IS=importance,
            priority=priorities,
        )

    def finish(self, batch: FrameBatch) -> Any:
        """What the learner gets of a batch."""
        return batch

    def update(self, info: Mapping) -> None:
        """Set priorities, passing over transitions that are gone. Raises ValueError if one is no finite number."""
        priorities = np.array([float(priority) for priority in info['priority']])
        weights = np.array([self._weight(priority) for priority in priorities])
        tree = self._track()
        ids, slots = (np.array(info[key], np.int64) for key in ('replay_unique_id', 'replay_buffer_idx'))
        is_there = (0 <= slots) & (slots < self._memory.count)
        is_there[is_there] = self._memory.ids(slots[is_there]) == ids[is_there]
        if is_there.any():
            tree.set(slots[is_there], weights[is_there])
            self._max_priority = max(self._max_priority, priorities[is_there].max().item())

    def clear(self) -> None:
        """Forget everything."""
        self._max_priority = 1.0
        if self._tree is not None:
            self._tree = SumTree(self._memory.capacity)

    def state(self) -> Tuple[Dict[str, Any], Optional[np.ndarray]]:
        """What a save keeps: JSON, and a number for each slot."""
        priorities = None if self._tree is None else self._tree.get(np.arange(self._memory.count))
        return dict(beta=self.beta, max_priority=self._max_priority), priorities

    def restored(self, restored: Restored) -> None:
        """Continue from what a save kept, with the memory that was restored from it."""
        self.beta = float(restored.more.get('beta', self.beta))
        self._max_priority = float(restored.more.get('max_priority', self._max_priority))
        self._tree = None
        if restored.priorities is not None:
            self._track().set(np.arange(self._memory.count), restored.priorities)


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
