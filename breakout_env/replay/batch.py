"""A sampled batch: as tensors for the learner, and as the list of dicts that DI-engine expects."""

from collections.abc import Sequence
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

import numpy as np
import torch
from ding.utils.data import default_collate

from .schema import TransitionSchema, as_tensor, values_of

# What a buffer adds to each transition, by key: numbers as an array, or a function that returns a list of values.
Extras = Dict[str, Union[np.ndarray, Callable[[], list]]]


class BatchPart(NamedTuple):
    """The transitions of a batch that share a schema."""

    positions: np.ndarray  # where in the batch they belong
    schema: TransitionSchema
    stacks: Dict[str, torch.Tensor]  # uint8, (N, frame_stack, height, width)
    columns: List[Any]  # of each other leaf: an array with N rows, or N strings


class FrameBatch(Sequence):
    """
    The screens of a batch are decoded into one tensor for each key. ``collated`` returns these without a copy,
    and all other keys as DI-engine's ``default_collate`` would collate them. Other code sees a list of dicts,
    whose tensors are views of the same memory, created at the first access; a dict keeps what is written into it.
    """

    def __init__(self, size: int, parts: List[BatchPart], extras: Optional[Extras] = None) -> None:
        self._size = size
        self._parts = parts
        self._extras = extras or {}
        self._list: Optional[List[dict]] = None
        self._collated: Optional[Dict[str, Any]] = None

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._dicts()[index]

    def __iter__(self) -> Any:
        return iter(self._dicts())

    def collated(self) -> Dict[str, Any]:
        """
        Overview:
            The batch as one dict of tensors, equal to ``default_collate(list(batch))``.
        Shapes:
            - obs, next_obs: :math:`(B, frame\\_stack, H, W)`, uint8, in pinned memory with ``pin_memory``, on the \
                device of storage ``device``
            - others: :math:`(B, ...)`; tensors of shape (1, ) become :math:`(B, )`
        """
        if self._collated is None:
            if len(self._parts) == 1 and not self._parts[0].schema.keeps_lists:
                self._collated = self._collate(self._parts[0])
            else:
                self._collated = default_collate(self._dicts())
        return self._collated

    def _collate(self, part: BatchPart) -> Dict[str, Any]:
        out: Dict[str, Any] = {}
        columns = iter(part.columns)
        for leaf in part.schema.signature:
            path, kind = leaf[0], leaf[1]
            if leaf in part.schema.stacks:
                out[path[0]] = part.stacks[path[0]]
                continue
            column = next(columns)
            value: Any
            if kind == 'tensor':
                value = as_tensor(leaf, column)
                value = value.view(-1) if leaf[3] == (1,) else value
            elif kind in ('int', 'float', 'bool'):
                value = _numbers(column)
            elif kind == 'empty':
                value = {}
            else:  # as default_collate does, or refuses to do
                value = default_collate(column if kind == 'str' else values_of(leaf, column))
            _place(out, path, value)
        made: Dict[int, torch.Tensor] = {}  # a weight under two names is one tensor
        for key, values in self._extras.items():
            if callable(values):
                out[key] = values()
            else:
                if id(values) not in made:
                    made[id(values)] = _numbers(values)
                out[key] = made[id(values)]
        return out

    def _dicts(self) -> List[dict]:
        if self._list is None:
            transitions: List[dict] = [{}] * self._size
            for part in self._parts:
                for position, transition in zip(part.positions.tolist(), _transitions(part)):
                    transitions[position] = transition
            for key, values in self._extras.items():
                for transition, value in zip(transitions, values() if callable(values) else values.tolist()):
                    transition[key] = value
            self._list = transitions
        return self._list


def _numbers(column: np.ndarray) -> torch.Tensor:
    """Numbers of Python as ``default_collate`` makes tensors of them: bool, int64 or float32."""
    dtype = {'b': np.dtype(bool), 'f': np.dtype(np.float32)}.get(column.dtype.kind, np.dtype(np.int64))
    return torch.from_numpy(column.astype(dtype, copy=False))


def _transitions(part: BatchPart) -> List[dict]:
    by_leaf: List[list] = []
    columns = iter(part.columns)
    for leaf in part.schema.signature:
        if leaf in part.schema.stacks:
            stack = part.stacks[leaf[0][0]]
            by_leaf.append(list(stack.unbind(0)) if leaf[1] == 'tensor' else list(stack.cpu().numpy()))
        else:
            column = next(columns)
            by_leaf.append(column if leaf[1] == 'str' else values_of(leaf, column))
    paths = [leaf[0] for leaf in part.schema.signature]
    if not paths:
        return [{} for _ in part.positions]
    if all(len(path) == 1 for path in paths):
        keys = [path[0] for path in paths]
        return [dict(zip(keys, values)) for values in zip(*by_leaf)]
    transitions = []
    for values in zip(*by_leaf):
        transition: Dict[str, Any] = {}
        for path, value in zip(paths, values):
            _place(transition, path, value)
        transitions.append(transition)
    return transitions


def _place(tree: Dict[str, Any], path: tuple, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
