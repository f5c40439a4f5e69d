"""Transitions as rows of a flat array: an id, numbers of frames, a column for each other value."""

from typing import Dict, Iterator, List, Mapping, Set

import numpy as np

from ..utils.memory_limits import memory_room
from .size_check import expect_room
from .structure import Leaves, expect_same, key_of, leaves_of, look_up, numpy_of

# Copies of some rows by the names of columns, which are also those of a save's arrays: ``ids``, ``frames``,
# ``column0`` ...
Columns = Dict[str, np.ndarray]


class Rows(object):
    """
    Overview:
        Numbers of frames for the stacks of screens, a column for each other value, as the first transition has them. \
        A row is contiguous, so that to read one among a million takes one or two cache misses instead of one for each \
        value. Rows never written to take no memory.
    Arguments:
        - leaves (:obj:`Leaves`): The structure of the first transition.
        - rows (:obj:`int`): How many there are room for.
    """

    def __init__(self, leaves: Leaves, rows: int) -> None:
        self.leaves = leaves
        self.stacks = [leaf for leaf in self.leaves if leaf.is_stack]
        self.others = [leaf for leaf in self.leaves if not leaf.is_stack]
        self.frames_each = sum(leaf.shape[0] for leaf in self.stacks)
        fields: List[tuple] = [('ids', np.int64), ('frames', np.uint32, (self.frames_each,))]
        fields += [(f'column{i}', leaf.column_dtype, leaf.shape) for i, leaf in enumerate(self.others)]
        row = np.dtype(fields, align=True)
        expect_room(rows, row.itemsize, memory_room())  # before numpy allocates
        self.table = np.zeros(rows, row)
        self.nbytes = row.itemsize
        self._ids, self._frames = self.table['ids'], self.table['frames']
        columns = [(leaf, self.table[f'column{i}']) for i, leaf in enumerate(self.others)]
        self._columns = [(leaf, column) for leaf, column in columns if leaf.kind not in ('none', 'empty')]
        self.strings: Dict[str, int] = {}  # numbers for strings; there are few, such as names of policies
        self._known_keys: Set[tuple] = set()

    def expect(self, transition: Mapping) -> None:
        """Raise TypeError or ValueError if a transition has another structure."""
        key = key_of(transition)
        if key not in self._known_keys:
            expect_same(leaves_of(transition), self.leaves)
            self._known_keys.add(key)

    def pixels(self, transition: Mapping) -> Iterator[memoryview]:
        """The bytes of each stack of screens of a transition."""
        for (key,), kind, _, _ in self.stacks:
            stack = numpy_of(transition[key]) if kind == 'tensor' else transition[key]
            yield stack.ravel().data  # a copy only if it is not contiguous

    def write(self, row: int, insertion_id: int, transition: Mapping, frames: List[int]) -> None:
        """Write a transition of the right structure into a row."""
        self._ids[row] = insertion_id
        self._frames[row] = frames
        for leaf, column in self._columns:
            value = look_up(transition, leaf.path)
            if leaf.kind == 'tensor':
                value = numpy_of(value)
            elif leaf.kind == 'str':
                value = self.strings.setdefault(value, len(self.strings))
            column[row] = value

    def frames_of(self, row: int) -> List[int]:
        """The frames of a row."""
        return self._frames[row].tolist()

    def copy(self, slots: np.ndarray) -> Columns:
        """Copies of some rows."""
        part = self.table[slots]
        return {name: part[name].copy() for name in part.dtype.names or ()}

    def frame_numbers(self, copied: Columns) -> np.ndarray:
        """The frames of copied rows in the order of a batch: one key after the other, so that each is one tensor."""
        ends = np.cumsum([leaf.shape[0] for leaf in self.stacks])
        return np.concatenate([frames.ravel() for frames in np.split(copied['frames'], ends[:-1], axis=1)])

    def fill(self, saved: Mapping[str, np.ndarray], strings: List[str]) -> None:
        """Fill the first rows of an empty table, from a save. Raises ValueError if the columns do not fit."""
        count = len(saved['ids'])
        for name in self.table.dtype.names or ():
            column, values = self.table[name], saved[name]
            if values.shape != (count, *column.shape[1:]) or values.dtype != column.dtype:
                raise ValueError('a column of another shape or type than described')
            column[:count] = values
        self.strings = {text: number for number, text in enumerate(strings)}
        for i, leaf in enumerate(self.others):
            if leaf.kind == 'str' and int(saved[f'column{i}'].max(initial=0)) >= max(1, len(strings)):
                raise ValueError('a string that is not there')
