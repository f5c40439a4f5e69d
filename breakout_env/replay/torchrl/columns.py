"""Converts transitions between DI-engine's form, a dict each, and TorchRL's, a tensor for each key."""

from typing import Any, Dict, List, Mapping, Tuple

import torch

KeyPath = Tuple[str, ...]  # ('prev_state', 'h') for transition['prev_state']['h']
Columns = Dict[KeyPath, torch.Tensor]


def to_columns(transitions: List[Mapping]) -> Columns:
    """
    Overview:
        Stack the values of each key: tensors, numbers, and dicts of these. The order of the keys is kept, as \
        DI-engine's LSTM tells its hidden from its cell state by their order in a dict.
    Raises:
        - ValueError: If transitions differ in keys, shapes or dtypes.
        - TypeError: If a value is neither tensor nor number.
    """
    columns: Columns = {}
    _stack(transitions, (), columns)
    return columns


def _stack(nodes: List[Mapping], parent: KeyPath, columns: Columns) -> None:
    for node in nodes:
        if node.keys() != nodes[0].keys():
            raise ValueError(
                f'a transition{_subscripts(parent)} has the keys {sorted(node)}, another in the same push has '
                f'{sorted(nodes[0])}; expected the same'
            )
    for key, first in nodes[0].items():
        path, values = (*parent, key), [node[key] for node in nodes]
        if isinstance(first, Mapping):
            _stack(values, path, columns)
        elif isinstance(first, torch.Tensor):
            if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
                raise ValueError(
                    f'transition{_subscripts(path)} differs in shape or dtype within a push; expected the same'
                )
            columns[path] = torch.stack(values)
        elif isinstance(first, (bool, int, float)):
            columns[path] = torch.tensor(values)
        else:
            raise TypeError(
                f'transition{_subscripts(path)} is of type {type(first).__name__}; expected a tensor, a number, or a '
                'dict of these. The sequences that the policy `r2d2` cuts while it collects do not fit: the policy '
                '`r2d2_slices` hands over transitions'
            )


def _subscripts(path: KeyPath) -> str:
    return ''.join(f'[{key!r}]' for key in path)


def to_transitions(columns: Mapping[KeyPath, torch.Tensor]) -> List[Dict[str, Any]]:
    """The inverse, as views. Numbers stay tensors of no dimension, which collate to the same batch."""
    transitions: List[Dict[str, Any]] = [{} for _ in range(len(next(iter(columns.values()))))]
    for path, column in columns.items():
        for transition, value in zip(transitions, column.unbind(0)):
            for key in path[:-1]:
                transition = transition.setdefault(key, {})
            transition[path[-1]] = value
    return transitions
