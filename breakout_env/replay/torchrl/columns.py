"""Transitions as DI-engine has them, a dict each, to columns as TorchRL has them, a tensor a key, and back."""

from typing import Any, Dict, List, Mapping, Tuple

import torch

Path = Tuple[str, ...]  # ('prev_state', 'h') for transition['prev_state']['h']


def to_columns(transitions: List[Mapping]) -> Dict[Path, torch.Tensor]:
    """
    Overview:
        Put the values of each key side by side.
    Arguments:
        - transitions (:obj:`List[Mapping]`): Equal keys; tensors, numbers, and dicts of these.
    Returns:
        - columns (:obj:`Dict[Path, torch.Tensor]`): In the order of the keys, which matters: DI-engine's LSTM takes \
            its hidden and its cell state by their order in a dict.
    Raises:
        - ValueError: If a transition has other keys or shapes than the first.
        - TypeError: If a value is neither tensor nor number; the message names its key.
    """
    columns: Dict[Path, torch.Tensor] = {}
    _collect(transitions, (), columns)
    return columns


def _collect(nodes: List[Mapping], path: Path, columns: Dict[Path, torch.Tensor]) -> None:
    for node in nodes:
        if node.keys() != nodes[0].keys():
            raise ValueError(
                f'a transition{_name(path)} has the keys {sorted(node)}, another in the same push has '
                f'{sorted(nodes[0])}; expected the same'
            )
    for key, first in nodes[0].items():
        here, values = (*path, key), [node[key] for node in nodes]
        if isinstance(first, Mapping):
            _collect(values, here, columns)
        elif isinstance(first, torch.Tensor):
            if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
                raise ValueError(f'transition{_name(here)} differs in shape or dtype within a push; expected the same')
            columns[here] = torch.stack(values)
        elif isinstance(first, (bool, int, float)):
            columns[here] = torch.tensor(values)
        else:
            raise TypeError(
                f'transition{_name(here)} is of type {type(first).__name__}; expected a tensor, a number, or a dict of '
                'these. Sequences that were cut when they were collected, as the policy `r2d2` makes them, do not '
                'fit: the policy `r2d2_slices` hands over transitions'
            )


def _name(path: Path) -> str:
    return ''.join(f'[{key!r}]' for key in path)


def to_transitions(columns: Mapping[Path, torch.Tensor]) -> List[Dict[str, Any]]:
    """
    Overview:
        Take columns apart again. Numbers stay tensors, of no dimension: they collate to the same batch.
    Arguments:
        - columns (:obj:`Mapping[Path, torch.Tensor]`): Of equal length.
    Returns:
        - transitions (:obj:`List[Dict[str, Any]]`): Views of the columns, nothing is copied.
    """
    transitions: List[Dict[str, Any]] = [{} for _ in range(len(next(iter(columns.values()))))]
    for path, column in columns.items():
        for transition, value in zip(transitions, column.unbind(0)):
            for key in path[:-1]:
                transition = transition.setdefault(key, {})
            transition[path[-1]] = value
    return transitions
