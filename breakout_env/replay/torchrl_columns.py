"""DI-engine's transitions, a dict for each, as TorchRL keeps them, a tensor for each key, and back."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .structure import KeyPath, name_of, set_at

Layout = dict[KeyPath, tuple[str, tuple[int, ...]]]  # dtype and shape of each value of a transition


def flatten(transition: Mapping, parent: KeyPath = ()) -> dict[KeyPath, torch.Tensor]:
    """Flatten to {path: tensor} in the order of keys: DI-engine's LSTM takes the first for h and the second for c."""
    flat: dict[KeyPath, torch.Tensor] = {}
    for key, value in transition.items():
        path = (*parent, key)
        if isinstance(value, Mapping):
            flat.update(flatten(value, path))
        elif isinstance(value, (torch.Tensor, bool, int, float)):
            flat[path] = torch.as_tensor(value)
        else:
            raise TypeError(
                f'{name_of(path)} is of type {type(value).__name__}; expected a tensor, a number, or a dict of these. '
                'The sequences that the policy `r2d2` cuts while it collects do not fit: the policy `r2d2_slices` '
                'hands over transitions'
            )
    return flat


def expect_layout(rows: Sequence[Mapping[KeyPath, torch.Tensor]], known: Layout) -> Layout:
    """The layout of rows, which is the known one. Raises ValueError if they differ in it."""
    layouts = [
        {path: (str(value.dtype).split('.')[1], tuple(value.shape)) for path, value in row.items()} for row in rows
    ]
    expected = known or layouts[0]
    differing = {path for each in layouts for path in {**expected, **each} if expected.get(path) != each.get(path)}
    if differing:
        names = ', '.join(sorted('.'.join(path) for path in differing))
        raise ValueError(
            f'transitions of the replay buffer differ in {names}; expected the same keys, shapes and dtypes'
        )
    return expected


def expect_ids(row: Mapping[KeyPath, torch.Tensor]) -> None:
    """Refuse transitions without the keys that slices of episodes need."""
    missing = [key for key in ('episode_id', 'step_id', 'reward') if (key,) not in row]
    if missing:
        raise ValueError(
            f"the replay buffer samples slices (sampler='slice'), but its transitions lack {', '.join(missing)}; "
            "choose the collector that adds ids: create_config.collector=dict(type='sample_with_ids', "
            "import_names=['breakout_env'])"
        )


def nested(columns: Mapping[KeyPath, torch.Tensor]) -> list[dict[str, Any]]:
    """Columns as transitions, which are views. Numbers are tensors without a dimension, which collate to the same."""
    transitions: list[dict[str, Any]] = [{} for _ in range(len(next(iter(columns.values()))))]
    for path, column in columns.items():
        for transition, value in zip(transitions, column.unbind(0)):
            set_at(transition, path, value)
    return transitions


def transition_bytes(layout: Layout) -> int:
    """Bytes of a transition."""
    return sum(getattr(torch, dtype).itemsize * math.prod(shape) for dtype, shape in layout.values())
