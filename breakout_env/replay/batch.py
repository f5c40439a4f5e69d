"""A sampled batch: as tensors for the learner, and as the list of dicts that DI-engine expects."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .rows import Columns, Rows
from .structure import Field, Transition, nested, set_at

# What a buffer adds to each transition: arrays of numbers, by key.
Extras = dict[str, np.ndarray]


class FrameBatch(Sequence):
    """The screens of a batch are decoded into one tensor for each key. ``collated`` returns these without a copy, and
    all other keys as DI-engine's ``default_collate`` would collate them. As a sequence it yields dicts, made at the
    first access; their tensors share the batch's memory, and writes to a dict stay.
    """

    def __init__(self, rows: Rows, copied: Columns, pixels: torch.Tensor | None, extras: Extras | None = None) -> None:
        """``pixels`` are the frames ``rows.frame_numbers(copied)``; ``extras`` are added to each transition."""
        self._size = len(copied['ids'])
        self._columns: list[tuple[Field, np.ndarray | torch.Tensor]] = []
        others, start = iter(copied[f'column{i}'] for i in range(len(rows.others))), 0
        for field in rows.fields:
            if field.is_stack and pixels is not None:
                end = start + self._size * field.shape[0]
                stack = pixels[start:end].view(self._size, *field.shape)
                self._columns.append((field, stack if field.type_name == 'tensor' else stack.numpy()))
                start = end
            else:
                self._columns.append((field, next(others)))
        for key, values in (extras or {}).items():
            type_name = 'int' if values.dtype.kind == 'i' else 'float'
            self._columns.append((Field((key,), type_name, '', ()), values))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._dicts[index]

    def __add__(self, other: Sequence) -> list[dict]:
        """A list of both, as DI-engine's pipelines with demonstrations join them."""
        return [*self, *other]

    def __radd__(self, other: Sequence) -> list[dict]:
        """The same, the other way round."""
        return [*other, *self]

    def collated(self) -> Transition:
        """The batch as one dict of tensors, equal to ``default_collate(list(batch))``.

        Shapes:
            obs, next_obs: :math:`(B, frame\\_stack, H, W)`, uint8
            others: :math:`(B, ...)`; tensors of shape (1, ) become :math:`(B, )`
        """
        collated: Transition = {}
        for field, column in self._columns:
            set_at(collated, field.path, field.collated(column))
        return collated

    @cached_property
    def _dicts(self) -> list[dict]:
        return nested(((field.path, field.values(column)) for field, column in self._columns), self._size)
