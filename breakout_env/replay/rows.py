"""Transitions as rows of a flat array: an id, numbers of frames, a column for each other value."""

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

import numpy as np

from ..utils.memory_limits import memory_room
from .size_check import expect_room
from .structure import OPTIONAL, Leaf, Leaves, expect_same, key_of, leaves_of, look_up, numpy_of, split

# Copies of some rows by the names of columns, which are also those of a save's arrays: ``ids``, ``frames``,
# ``column0`` ...; ``states`` are then rows of ``state0`` ..., of which row 0 means that there is no value.
Columns = Dict[str, np.ndarray]
_Cells = List[Tuple[Leaf, np.ndarray]]  # where the values go


class Rows(object):
    """
    Overview:
        Numbers of frames for the stacks of screens, a column for each other value, as the first transition has them. \
        A row is contiguous, so that to read one among a million takes one or two cache misses instead of one for each \
        value. Rows never written to take no memory.

        The hidden states of R2D2 (``prev_state``) take 4 kB each, and only some steps keep one: a second array holds \
        them, and a row the number of its own.

        ``prepare`` fills the row ``fresh``. One assignment of its bytes puts it into ``table``: no signal handler \
        finds half of it.
    Arguments:
        - leaves (:obj:`Leaves`): The structure of the first transition.
        - rows (:obj:`int`): How many there are room for.
    """

    def __init__(self, leaves: Leaves, rows: int) -> None:
        self.leaves, state_leaves = split(leaves, OPTIONAL)
        self.stacks = [leaf for leaf in self.leaves if leaf.is_stack]
        self.others = [leaf for leaf in self.leaves if not leaf.is_stack]
        self.frames_each = sum(leaf.shape[0] for leaf in self.stacks)
        fields: List[tuple] = [('ids', np.int64), ('states', np.uint32), ('frames', np.uint32, (self.frames_each,))]
        row = np.dtype(fields + _fields('column', self.others), align=True)
        expect_room(rows, row.itemsize, memory_room())  # before numpy allocates
        self.table = np.zeros(rows, row)
        self.nbytes = row.itemsize
        self.bytes = self.table.view(np.uint8).data
        fresh = np.zeros(1, row)
        self.fresh = fresh.view(np.uint8).data
        self._fresh_ids, self._fresh_states, self._fresh_frames = (fresh[name] for name, *_ in fields)
        self._states, self._frames = self.table['states'], self.table['frames']
        self._cells = _cells(fresh, 'column', self.others)
        self.strings: Dict[str, int] = {}  # numbers for strings; there are few, such as names of policies
        self._known_keys: Set[tuple] = set()
        self.state_leaves: Leaves = ()
        self.states: np.ndarray
        self._have_states(state_leaves, 16)
        self._free_states: List[int] = []
        self._end_state = 1

    def _have_states(self, leaves: Leaves, rows: int) -> None:
        """Room for so many optional values; those that are there stay."""
        states = np.zeros(rows, np.dtype(_fields('state', leaves), align=True))
        if self.state_leaves:
            states[: len(self.states)] = self.states
        cells = _cells(states, 'state', leaves)
        # no call, so no signal either, comes between these
        self.state_leaves, self.states, self._state_cells = leaves, states, cells

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
                self._have_states(states, 16)
            if states:
                expect_same(states, self.state_leaves)
            self._known_keys.add(key)

    def pixels(self, transition: Mapping) -> Iterator[memoryview]:
        """The bytes of each stack of screens of a transition."""
        for (key,), kind, _, _ in self.stacks:
            stack = numpy_of(transition[key]) if kind == 'tensor' else transition[key]
            yield stack.ravel().data  # a copy only if it is not contiguous

    def prepare(self, insertion_id: int, transition: Mapping, frames: List[int]) -> None:
        """Write a transition into the row ``fresh``."""
        self._write(self._cells, 0, transition)
        self._fresh_ids[0] = insertion_id
        self._fresh_frames[0] = frames
        self._fresh_states[0] = self._add_state(transition) if OPTIONAL in transition else 0

    def _write(self, cells: _Cells, row: int, transition: Mapping) -> None:
        for leaf, column in cells:
            value = look_up(transition, leaf.path)
            if leaf.kind == 'tensor':
                value = numpy_of(value)
            elif leaf.kind == 'str':
                value = self.strings.setdefault(value, len(self.strings))
            column[row] = value

    def _add_state(self, transition: Mapping) -> int:
        if self._free_states:
            number = self._free_states.pop()
        else:
            number = self._end_state
            if number == len(self.states):
                self._have_states(self.state_leaves, 2 * number)
            self._end_state += 1
        self._write(self._state_cells, number, transition)
        return number

    def refers_to(self, row: int) -> Tuple[List[int], List[int]]:
        """The frames of a row, and the number of its optional values."""
        return self._frames[row].tolist(), [self._states[row]] if self.state_leaves else []

    def release_states(self, numbers: Iterable[int]) -> None:
        """Free the places of optional values whose rows were overwritten or deleted; 0 stands for no value."""
        self._free_states += [int(number) for number in numbers if number]

    def copy(self, slots: np.ndarray) -> Columns:
        """Copies of some rows."""
        part = self.table[slots]
        copied = {name: part[name].copy() for name in part.dtype.names or ()}
        self.take_states(copied, self.states)
        return copied

    def take_states(self, copied: Columns, states: Any) -> None:
        """Add to copied rows those of all optional values that they refer to, under new numbers."""
        if self.state_leaves:
            used, numbers = np.unique(np.append(0, copied['states']), return_inverse=True)
            copied['states'] = numbers[1:].astype(np.uint32)
            copied.update({name: states[name][used] for name in self.states.dtype.names or ()})

    def frame_numbers(self, copied: Columns) -> np.ndarray:
        """The frames of copied rows in the order of a batch: one key after the other, so that each is one tensor."""
        ends = np.cumsum([leaf.shape[0] for leaf in self.stacks])
        return np.concatenate([frames.ravel() for frames in np.split(copied['frames'], ends[:-1], axis=1)])

    def fill(self, saved: Mapping[str, np.ndarray], strings: List[str]) -> None:
        """Fill the first rows of an empty table, from a save. Raises ValueError if the columns do not fit."""
        count = len(saved['ids'])
        if self.state_leaves:
            self._end_state = max([1, *(len(saved[name]) for name in self.states.dtype.names or ())])
            self._have_states(self.state_leaves, max(16, self._end_state))
        for table, rows in ((self.table, count), (self.states, self._end_state)):
            for name in table.dtype.names or ():
                column, values = table[name], saved[name]
                if values.shape != (rows, *column.shape[1:]) or values.dtype != column.dtype:
                    raise ValueError('a column of another shape or type than described')
                column[:rows] = values
        if int(saved['states'].max(initial=0)) >= self._end_state:
            raise ValueError('a hidden state that is not there')
        self.strings = {text: number for number, text in enumerate(strings)}
        for i, leaf in enumerate(self.others):
            if leaf.kind == 'str' and int(saved[f'column{i}'].max(initial=0)) >= max(1, len(strings)):
                raise ValueError('a string that is not there')


def _fields(name: str, leaves: Sequence[Leaf]) -> List[Any]:
    return [(f'{name}{i}', leaf.column_dtype, leaf.shape) for i, leaf in enumerate(leaves)]


def _cells(table: np.ndarray, name: str, leaves: Sequence[Leaf]) -> _Cells:
    return [(leaf, table[f'{name}{i}']) for i, leaf in enumerate(leaves) if leaf.kind not in ('none', 'empty')]
