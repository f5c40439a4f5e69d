"""The structure of transitions: which keys, of which types, and the columns that hold their values.

All transitions of a buffer have the structure of the first one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from ding.utils.data import default_collate

# Keys whose values are stacks of screens, oldest first; each screen becomes a frame.
STACKS = ('obs', 'next_obs')
# Dtypes of tensors and of the columns that hold them; numpy has no bfloat16, so its bits are kept as int16.
_NAMES = ('uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64', 'bool')
_TENSOR_DTYPES = {**{name: np.dtype(name) for name in _NAMES}, 'bfloat16': np.dtype('int16')}
# Python's own types, and the columns that hold them.
_PYTHON_DTYPES = dict(bool=np.dtype(bool), int=np.dtype(np.int64), float=np.dtype(np.float64))
# kinds of numpy dtypes: bool, whole numbers, floats, complex numbers
_NUMBERS = 'biufc'

Transition = dict[str, Any]
KeyPath = tuple[str, ...]  # ('prev_state', 'h') for transition['prev_state']['h']


class Field(NamedTuple):
    """A value of each transition, below a path of keys, and its type."""

    path: KeyPath
    type_name: str  # 'tensor', 'array', 'scalar' (numpy's), 'bool', 'int' or 'float'
    dtype: str  # of tensors, arrays and scalars
    shape: tuple[int, ...]

    @property
    def is_stack(self) -> bool:
        """Whether it is a stack of screens."""
        return len(self.path) == 1 and self.path[0] in STACKS

    @property
    def column_dtype(self) -> np.dtype:
        """The dtype of a column of such values."""
        if self.type_name == 'tensor':
            return _TENSOR_DTYPES[self.dtype]
        return _PYTHON_DTYPES[self.type_name] if self.type_name in _PYTHON_DTYPES else np.dtype(self.dtype)

    def tensor(self, column: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Rows of a tensor's column as one tensor with a dimension more."""
        tensor = column if isinstance(column, torch.Tensor) else torch.from_numpy(column)
        return tensor.view(torch.bfloat16) if self.dtype == 'bfloat16' else tensor

    def values(self, column: np.ndarray | torch.Tensor) -> list:
        """Rows of a column as the values that were pushed."""
        if self.type_name == 'tensor':
            return list(self.tensor(column).unbind(0))
        if self.type_name == 'array':
            return [column[i, ...] for i in range(len(column))]  # column[i] of a 1-d column would be a scalar
        return list(column) if self.type_name == 'scalar' else column.tolist()

    def collated(self, column: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Rows of a column as DI-engine's ``default_collate`` collates the values, without making each of them."""
        if self.type_name == 'tensor':
            return self.tensor(column).view(-1) if self.shape == (1,) else self.tensor(column)
        if self.type_name in _PYTHON_DTYPES:
            return _numbers(np.asarray(column))
        return default_collate(self.values(column))

    def __str__(self) -> str:
        if self.type_name in ('tensor', 'array'):
            return f'a {self.type_name} of {self.dtype} with the shape {self.shape}'
        return f'a number of {self.dtype}' if self.type_name == 'scalar' else f'of type {self.type_name}'


Fields = tuple[Field, ...]


def fields_of(transition: Mapping) -> Fields:
    """The structure of a transition, in the order of its keys.

    Raises:
        TypeError: If a value has a type that cannot be stored; the message names the key.
    """
    return tuple(_fields_below(transition, ()))


def expect_screens(fields: Fields) -> None:
    """Raise ValueError, which names the env option, if ``obs`` or ``next_obs`` is not a stack of uint8 screens."""
    stacks = [field for field in fields if field.is_stack]
    for stack in stacks:
        if stack.type_name not in ('tensor', 'array') or stack.column_dtype != np.uint8 or len(stack.shape) != 3:
            raise ValueError(
                f'{name_of(stack.path)} is {stack}; expected stacked screens of uint8, (frame_stack, height, width): '
                "set the env options frame_stack=4 and obs_dtype='uint8', and a model that scales pixels 0..255 "
                "(policy.model.type='pixel_dqn' and its kin)"
            )
    if any(0 in stack.shape or stack.shape[1:] != stacks[0].shape[1:] for stack in stacks):
        raise ValueError(f'obs and next_obs hold screens of different sizes: {[stack.shape for stack in stacks]}')


def fields_from(saved: Iterable[tuple[list[str], str, str, list[int]]]) -> Fields:
    """A structure from the JSON of a save."""
    return tuple(Field(tuple(path), type_name, dtype, tuple(shape)) for path, type_name, dtype, shape in saved)


class Structure:
    """The structure that all transitions of a buffer have, that of the first."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._known_keys: set[tuple] = set()

    def expect(self, transition: Mapping) -> None:
        """Raise TypeError or ValueError if a transition differs in more than the order of keys."""
        key = _key_of(transition)
        if key in self._known_keys:
            return
        these, those = ({field.path: field for field in fields} for fields in (fields_of(transition), self.fields))
        for path in {**those, **these}:
            if these.get(path) != those.get(path):
                hint = ' (env options screen_size, frame_stack and obs_dtype)' if path[0] in STACKS else ''
                raise ValueError(
                    f'{name_of(path)} is {these.get(path, "missing")}; expected {those.get(path, "no such key")}, as '
                    f'in the first transition: all transitions of a replay buffer have one structure{hint}'
                )
        self._known_keys.add(key)


def _key_of(transition: Mapping) -> tuple:
    """A cheap cache key for ``fields_of``: equal keys mean equal structures, or that a transition is refused."""
    key: list = []
    for name, value in transition.items():
        kind = type(value)
        if kind is torch.Tensor:
            key += (name, value.dtype, value.shape, value.layout)
        elif kind is int:
            key += (name, kind, -(2**63) <= value < 2**63)
        elif isinstance(value, Mapping):
            key += (name, _key_of(value))
        else:
            key += (name, kind, getattr(value, 'dtype', None), getattr(value, 'shape', None))
    return tuple(key)


def _fields_below(node: Mapping, path: KeyPath) -> Iterator[Field]:
    for key, value in node.items():
        if not isinstance(key, str):
            raise TypeError(f'a key of a transition is {key!r} ({type(key).__name__}); expected a string')
        if isinstance(value, Mapping) and value:
            yield from _fields_below(value, (*path, key))
        else:
            yield _field((*path, key), value)


def _field(path: KeyPath, value: Any) -> Field:
    kind = type(value)
    if kind is torch.Tensor:
        dtype = str(value.dtype).split('.')[1]
        if value.is_sparse or dtype not in _TENSOR_DTYPES:
            raise TypeError(
                f'{name_of(path)} is a {"sparse " if value.is_sparse else ""}tensor of {dtype}; expected a dense '
                f'one of {", ".join(_TENSOR_DTYPES)}'
            )
        return Field(path, 'tensor', dtype, tuple(value.shape))
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in _NUMBERS:
            raise TypeError(f'{name_of(path)} is an array of {value.dtype}; expected numbers')
        return Field(path, 'array' if isinstance(value, np.ndarray) else 'scalar', value.dtype.str, value.shape)
    if kind is int and not -(2**63) <= value < 2**63:
        raise TypeError(f'{name_of(path)} is {value}; expected a whole number of at most 64 bits')
    if kind in (bool, int, float):
        return Field(path, kind.__name__, '', ())
    found = 'an empty dict' if isinstance(value, Mapping) else f'of type {kind.__module__}.{kind.__qualname__}'
    raise TypeError(
        f'{name_of(path)} is {found}; a replay buffer takes tensors, arrays, numbers, and dicts of these. '
        'Sequences that the policy `r2d2` cuts while it collects do not fit: `r2d2_slices` hands over transitions'
    )


def name_of(path: KeyPath) -> str:
    """A value's name in error messages, such as ``transition['obs']``."""
    return 'transition' + ''.join(f'[{key!r}]' for key in path)


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor, from any device, as the array that its column holds."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # it is on a GPU, part of a graph, or bfloat16
        tensor = tensor.detach().cpu()
        return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _numbers(column: np.ndarray) -> torch.Tensor:
    """Python's numbers as ``default_collate`` makes tensors of them: bool, int64 or float32."""
    dtype = {'b': np.dtype(bool), 'f': np.dtype(np.float32)}.get(column.dtype.kind, np.dtype(np.int64))
    return torch.from_numpy(column.astype(dtype, copy=False))


def set_at(tree: Transition, path: KeyPath, value: object) -> None:
    """Put a value below keys of nested dicts."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def nested(columns: Iterable[tuple[KeyPath, Iterable]], size: int) -> list[Transition]:
    """Values by path as transitions."""
    transitions: list[Transition] = [{} for _ in range(size)]
    for path, values in columns:
        for transition, value in zip(transitions, values):
            set_at(transition, path, value)
    return transitions


def look_up(tree: Any, path: KeyPath) -> Any:
    """The value below keys of nested dicts."""
    for key in path:
        tree = tree[key]
    return tree
