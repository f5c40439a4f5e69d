"""
The structure of transitions: which keys, of which kinds, and the columns that hold their values.

All transitions of a buffer have the structure of the first one.
"""

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from ding.utils.data import default_collate

# Keys whose values are stacks of screens, oldest first; each screen becomes a frame.
STACKS = ('obs', 'next_obs')
# Dtypes of tensors and of the columns that hold them; numpy has no bfloat16, so its bits are kept as int16.
_NAMES = ('uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64', 'bool')
_TENSOR_DTYPES = {**{name: np.dtype(name) for name in _NAMES}, 'bfloat16': np.dtype('int16')}
# Python's own types, and the columns that hold them: strings by number. None and {} need no column.
_COLUMNS = dict(bool=np.bool_, int=np.int64, float=np.float64, str=np.uint32, none=np.uint8, empty=np.uint8)


class Leaf(NamedTuple):
    """A value of a transition that is not a dict of others, and a column of such values."""

    path: Tuple[str, ...]
    kind: str  # 'tensor', 'array', 'scalar' (numpy's), or a key of _COLUMNS
    dtype: str
    shape: Tuple[int, ...]

    @property
    def is_stack(self) -> bool:
        """Whether it is a stack of screens."""
        return len(self.path) == 1 and self.path[0] in STACKS

    @property
    def column_dtype(self) -> np.dtype:
        """The dtype of a column of such values."""
        if self.kind == 'tensor':
            return _TENSOR_DTYPES[self.dtype]
        return np.dtype(self.dtype if self.kind in ('array', 'scalar') else _COLUMNS[self.kind])

    def tensor(self, column: Any) -> torch.Tensor:
        """Rows of a tensor's column as one tensor with a dimension more."""
        tensor = column if isinstance(column, torch.Tensor) else torch.from_numpy(column)
        return tensor.view(torch.bfloat16) if self.dtype == 'bfloat16' else tensor

    def values(self, column: Any, strings: Sequence[str]) -> list:
        """Rows of a column as the values that were pushed."""
        if self.kind == 'tensor':
            return list(self.tensor(column).unbind(0))
        if self.kind == 'array':
            return [column[i, ...] for i in range(len(column))]  # column[i] of a 1-d column would be a scalar
        if self.kind == 'scalar':
            return list(column)
        if self.kind in ('none', 'empty'):
            return [None if self.kind == 'none' else {} for _ in column]
        if self.kind == 'str':
            return [strings[number] for number in column.tolist()]
        return column.tolist()

    def collated(self, column: Any, strings: Sequence[str]) -> Any:
        """Rows of a column as DI-engine's ``default_collate`` collates the values, without making each of them."""
        if self.kind == 'tensor':
            return self.tensor(column).view(-1) if self.shape == (1,) else self.tensor(column)
        if self.kind in ('int', 'float', 'bool'):
            return numbers(column)
        return {} if self.kind == 'empty' else default_collate(self.values(column, strings))

    def __str__(self) -> str:
        if self.kind in ('tensor', 'array'):
            return f'a {self.kind} of {self.dtype} with the shape {self.shape}'
        named = dict(none='None', empty='an empty dict', scalar=f'a number of {self.dtype}')
        return named.get(self.kind, f'of type {self.kind}')


Leaves = Tuple[Leaf, ...]


def leaves_of(transition: Mapping) -> Leaves:
    """
    Overview:
        The structure of a transition, in the order of its keys.
    Raises:
        - TypeError: If a value is of another type than can be stored; the message names the key.
        - ValueError: If ``obs`` or ``next_obs`` is not a stack of uint8 screens; the message names the env option.
    """
    leaves = tuple(_leaves(transition, ()))
    stacks = [leaf for leaf in leaves if leaf.is_stack]
    for leaf in stacks:
        _check_stack(leaf)
    if any(leaf.shape[1:] != stacks[0].shape[1:] for leaf in stacks):
        raise ValueError(f'obs and next_obs hold screens of different sizes: {[leaf.shape for leaf in stacks]}')
    return leaves


def leaves_from(saved: Any) -> Leaves:
    """A structure from the JSON of a save. Raises ValueError if it is none."""
    try:
        leaves = tuple(Leaf(tuple(map(str, p)), str(k), str(d), tuple(map(int, s))) for p, k, d, s in saved)
        if any(not leaf.path or leaf.column_dtype.hasobject for leaf in leaves):
            raise ValueError
        if any(leaf.is_stack and (len(leaf.shape) != 3 or 0 in leaf.shape) for leaf in leaves):
            raise ValueError
    except (TypeError, ValueError, KeyError, AttributeError):
        raise ValueError('the description of its transitions cannot be read') from None
    return leaves


def key_of(transition: Mapping) -> tuple:
    """
    A cheap cache key for ``leaves_of``: equal keys mean equal structures, or that one of the transitions is refused.
    """
    key: list = []
    for name, value in transition.items():
        kind = type(value)
        if kind is torch.Tensor:
            key += (name, value.dtype, value.shape, value.layout)
        elif kind is bool or kind is float or kind is str:
            key += (name, kind)
        elif kind is int:
            key += (name, kind, -(2**63) <= value < 2**63)
        elif kind is np.ndarray or isinstance(value, np.generic):
            key += (name, kind, value.dtype, value.shape)
        elif isinstance(value, Mapping):
            key += (name, key_of(value))
        else:
            key += (name, kind)
    return tuple(key)


def expect_same(found: Leaves, expected: Leaves) -> None:
    """Raise ValueError if two structures differ in more than the order of keys."""
    these, those = ({leaf.path: leaf for leaf in leaves} for leaves in (found, expected))
    for path in {**those, **these}:
        if these.get(path) != those.get(path):
            hint = ' (env options screen_size and frame_stack)' if path[0] in STACKS else ''
            raise ValueError(
                f'{name_of(path)} is {these.get(path, "missing")}; expected {those.get(path, "no such key")}, as in '
                f'the first transition: all transitions of a replay buffer have one structure{hint}'
            )


def _leaves(node: Mapping, path: Tuple[str, ...]) -> Iterator[Leaf]:
    for key, value in node.items():
        if not isinstance(key, str):
            raise TypeError(f'a key of a transition is {key!r} ({type(key).__name__}); expected a string')
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield _leaf((*path, key), value)


def _leaf(path: Tuple[str, ...], value: Any) -> Leaf:
    kind = type(value)
    if kind is torch.Tensor:
        dtype = str(value.dtype).split('.')[1]
        if value.is_sparse or dtype not in _TENSOR_DTYPES:
            raise TypeError(
                f'{name_of(path)} is a {"sparse " if value.is_sparse else ""}tensor of {dtype}; expected a dense '
                f'one of {", ".join(_TENSOR_DTYPES)}'
            )
        return Leaf(path, 'tensor', dtype, tuple(value.shape))
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.hasobject or value.dtype.names:
            raise TypeError(f'{name_of(path)} is an array of {value.dtype}; expected numbers or strings of one length')
        return Leaf(path, 'array' if isinstance(value, np.ndarray) else 'scalar', value.dtype.str, value.shape)
    if kind is int and not -(2**63) <= value < 2**63:
        raise TypeError(f'{name_of(path)} is {value}; expected a whole number of at most 64 bits')
    if kind in (bool, int, float, str):
        return Leaf(path, kind.__name__, '', ())
    if value is None or isinstance(value, Mapping):
        return Leaf(path, 'none' if value is None else 'empty', '', (0,))
    raise TypeError(
        f'{name_of(path)} is of type {kind.__module__}.{kind.__qualname__}; a replay buffer of frames takes tensors, '
        'numpy arrays, numbers, strings, None, and dicts of these'
    )


def name_of(path: Tuple[str, ...]) -> str:
    """A value's name in error messages, such as ``transition['obs']``."""
    return 'transition' + ''.join(f'[{key!r}]' for key in path)


def _check_stack(leaf: Leaf) -> None:
    name = name_of(leaf.path)
    if leaf.kind not in ('tensor', 'array'):
        raise ValueError(f'{name} is {leaf}; expected a stack of screens, uint8')
    if leaf.column_dtype != np.uint8:
        raise ValueError(
            f'{name} is of dtype {leaf.column_dtype if leaf.kind == "array" else leaf.dtype}; a replay buffer of '
            "frames takes pixels 0..255 as they are: set the env option obs_dtype='uint8' and a model that scales "
            "them (policy.model.type='pixel_dqn' and its kin)"
        )
    if len(leaf.shape) != 3 or 0 in leaf.shape:
        raise ValueError(
            f'{name} has the shape {leaf.shape}; expected stacked screens, (frame_stack, height, width), as the env '
            "options frame_stack=4 and obs_dtype='uint8' of BreakoutEnv give"
        )


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor, from any device, as the array that its column holds."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # it is on a GPU, part of a graph, or bfloat16
        tensor = tensor.detach().cpu()
        return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


def numbers(column: np.ndarray) -> torch.Tensor:
    """Numbers of Python as ``default_collate`` makes tensors of them: bool, int64 or float32."""
    dtype = {'b': np.dtype(bool), 'f': np.dtype(np.float32)}.get(column.dtype.kind, np.dtype(np.int64))
    return torch.from_numpy(column.astype(dtype, copy=False))


def set_at(tree: Dict[str, Any], path: Tuple[str, ...], value: Any) -> None:
    """Put a value below keys of nested dicts."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def look_up(tree: Mapping, path: Tuple[str, ...]) -> Any:
    """The value below keys of nested dicts."""
    value: Any = tree
    for key in path:
        value = value[key]
    return value
