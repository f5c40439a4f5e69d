"""A sampled batch: as tensors for the learner, and as the list of dicts that DI-engine expects."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from ding.utils.data import default_collate

from .rows import Columns, Rows
from .structure import Leaf, numbers, set_at

# What a buffer adds to each transition: arrays of numbers, by key.
Extras = Dict[str, np.ndarray]


class FrameBatch(Sequence):
    """
    The screens of a batch are decoded into one tensor for each key. ``collated`` returns these without a copy,
    and all other keys as DI-engine's ``default_collate`` would collate them. As a sequence it yields dicts, made at
    the first access; their tensors share the batch's memory, and writes to a dict stay.
    """

    def __init__(
        self, rows: Rows, copied: Columns, pixels: Optional[torch.Tensor], extras: Optional[Extras] = None
    ) -> None:
        """``pixels`` are those of ``rows.frame_numbers(copied)``; ``extras`` are added to each transition."""
        self._size = len(copied['ids'])
        self._strings = list(rows.strings)
        self._extras = extras or {}
        self._columns: List[Tuple[Leaf, Any]] = []
        others, start = iter(copied[f'column{i}'] for i in range(len(rows.others))), 0
        for leaf in rows.leaves:
            if leaf.is_stack:
                assert pixels is not None
                end = start + self._size * leaf.shape[0]
                stack = pixels[start:end].view(self._size, *leaf.shape)
                self._columns.append((leaf, stack if leaf.kind == 'tensor' else stack.numpy()))
                start = end
            else:
                self._columns.append((leaf, next(others)))
        self._collated: Optional[Dict[str, Any]] = None

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._dicts[index]

    def __add__(self, other: Sequence) -> List[dict]:
        """A list of both, as DI-engine's pipelines with demonstrations join them."""
        return [*self, *other]

    def __radd__(self, other: Sequence) -> List[dict]:
        """The same, the other way round."""
        return [*other, *self]

    def collated(self) -> Dict[str, Any]:
        """
        Overview:
            The batch as one dict of tensors, equal to ``default_collate(list(batch))``.
        Shapes:
            - obs, next_obs: :math:`(B, frame\\_stack, H, W)`, uint8, in pinned memory with ``pin_memory``
            - others: :math:`(B, ...)`; tensors of shape (1, ) become :math:`(B, )`
        """
        if self._collated is None:
            # keys whose values default_collate leaves in a list
            keeps_lists = any(key.startswith('collate_ignore') for leaf, _ in self._columns for key in leaf.path)
            if keeps_lists:
                self._collated = default_collate(self._dicts)
            else:
                self._collated = {}
                for leaf, column in self._columns:
                    set_at(self._collated, leaf.path, leaf.collated(column, self._strings))
                for key, values in self._extras.items():
                    self._collated[key] = numbers(values)
        return self._collated

    @cached_property
    def _dicts(self) -> List[dict]:
        transitions: List[dict] = [{} for _ in range(self._size)]
        for leaf, column in self._columns:
            for transition, value in zip(transitions, leaf.values(column, self._strings)):
                set_at(transition, leaf.path, value)
        for key, values in self._extras.items():
            for transition, value in zip(transitions, values.tolist()):
                transition[key] = value
        return transitions
