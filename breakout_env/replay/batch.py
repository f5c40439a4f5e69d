"""A sampled batch: as tensors for the learner, and as the list of dicts that DI-engine expects."""

from collections.abc import Sequence
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

import numpy as np
import torch
from ding.utils.data import default_collate

from .frames.distinct import DistinctFrames
from .rows import CopiedRows, Rows
from .structure import as_tensor, place, values_of

# What a buffer adds to each transition, by key: numbers as an array, or a function that returns a list of values.
Extras = Dict[str, Union[np.ndarray, Callable[[], list]]]


class UndecodedBatch(NamedTuple):
    """All of some transitions but the pixels of their screens."""

    rows: Rows
    copied: CopiedRows
    source: Optional[DistinctFrames]  # where their frames are acquired; None if they are not

    def frame_numbers(self) -> np.ndarray:
        """Frames in the order of a batch: one key after the other, so that each becomes one tensor."""
        ends = np.cumsum(self.rows.depths).tolist()
        parts = [self.copied.frames[:, end - depth : end].ravel() for end, depth in zip(ends, self.rows.depths)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


class FrameBatch(Sequence):
    """
    The screens of a batch are decoded into one tensor for each key. ``collated`` returns these without a copy,
    and all other keys as DI-engine's ``default_collate`` would collate them. Other code sees a list of dicts,
    whose tensors are views of the same memory, created at the first access; a dict keeps what is written into it.
    """

    def __init__(self, undecoded: UndecodedBatch, pixels: Optional[torch.Tensor], extras: Optional[Extras]) -> None:
        self._rows, self._copied = undecoded.rows, undecoded.copied
        self._strings = list(self._rows.strings)
        self._size = len(self._copied.frames)
        self._extras = extras or {}
        self._stacks: Dict[str, torch.Tensor] = {}
        start = 0
        for leaf in self._rows.stacks:
            assert pixels is not None
            end = start + self._size * leaf.shape[0]
            self._stacks[leaf.path[0]] = pixels[start:end].view(self._size, *leaf.shape)
            start = end
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
            - obs, next_obs: :math:`(B, frame\\_stack, H, W)`, uint8, in pinned memory with ``pin_memory``
            - others: :math:`(B, ...)`; tensors of shape (1, ) become :math:`(B, )`
        """
        if self._collated is None:
            # keys whose values default_collate leaves in a list, and those that only some transitions have
            keeps_lists = any(key.startswith('collate_ignore') for leaf in self._rows.leaves for key in leaf.path)
            is_plain = not keeps_lists and not self._rows.state_leaves
            self._collated = self._collate() if is_plain else default_collate(self._dicts())
        return self._collated

    def _collate(self) -> Dict[str, Any]:
        out: Dict[str, Any] = {}
        columns = iter(self._copied.columns)
        for leaf in self._rows.leaves:
            if leaf.is_stack:
                out[leaf.path[0]] = self._stacks[leaf.path[0]]
                continue
            column = next(columns)
            value: Any
            if leaf.kind == 'tensor':
                value = as_tensor(leaf, column)
                value = value.view(-1) if leaf.shape == (1,) else value
            elif leaf.kind in ('int', 'float', 'bool'):
                value = _numbers(column)
            elif leaf.kind == 'empty':
                value = {}
            else:  # as default_collate does, or refuses to do
                value = default_collate(values_of(leaf, column, self._strings))
            place(out, leaf.path, value)
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
            transitions = self._transitions()
            for key, values in self._extras.items():
                for transition, value in zip(transitions, values() if callable(values) else values.tolist()):
                    transition[key] = value
            self._list = transitions
        return self._list

    def _transitions(self) -> List[dict]:
        values: List[list] = []
        columns = iter(self._copied.columns)
        for leaf in self._rows.leaves:
            if leaf.is_stack:
                stack = self._stacks[leaf.path[0]]
                values.append(list(stack.unbind(0) if leaf.kind == 'tensor' else stack.numpy()))
            else:
                values.append(values_of(leaf, next(columns), self._strings))
        paths = [leaf.path for leaf in self._rows.leaves]
        if all(len(path) == 1 for path in paths):
            keys = [path[0] for path in paths]
            transitions = [dict(zip(keys, of_one)) for of_one in zip(*values)] or [{} for _ in range(self._size)]
        else:
            transitions = [{} for _ in range(self._size)]
            for transition, of_one in zip(transitions, zip(*values)):
                for path, value in zip(paths, of_one):
                    place(transition, path, value)
        for leaf, column in zip(self._rows.state_leaves, self._copied.states):
            states = values_of(leaf, column, self._strings)
            for transition, number in zip(transitions, self._copied.state_numbers.tolist()):
                if number:
                    place(transition, leaf.path, states[number])
        return transitions


def _numbers(column: np.ndarray) -> torch.Tensor:
    """Numbers of Python as ``default_collate`` makes tensors of them: bool, int64 or float32."""
    dtype = {'b': np.dtype(bool), 'f': np.dtype(np.float32)}.get(column.dtype.kind, np.dtype(np.int64))
    return torch.from_numpy(column.astype(dtype, copy=False))
