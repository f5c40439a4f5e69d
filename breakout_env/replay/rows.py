"""The rest of a transition, besides the pixels of its screens: a row of a flat array."""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import numpy as np

from .structure import OPTIONAL, Leaves, expect_same, key_of, leaves_of, look_up, numpy_of, split

# Transitions that are prepared together, before all of them are moved to their slots at once.
CHUNK = 64


class CopiedRows(NamedTuple):
    """Copies of some rows."""

    frames: np.ndarray  # their numbers, (N, frames of a transition)
    columns: List[np.ndarray]  # of each other leaf
    state_numbers: np.ndarray  # which row of ``states`` belongs to each row; 0 for none
    states: List[np.ndarray]  # of each optional leaf; row 0 means that there is no value


class Rows(object):
    """
    Overview:
        Numbers of frames for the stacks of screens, a column for each other value, as the first transition has them. \
        A row is contiguous, so that to read one among a million takes one or two cache misses instead of one for each \
        value. Rows never written to take no memory.

        The hidden states of R2D2 (``prev_state``) take 4 kB each, and only some steps keep one: a second array holds \
        them, and a row the number of its own.

        ``prepare`` fills a row of ``fresh``. One assignment moves it to ``table``: no signal handler finds half of it.
    Arguments:
        - leaves (:obj:`Leaves`): The structure of the first transition.
        - rows (:obj:`int`): How many there are room for.
    """

    def __init__(self, leaves: Leaves, rows: int) -> None:
        self.leaves, self.state_leaves = split(leaves, OPTIONAL)
        self.stacks = [leaf for leaf in self.leaves if leaf.is_stack]
        self.others = [leaf for leaf in self.leaves if not leaf.is_stack]
        self.depths = [leaf.shape[0] for leaf in self.stacks]
        self.frame_shape: Optional[Tuple[int, ...]] = self.stacks[0].shape[1:] if self.stacks else None
        self._names = [str(i) for i in range(len(self.others))]
        fields: List[tuple] = [('id', np.int64), ('state', np.uint32), ('frames', np.uint32, (sum(self.depths),))]
        fields += [(name, leaf.column_dtype, leaf.shape) for name, leaf in zip(self._names, self.others)]
        self.table = np.zeros(rows, np.dtype(fields, align=True))
        self.fresh = np.zeros(min(CHUNK, rows), self.table.dtype)
        self._fresh_ids, self._fresh_frames, self._fresh_states = (self.fresh[n] for n in ('id', 'frames', 'state'))
        self._cells = [
            (leaf.path[0], leaf.path if len(leaf.path) > 1 else None, leaf, self.fresh[name])
            for leaf, name in zip(self.others, self._names)
            if leaf.kind not in ('none', 'empty')
        ]
        self.strings: Dict[str, int] = {}  # numbers for strings; there are few, such as names of policies
        self._known_keys: Set[tuple] = set()
        self.states = self._empty_states(self.state_leaves)
        self._free_states: List[int] = []
        self._end_state = 1  # row 0 means that there is no value

    @staticmethod
    def _empty_states(leaves: Leaves) -> np.ndarray:
        return np.zeros(16, np.dtype([(str(i), leaf.column_dtype, leaf.shape) for i, leaf in enumerate(leaves)]))

    @property
    def frames_each(self) -> int:
        """Frames of a transition."""
        return sum(self.depths)

    @property
    def state_bytes(self) -> int:
        """Bytes of optional values."""
        return self._end_state * self.states.itemsize

    def expect(self, transition: Mapping) -> None:
        """Raise TypeError or ValueError if a transition has another structure."""
        key = key_of(transition)
        if key not in self._known_keys:
            required, states = split(leaves_of(transition), OPTIONAL)
            expect_same(required, self.leaves)
            if states and not self.state_leaves:
                self.states, self.state_leaves = self._empty_states(states), states
            if states:
                expect_same(states, self.state_leaves)
            if len(self._known_keys) < 100:
                self._known_keys.add(key)

    def pixels(self, transition: Mapping) -> Iterator[memoryview]:
        """The bytes of each stack of screens of a transition."""
        for (key,), kind, _, _ in self.stacks:
            stack = numpy_of(transition[key]) if kind == 'tensor' else transition[key]
            yield np.ascontiguousarray(stack).data.cast('B')

    def prepare(self, row: int, insertion_id: int, transition: Mapping, frames: List[int]) -> None:
        """Write a transition into a row of ``fresh``."""
        self._fresh_ids[row] = insertion_id
        self._fresh_frames[row] = frames
        self._fresh_states[row] = self._add_state(transition) if OPTIONAL in transition else 0
        for key, path, leaf, cells in self._cells:
            value = transition[key] if path is None else look_up(transition, path)
            if leaf.kind == 'tensor':
                value = numpy_of(value)
            elif leaf.kind == 'str':
                value = self.strings.setdefault(value, len(self.strings))
            cells[row] = value

    def _add_state(self, transition: Mapping) -> int:
        if self._end_state == len(self.states) and not self._free_states:
            grown = np.zeros(2 * len(self.states), self.states.dtype)
            grown[: len(self.states)] = self.states
            self.states = grown
        if self._free_states:
            number = self._free_states.pop()
        else:
            number = self._end_state
            self._end_state += 1
        for i, leaf in enumerate(self.state_leaves):
            value = look_up(transition, leaf.path)
            if leaf.kind == 'str':
                value = self.strings.setdefault(value, len(self.strings))
            if leaf.kind not in ('none', 'empty'):
                self.states[str(i)][number] = numpy_of(value) if leaf.kind == 'tensor' else value
        return number

    def release_states(self, numbers: np.ndarray) -> None:
        """The optional values of rows that were overwritten are not needed any more."""
        self._free_states.extend(numbers[numbers > 0].tolist())

    def copy(self, slots: np.ndarray) -> CopiedRows:
        """Copies of some rows."""
        part = self.table[slots]
        numbers, states = part['state'], []  # type: Tuple[np.ndarray, List[np.ndarray]]
        if self.state_leaves:
            used, numbers = np.unique(np.append(0, numbers), return_inverse=True)
            numbers = numbers[1:].astype(np.uint32)
            states = [self.states[str(i)][used] for i in range(len(self.state_leaves))]
        return CopiedRows(part['frames'].copy(), [part[name].copy() for name in self._names], numbers, states)

    def fill(self, ids: np.ndarray, copied: CopiedRows, strings: List[str]) -> None:
        """Fill the first rows of an empty table, from a save. Raises ValueError if the columns do not fit."""
        count = len(ids)
        columns = [
            (self.table['id'], ids),
            (self.table['frames'], copied.frames),
            (self.table['state'], copied.state_numbers),
        ]
        columns += [(self.table[name], column) for name, column in zip(self._names, copied.columns)]
        if self.state_leaves:
            end = max([1, *(len(column) for column in copied.states)])
            self.states = np.zeros(max(16, end), self.states.dtype)
            self._end_state = end
            for i, column in enumerate(copied.states):
                self._expect_column(self.states[str(i)], column, end)
                self.states[str(i)][:end] = column
        if int(copied.state_numbers.max(initial=0)) >= self._end_state:
            raise ValueError('a hidden state that is not there')
        for column, values in columns:
            self._expect_column(column, values, count)
            column[:count] = values
        self.strings = {text: number for number, text in enumerate(strings)}
        for leaf, name in zip(self.others, self._names):
            if leaf.kind == 'str' and int(self.table[name].max(initial=0)) >= max(1, len(self.strings)):
                raise ValueError('a string that is not there')

    @staticmethod
    def _expect_column(column: np.ndarray, values: np.ndarray, count: int) -> None:
        if values.shape != (count, *column.shape[1:]) or values.dtype != column.dtype:
            raise ValueError('a column of another shape or type than described')
