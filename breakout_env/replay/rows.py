"""Transitions as rows of a flat array: an id, numbers of frames, a column for each other value."""

from collections.abc import Iterator, Mapping

import numpy as np

from ..utils.memory_limits import memory_room
from .size_check import expect_room
from .structure import Fields, Structure, expect_screens, look_up, numpy_of

# Copies of some rows by the names of columns, which are also the names of a save's arrays: ``ids``, ``frames``,
# ``column0`` ...
Columns = dict[str, np.ndarray]


class Rows:
    """Numbers of frames for the stacks of screens, a column for each other value, as the first transition has them. A
    row is contiguous, so that to read one among a million takes one or two cache misses instead of one for each value.
    Rows never written to take no memory.

    Arguments:
        fields: The structure of the first transition.
        rows: How many there are room for.
    """

    def __init__(self, fields: Fields, rows: int) -> None:
        expect_screens(fields)
        self.fields = fields
        self.expect = Structure(fields).expect
        self.stacks = [field for field in fields if field.is_stack]
        self.others = [field for field in fields if not field.is_stack]
        self.frames_each = sum(stack.shape[0] for stack in self.stacks)
        names = [f'column{i}' for i in range(len(self.others))]
        columns: list[tuple] = [('ids', np.int64), ('frames', np.uint32, (self.frames_each,))]
        columns += [(name, field.column_dtype, field.shape) for name, field in zip(names, self.others)]
        row = np.dtype(columns, align=True)
        expect_room(rows, row.itemsize, memory_room())  # before numpy allocates
        self.table = np.zeros(rows, row)
        self.nbytes = row.itemsize
        self._ids, self.frames = self.table['ids'], self.table['frames']
        self._columns = [(field, self.table[name]) for name, field in zip(names, self.others)]

    def pixels(self, transition: Mapping) -> Iterator[memoryview]:
        """The bytes of each stack of screens of a transition."""
        for (key,), type_name, _, _ in self.stacks:
            stack = numpy_of(transition[key]) if type_name == 'tensor' else transition[key]
            yield stack.ravel().data  # a copy only if it is not contiguous

    def write(self, row: int, insertion_id: int, transition: Mapping, frames: list[int]) -> None:
        """Write a transition of the right structure into a row."""
        self._ids[row] = insertion_id
        self.frames[row] = frames
        for field, column in self._columns:
            value = look_up(transition, field.path)
            column[row] = numpy_of(value) if field.type_name == 'tensor' else value

    def copy(self, slots: np.ndarray) -> Columns:
        """Copies of some rows."""
        part = self.table[slots]
        return {name: part[name].copy() for name in part.dtype.names or ()}

    def frame_numbers(self, copied: Columns) -> np.ndarray:
        """The frames of copied rows in the order of a batch: one key after the other, so that each is one tensor."""
        ends = np.cumsum([stack.shape[0] for stack in self.stacks])
        return np.concatenate([frames.ravel() for frames in np.split(copied['frames'], ends[:-1], axis=1)])
