"""Rows of transitions of any structure, without the pixels of their screens."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from .schema import Leaf, StringTable, TransitionSchema, signature_of, structure_of, values_of

_MAX_SCHEMAS = 256


class RowsOfSchema(NamedTuple):
    """Copies of rows that share a schema."""

    positions: np.ndarray  # where they were among the rows that were asked for
    schema: TransitionSchema
    frames: np.ndarray  # frame numbers
    columns: List[Any]  # of each other leaf: an array with N rows, or N strings


class TransitionTable(object):
    """A table for each structure of transitions. They share row numbers: row 7 is in use in one of them."""

    def __init__(self, rows: int) -> None:
        self.schemas: List[TransitionSchema] = []
        self.schema_of = np.zeros(rows, np.uint8)
        self.sample_counts = np.zeros(rows, np.uint32)
        self.strings = StringTable()
        self._rows = rows
        self._number_by_signature: Dict[Tuple[Leaf, ...], int] = {}
        self._number_by_structure: Dict[tuple, int] = {}

    def nbytes(self, rows: int) -> int:
        """Bytes of memory in use once the first ``rows`` rows were written to."""
        by_schema = np.bincount(self.schema_of[:rows], minlength=len(self.schemas)).tolist()
        per_row = self.schema_of.itemsize + self.sample_counts.itemsize
        return rows * per_row + sum(n * schema.row_bytes for n, schema in zip(by_schema, self.schemas))

    def frame_references(self, rows: np.ndarray) -> int:
        """Frames in these rows, each counted as often as it occurs."""
        by_schema = np.bincount(self.schema_of[rows], minlength=len(self.schemas)).tolist()
        return sum(n * schema.frames.shape[1] for n, schema in zip(by_schema, self.schemas))

    def schema_number(self, transition: Mapping, check_frame_shape: Callable[[Tuple[int, int]], None]) -> int:
        """
        Overview:
            The schema of a transition; a structure seen for the first time gets a new one.
        Arguments:
            - check_frame_shape (:obj:`Callable`): Raises ValueError if there can be no frames of this shape.
        Raises:
            - TypeError, ValueError: If a transition of this structure cannot be stored; the message says why.
        """
        structure = structure_of(transition)
        number = self._number_by_structure.get(structure) if structure is not None else None
        if number is None:
            number = self._number_of(signature_of(transition), check_frame_shape)
            if structure is not None and len(self._number_by_structure) < 4 * _MAX_SCHEMAS:
                self._number_by_structure[structure] = number
        return number

    def _number_of(self, signature: Tuple[Leaf, ...], check_frame_shape: Callable) -> int:
        number = self._number_by_signature.get(signature)
        if number is None:
            if len(self.schemas) == _MAX_SCHEMAS:
                raise ValueError(
                    f'the replay buffer already holds transitions of {_MAX_SCHEMAS} structures (keys, dtypes, shapes); '
                    'pad arrays of varying length to one length'
                )
            schema = TransitionSchema(signature, self._rows)
            if schema.frame_shape is not None:
                check_frame_shape(schema.frame_shape)
            number = self._number_by_signature[signature] = len(self.schemas)
            self.schemas.append(schema)
        return number

    def write(self, row: int, number: int, transition: Mapping, frames: List[int]) -> None:
        """Put a transition of a schema into a row that is free."""
        self.schemas[number].write(row, transition, frames, self.strings)
        self.schema_of[row] = number

    def update(self, row: int, values: Mapping) -> bool:
        """Overwrite some values of a row if their structure is that of the present ones; whether it was."""
        return self.schemas[self.schema_of[row]].update(row, values, self.strings)

    def clear(self, row: int) -> List[int]:
        """Free a row; its frames, for the caller to release."""
        return self.schemas[self.schema_of[row]].clear(row, self.strings)

    def move(self, rows: np.ndarray) -> None:
        """Make these the first rows, in this order."""
        columns: List[np.ndarray] = [self.schema_of, self.sample_counts, *(schema.table for schema in self.schemas)]
        for column in columns:
            column[: len(rows)] = column[rows]

    def column(self, path: Tuple[str, ...], rows: np.ndarray, default: Any) -> list:
        """The values under a key, and keys below it, in rows; ``default`` where a transition has none."""
        values = np.full(len(rows), None, object)
        values[:] = default
        numbers = self.schema_of[rows]
        for number in np.unique(numbers).tolist():
            schema = self.schemas[number]
            for leaf, column in zip(schema.others, schema.columns):
                if leaf[0] == path:
                    positions = np.flatnonzero(numbers == number)
                    for position, cell in zip(positions.tolist(), values_of(leaf, column[rows[positions]])):
                        values[position] = self.strings[cell] if leaf[1] == 'str' else cell
        return list(values)

    def copy(self, rows: np.ndarray) -> List[RowsOfSchema]:
        """Copies of rows, by schema."""
        numbers = self.schema_of[rows]
        different = set(numbers.tolist())
        parts = []
        for number in different:
            schema = self.schemas[number]
            positions = np.arange(len(rows)) if len(different) == 1 else np.flatnonzero(numbers == number)
            frames, columns = schema.copy(rows[positions])
            for i, leaf in enumerate(schema.others):
                if leaf[1] == 'str':
                    columns[i] = [self.strings[cell] for cell in columns[i].tolist()]
            parts.append(RowsOfSchema(positions, schema, frames, columns))
        return parts

    def restore(
        self, schemas: List[TransitionSchema], numbers: np.ndarray, sample_counts: np.ndarray, texts: Mapping[int, str]
    ) -> None:
        """Fill the first rows of an empty table; the schemas' own tables are filled already."""
        count = len(numbers)
        self.schemas = schemas
        self._number_by_signature = {schema.signature: number for number, schema in enumerate(schemas)}
        for number, schema in enumerate(schemas):
            for leaf, column in zip(schema.others, schema.columns):
                if leaf[1] == 'str':
                    self.strings.restore(texts, column[:count][numbers == number].tolist())
        self.schema_of[:count] = numbers
        self.sample_counts[:count] = sample_counts
