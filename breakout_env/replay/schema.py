"""The structure of transitions: which keys, of which kinds; to columns of numbers and back."""

import json
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import torch

# Keys whose values are stacks of screens, oldest first; each screen becomes a frame.
STACKS = ('obs', 'next_obs')

# Dtypes of tensors and of the columns that hold them; numpy has no bfloat16, so its bits are kept as int16.
_NAMES = ('uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64', 'bool')
_TENSOR_DTYPES = {**{name: np.dtype(name) for name in _NAMES}, 'bfloat16': np.dtype('int16')}

Leaf = Tuple[Tuple[str, ...], str, str, Tuple[int, ...]]  # path, kind, dtype, shape
_SCALARS = {bool: ('bool', np.bool_), int: ('int', np.int64), float: ('float', np.float64)}


class StringTable(object):
    """
    Numbers for strings, each kept once, as long as it is referred to. Transitions carry few different strings
    (names of policies or games), so a dict is enough.
    """

    def __init__(self) -> None:
        self._number_of: Dict[str, int] = {}
        self._text: Dict[int, str] = {}
        self._references: Dict[int, int] = {}
        self._next = 0

    def add(self, text: str) -> int:
        """The number of a string, with one more reference to it."""
        number = self._number_of.get(text)
        if number is None:
            number = self._number_of[text] = self._next
            self._text[number] = text
            self._references[number] = 0
            self._next += 1
        self._references[number] += 1
        return number

    def release(self, number: int) -> None:
        """One reference less."""
        self._references[number] -= 1
        if not self._references[number]:
            del self._number_of[self._text.pop(number)], self._references[number]

    def __getitem__(self, number: int) -> str:
        return self._text[number]

    def items(self) -> Iterator[Tuple[int, str]]:
        return iter(self._text.items())

    def restore(self, texts: Mapping[int, str], numbers: Iterable[int]) -> None:
        """Take over strings by number, with a reference for each time a number occurs."""
        for number in numbers:
            if number not in self._text:
                self._text[number] = texts[number]
                self._number_of[texts[number]] = number
                self._references[number] = 0
                self._next = max(self._next, number + 1)
            self._references[number] += 1


def signature_of(transition: Mapping) -> Tuple[Leaf, ...]:
    """
    Overview:
        The structure of a transition: path, kind, dtype and shape of each value, in the order of the keys. \
        Transitions with equal signatures share columns.
    Raises:
        - TypeError: If a value is of another type; the message names the key.
        - ValueError: If ``obs`` or ``next_obs`` is not a stack of uint8 screens; the message names the env option.
    """
    leaves: List[Leaf] = []
    _collect(transition, (), leaves)
    return tuple(leaves)


def structure_of(transition: Mapping) -> Optional[tuple]:
    """
    A key by which to look up the signature, several times faster to make: transitions with equal keys have equal
    signatures. None for structures that are rare enough to need the signature.
    """
    structure: list = []
    for key, value in transition.items():
        kind = type(value)
        if kind is torch.Tensor:
            structure += (key, value.dtype, value.shape, value.layout)
        elif kind is int:
            if not -(2**63) <= value < 2**63:
                return None
            structure += (key, kind)
        elif kind is float or kind is bool or kind is str:
            structure += (key, kind)
        else:
            return None
    return tuple(structure)


def _collect(node: Mapping, path: Tuple[str, ...], leaves: List[Leaf]) -> None:
    for key, value in node.items():
        if not isinstance(key, str):
            raise TypeError(f'a key of a transition is {key!r} ({type(key).__name__}); expected a string')
        here = path + (key,)
        kind = type(value)
        leaf: Leaf
        if kind is torch.Tensor:
            leaf = (here, 'tensor', str(value.dtype).split('.')[1], tuple(value.shape))
            if value.is_sparse or leaf[2] not in _TENSOR_DTYPES:
                raise TypeError(
                    f'{_name(here)} is a {"sparse " if value.is_sparse else ""}tensor of {leaf[2]}; expected a dense '
                    f'one of {", ".join(_TENSOR_DTYPES)}'
                )
        elif kind in _SCALARS:
            leaf = (here, _SCALARS[kind][0], '', ())
            if kind is int and not -(2**63) <= value < 2**63:
                raise TypeError(f'{_name(here)} is {value}; expected a whole number of at most 64 bits')
        elif isinstance(value, Mapping):
            if not value:
                leaf = (here, 'empty', '', (0,))
            else:
                _collect(value, here, leaves)
                continue
        elif isinstance(value, np.ndarray):
            leaf = (here, 'array', value.dtype.str, value.shape)
        elif isinstance(value, np.generic):
            leaf = (here, 'scalar', value.dtype.str, ())
        elif value is None:
            leaf = (here, 'none', '', (0,))
        elif kind is str:
            leaf = (here, 'str', '', ())
        else:
            raise TypeError(
                f'{_name(here)} is of type {kind.__module__}.{kind.__qualname__}; a replay buffer of frames takes '
                'tensors, numpy arrays, numbers, strings, None, and dicts of these'
            )
        if leaf[1] in ('array', 'scalar') and (value.dtype.hasobject or value.dtype.names):
            raise TypeError(f'{_name(here)} is an array of {value.dtype}; expected numbers or strings of one length')
        if not path and key in STACKS:
            _check_stack(key, value, leaf)
        leaves.append(leaf)


def _name(path: Tuple[str, ...]) -> str:
    return 'transition' + ''.join(f'[{key!r}]' for key in path)


def _check_stack(key: str, value: Any, leaf: Leaf) -> None:
    if leaf[1] not in ('tensor', 'array'):
        raise ValueError(f'transition[{key!r}] is {type(value).__name__}; expected a stack of screens, uint8')
    if value.dtype not in (torch.uint8, np.dtype(np.uint8)):
        raise ValueError(
            f'transition[{key!r}] is of dtype {leaf[2] if leaf[1] == "tensor" else value.dtype}; a replay buffer of '
            "frames takes pixels 0..255 as they are: set the env option obs_dtype='uint8' and a model that scales "
            "them (policy.model.type='pixel_dqn' and its kin)"
        )
    if value.ndim != 3 or 0 in value.shape:
        raise ValueError(
            f'transition[{key!r}] has the shape {tuple(value.shape)}; expected stacked screens, (frame_stack, height, '
            "width), as the env options frame_stack=4 and obs_dtype='uint8' of BreakoutEnv give"
        )


class TransitionSchema(object):
    """
    The table of all transitions of one signature: numbers of frames for the stacks of screens, a column for each
    other value. A row is contiguous, so that to read one among a million takes one or two cache misses instead of
    one for each value. The caller chooses rows; rows never written to take no memory.
    """

    def __init__(self, signature: Tuple[Leaf, ...], rows: int) -> None:
        self.signature = signature
        self.stacks = [leaf for leaf in signature if len(leaf[0]) == 1 and leaf[0][0] in STACKS]
        self.others = [leaf for leaf in signature if leaf not in self.stacks]
        # keys whose values DI-engine's default_collate leaves in a list
        self.keeps_lists = any(key.startswith('collate_ignore') for leaf in signature for key in leaf[0])
        self.depths = [leaf[3][0] for leaf in self.stacks]
        self.frame_shape: Optional[Tuple[int, int]] = None
        if self.stacks:
            _, height, width = self.stacks[0][3]
            self.frame_shape = height, width
        if any(leaf[3][1:] != self.frame_shape for leaf in self.stacks):
            raise ValueError(f'obs and next_obs hold screens of different sizes: {[leaf[3] for leaf in self.stacks]}')
        fields: List[tuple] = [('frames', np.uint32, (sum(self.depths),))]
        fields += [(str(i), _column_dtype(leaf), leaf[3]) for i, leaf in enumerate(self.others)]
        self.table = np.zeros(rows, np.dtype(fields, align=True))
        self._names = self.table.dtype.names or ()
        # views of it
        self.frames = self.table['frames']
        self.columns = [self.table[str(i)] for i in range(len(self.others))]
        self._cells = [(leaf, column, _to_cell(leaf)) for leaf, column in zip(self.others, self.columns)]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.table.itemsize

    def copy(self, rows: np.ndarray) -> Tuple[np.ndarray, List[Any]]:
        """Copies of some rows: the numbers of their frames, and the columns."""
        part = self.table[rows]
        frames, *columns = [part[name].copy() for name in self._names]
        return frames, columns

    def pixels(self, transition: Mapping) -> Iterator[memoryview]:
        """The bytes of each stack of screens of a transition."""
        for (key,), kind, _, _ in self.stacks:
            stack = _numpy(transition[key]) if kind == 'tensor' else transition[key]
            yield np.ascontiguousarray(stack).data.cast('B')

    def write(self, row: int, transition: Mapping, frames: List[int], strings: StringTable) -> None:
        """Put a transition of this signature into a row."""
        self.frames[row] = frames
        for (path, kind, _, _), column, to_cell in self._cells:
            value = transition[path[0]]
            for key in path[1:]:
                value = value[key]
            if kind == 'str':
                column[row] = strings.add(value)
            elif to_cell is not None:
                column[row] = to_cell(value)

    def update(self, row: int, values: Mapping, strings: StringTable) -> bool:
        """Overwrite some values of a row if their structure is that of the present ones; whether it was."""
        leaves = signature_of(values)
        branches = {leaf[0][0] for leaf in leaves}
        if tuple(leaf for leaf in self.others if leaf[0][0] in branches) != leaves:
            return False
        for leaf, column, to_cell in self._cells:
            if leaf[0][0] in branches:
                value: Any = values
                for key in leaf[0]:
                    value = value[key]
                if leaf[1] == 'str':
                    strings.release(int(column[row]))
                    column[row] = strings.add(value)
                elif to_cell is not None:
                    column[row] = to_cell(value)
        return True

    def clear(self, row: int, strings: StringTable) -> List[int]:
        """Release the strings of a row; its frames, for the caller to release."""
        for (_, kind, _, _), column in zip(self.others, self.columns):
            if kind == 'str':
                strings.release(int(column[row]))
        return self.frames[row].tolist()

    def to_json(self) -> str:
        """The signature as text, for a save."""
        return json.dumps(self.signature)

    @classmethod
    def from_json(cls, text: str, rows: int) -> 'TransitionSchema':
        """The empty table of a saved signature. Raises ValueError if the text is none."""
        try:
            leaves = tuple((tuple(map(str, p)), str(k), str(d), tuple(map(int, s))) for p, k, d, s in json.loads(text))
            for path, kind, dtype, _ in leaves:
                known = {'tensor', 'array', 'scalar', 'none', 'empty', 'str', 'bool', 'int', 'float'}
                if not path or kind not in known or (kind == 'tensor' and dtype not in _TENSOR_DTYPES):
                    raise ValueError
                if kind in ('array', 'scalar') and np.dtype(dtype).hasobject:
                    raise ValueError
            return cls(leaves, rows)
        except (TypeError, ValueError, AttributeError):
            raise ValueError('the description of its transitions cannot be read') from None


def _column_dtype(leaf: Leaf) -> np.dtype:
    _, kind, dtype, _ = leaf
    if kind == 'tensor':
        return _TENSOR_DTYPES[dtype]
    if kind in ('array', 'scalar'):
        return np.dtype(dtype)
    # the kind says all about None and an empty dict: their columns have width 0
    widths = {'bool': np.bool_, 'int': np.int64, 'float': np.float64, 'str': np.int64}
    return np.dtype(widths.get(kind, np.uint8))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # it is on a GPU, or part of a graph
        return tensor.detach().cpu().numpy()


def _to_cell(leaf: Leaf) -> Optional[Callable]:
    """How a value gets into its column; None if nothing has to be written."""
    _, kind, dtype, _ = leaf
    if kind == 'tensor':
        return (lambda value: _numpy(value.view(torch.int16))) if dtype == 'bfloat16' else _numpy
    if kind in ('none', 'empty'):
        return None
    return lambda value: value


def as_tensor(leaf: Leaf, column: np.ndarray) -> torch.Tensor:
    """Rows of a tensor's column as one tensor with a dimension more."""
    tensor = torch.from_numpy(column)
    return tensor.view(torch.bfloat16) if leaf[2] == 'bfloat16' else tensor


def values_of(leaf: Leaf, column: np.ndarray) -> list:
    """Rows of a column as the values that were pushed; for strings, their numbers in a ``StringTable``."""
    kind = leaf[1]
    if kind == 'tensor':
        return list(as_tensor(leaf, column).unbind(0))
    if kind == 'array':
        return [column[i, ...] for i in range(len(column))]  # column[i] of a 1-d column would be a scalar
    if kind == 'scalar':
        return list(column)
    if kind in ('none', 'empty'):
        return [None if kind == 'none' else {} for _ in column]
    return column.tolist()
