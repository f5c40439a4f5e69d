"""Sampling in proportion to priority, and the smallest priority, over a million rows, in three steps."""

from typing import List

import numpy as np

_FAN_OUT = 128


class SumTree(object):
    """
    A sum tree (Schaul et al. 2016, appendix B.2.1) and a minimum tree over the same leaves. Nodes have 128
    children instead of 2: a million leaves are three levels instead of twenty, each level of a batch is one numpy
    call, and the inner nodes take 1/128 of the leaves' memory instead of as much again. A node is always summed
    from its children, so that rounding errors do not add up.
    """

    def __init__(self, rows: int) -> None:
        # _sums[0] are the leaves, 0 at first; the last level has one block, the children of the root
        self._sums: List[np.ndarray] = []
        self._minima: List[np.ndarray] = []
        size, dtype = rows, 'float32'
        while True:
            blocks = -(-size // _FAN_OUT)
            self._sums.append(np.zeros((blocks, _FAN_OUT), dtype))
            if self._sums[1:]:
                self._minima.append(np.full((blocks, _FAN_OUT), np.inf))
            if blocks == 1:
                break
            size, dtype = blocks, 'float64'

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._sums[-1].sum(dtype=np.float64))

    @property
    def smallest(self) -> float:
        """The smallest leaf above 0; infinity if there is none."""
        if self._minima:
            return float(self._minima[-1].min())
        leaves = self._sums[0]
        return float(leaves.min(where=leaves > 0, initial=np.inf))

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(level.nbytes for level in self._sums + self._minima)

    def get(self, rows: np.ndarray) -> np.ndarray:
        """The leaves of rows."""
        return self._sums[0].reshape(-1)[rows]

    def set(self, rows: np.ndarray, values: np.ndarray) -> None:
        """
        Overview:
            Set the leaves of rows; 0 excludes a row. For a row given twice the last value counts.
        Shapes:
            - rows, values: :math:`(N, )`
        """
        self._sums[0].reshape(-1)[rows] = values
        nodes = np.asarray(rows) // _FAN_OUT
        for level in range(1, len(self._sums)):
            if len(nodes) > 1:
                nodes = np.unique(nodes)
            children = self._sums[level - 1][nodes]
            if level == 1:
                minima = children.min(axis=1, where=children > 0, initial=np.inf)
            else:
                minima = self._minima[level - 2][nodes].min(axis=1)
            self._sums[level].reshape(-1)[nodes] = children.sum(axis=1, dtype=np.float64)
            self._minima[level - 1].reshape(-1)[nodes] = minima
            nodes = nodes // _FAN_OUT

    def find(self, masses: np.ndarray) -> np.ndarray:
        """
        Overview:
            The rows where the running sum of the leaves exceeds each mass.
        Shapes:
            - masses: :math:`(N, )`, each at least 0 and below ``total``
        """
        nodes = np.zeros(len(masses), np.int64)
        left = np.asarray(masses, np.float64).copy()
        each = np.arange(len(masses))
        for level in reversed(self._sums):
            sums = np.cumsum(level[nodes], axis=1, dtype=np.float64)
            # the first child whose running sum exceeds the mass; where rounding leaves none, the last that adds to it
            children = (sums > left[:, None]).argmax(axis=1)
            beyond = sums[:, -1] <= left
            if beyond.any():
                children[beyond] = (sums[beyond] >= sums[beyond, -1:]).argmax(axis=1)
            left -= np.where(children > 0, sums[each, children - 1], 0.0)
            nodes = nodes * _FAN_OUT + children
        return nodes
