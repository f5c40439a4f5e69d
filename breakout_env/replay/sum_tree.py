"""Sampling in proportion to priority, and the smallest priority, over a million rows, in two steps."""

import numpy as np

_LEAVES = 256


class SumTree:
    """A sum tree (Schaul et al. 2016, appendix B.2.1) of two levels: blocks of 256 leaves, and the sum of each. For a
    million leaves and a batch, two running sums take less time than the twenty steps down a binary tree in Python. A
    block is always summed from its leaves, so that rounding errors do not add up.
    """

    def __init__(self, rows: int) -> None:
        blocks = -(-rows // _LEAVES)
        self._leaves = np.zeros((blocks, _LEAVES), np.float32)
        self._sums = np.zeros(blocks)
        self._minima = np.full(blocks, np.inf)

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._sums.cumsum()[-1])

    @property
    def smallest(self) -> float:
        """The smallest leaf above 0; infinity if there is none."""
        return float(self._minima.min())

    def get(self, rows: np.ndarray) -> np.ndarray:
        """The leaves of rows."""
        return self._leaves.reshape(-1)[rows]

    def set(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Set the leaves of rows; 0 excludes a row. For a row given twice the last value counts."""
        self._leaves.reshape(-1)[rows] = values
        blocks = np.unique(np.asarray(rows) // _LEAVES)
        leaves = self._leaves[blocks]
        self._sums[blocks] = leaves.sum(axis=1, dtype=np.float64)
        self._minima[blocks] = leaves.min(axis=1, where=leaves > 0, initial=np.inf)

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The rows where the running sum of the leaves exceeds each mass, at least 0 and below ``total``."""
        ends = self._sums.cumsum()
        masses = np.minimum(masses, np.nextafter(ends[-1], 0))  # rounding may have made one as large as the total
        blocks = np.searchsorted(ends, masses, side='right')
        running = self._leaves[blocks].cumsum(axis=1, dtype=np.float64)
        left = masses - np.append(0, ends)[blocks]
        left = np.minimum(left, np.nextafter(running[:, -1], 0))  # rounding, as above
        return blocks * _LEAVES + (running > left[:, None]).argmax(axis=1)
