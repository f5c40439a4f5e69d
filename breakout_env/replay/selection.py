"""Rows that were selected for a batch, before their frames are decoded."""

from typing import List, NamedTuple, Optional

import numpy as np
import torch

from .batch import BatchPart, Extras, FrameBatch
from .frames.store import FrameStore
from .table import RowsOfSchema


class Selection(NamedTuple):
    """All of some transitions but the pixels of their screens."""

    size: int
    parts: List[RowsOfSchema]
    store: Optional[FrameStore]  # where their frames are acquired; None if they are not

    def integers(self, key: str) -> Optional[np.ndarray]:
        """The integers under a key; None if not all transitions have one."""
        out = np.empty(self.size, np.int64)
        for positions, schema, _, columns in self.parts:
            for leaf, column in zip(schema.others, columns):
                if leaf[0] == (key,) and leaf[1] == 'int':
                    out[positions] = column
                    break
            else:
                return None
        return out

    def frames(self) -> Optional[np.ndarray]:
        """Frames in the order of a batch: one key after the other, so that each becomes one tensor."""
        pieces = []
        for _, schema, frames, _ in self.parts:
            begin = 0
            for depth in schema.depths:
                pieces.append(frames[:, begin : begin + depth].ravel())
                begin += depth
        return np.concatenate(pieces) if pieces else None

    def batch(self, pixels: Optional[torch.Tensor], extras: Optional[Extras]) -> FrameBatch:
        """The batch, from the pixels of ``frames()``."""
        parts, start = [], 0
        for positions, schema, _, columns in self.parts:
            stacks = {}
            for (key,), _, _, (depth, height, width) in schema.stacks:
                assert pixels is not None
                end = start + len(positions) * depth
                stacks[key] = pixels[start:end].view(len(positions), depth, height, width)
                start = end
            parts.append(BatchPart(positions, schema, stacks, columns))
        return FrameBatch(self.size, parts, extras)
