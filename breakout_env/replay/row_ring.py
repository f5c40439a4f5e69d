"""Rows in the order of pushing, with holes where rows were removed: the oldest row, the n-th row."""

from typing import List

import numpy as np

_BLOCK = 1024


class RowRing(object):
    """
    Hands out rows round a ring, always at the end, and lets any be removed. Rows thus stay in the order of
    pushing, so that "the oldest" and "the last thousand" have a meaning under random eviction, too.

    A ring has more rows than its capacity. When the end meets the start although there are holes, ``live`` says
    how the live rows move up, and the owner of the rows moves them. That happens once in as many pushes as there
    are spare rows, so a push stays O(1) on average.

    Counts of live rows in blocks of 1,024 find the n-th one without a search over all.
    """

    def __init__(self, capacity: int) -> None:
        spare = max(_BLOCK, capacity // 32)
        self.rows = -(-(capacity + spare) // _BLOCK) * _BLOCK
        # the low half of each row's insertion id; all live rows were pushed within the last 2**32
        self.low_ids = np.zeros(self.rows, np.uint32)
        self._live = np.zeros(self.rows, np.bool_)
        self._block_counts = np.zeros(self.rows // _BLOCK, np.int64)
        self._start = 0
        self._span = 0
        self.count = 0
        # rows that were written to so far: those behind them take no memory yet
        self.touched = 0
        self.next_id = 0

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return self.touched * (self.low_ids.itemsize + self._live.itemsize)

    @property
    def room(self) -> int:
        """Rows until the end meets the start; with none left, ``compacted`` must come before ``append``."""
        return self.rows - self._span

    @property
    def oldest(self) -> int:
        """The live row that was pushed first."""
        return self._start

    def append(self) -> int:
        """A row for the next push."""
        row = (self._start + self._span) % self.rows
        self.low_ids[row] = self.next_id & 0xFFFFFFFF
        self.next_id += 1
        self._live[row] = True
        self._block_counts[row // _BLOCK] += 1
        self._span += 1
        self.count += 1
        if row >= self.touched:
            self.touched = row + 1
        return row

    def remove(self, row: int) -> None:
        """Free a live row."""
        self._live[row] = False
        self._block_counts[row // _BLOCK] -= 1
        self.count -= 1
        if not self.count:
            self._start, self._span = 0, 0
            return
        while not self._live[self._start]:
            self._start = (self._start + 1) % self.rows
            self._span -= 1
        while not self._live[(self._start + self._span - 1) % self.rows]:
            self._span -= 1

    def nth(self, ranks: np.ndarray) -> np.ndarray:
        """
        Overview:
            Rows by rank in the order of pushing, the oldest first.
        Shapes:
            - ranks: :math:`(N, )`, each from 0 to ``count - 1``
        """
        if self._span == self.count:  # no holes
            return (self._start + ranks) % self.rows
        # rows are counted from row 0, the ring from its start: shift ranks by the live rows before the start
        ends = np.cumsum(self._block_counts)
        block = self._start // _BLOCK
        before = ends[block] - self._block_counts[block] + np.count_nonzero(self._live[block * _BLOCK : self._start])
        ranks = (ranks + before) % self.count
        blocks = np.searchsorted(ends, ranks, side='right')
        ranks = ranks - (ends[blocks] - self._block_counts[blocks])
        counted = np.cumsum(self._live.reshape(-1, _BLOCK)[blocks], axis=1)
        return blocks * _BLOCK + (counted > ranks[:, None]).argmax(axis=1)

    def insertion_ids(self, rows: np.ndarray) -> List[int]:
        """The insertion ids of live rows."""
        behind = (self.next_id - self.low_ids[rows].astype(np.int64)) & 0xFFFFFFFF
        return (self.next_id - behind).tolist()

    def find(self, insertion_id: int, guess: int = -1) -> int:
        """The row of a push, or -1 if it was removed; O(1) if it still is where it is guessed to be."""
        low = insertion_id & 0xFFFFFFFF
        if 0 <= guess < self.rows and self._live[guess] and self.low_ids[guess] == low:
            return guess
        if not 0 <= insertion_id < self.next_id or not self.count:
            return -1
        first = int(self.low_ids[self._start])
        wanted = (low - first) & 0xFFFFFFFF
        begin, end = 0, self._span  # ids grow along the ring, those of holes included
        while begin < end:
            middle = (begin + end) // 2
            if (int(self.low_ids[(self._start + middle) % self.rows]) - first) & 0xFFFFFFFF < wanted:
                begin = middle + 1
            else:
                end = middle
        row = (self._start + begin) % self.rows
        return row if begin < self._span and self._live[row] and self.low_ids[row] == low else -1

    def live(self) -> np.ndarray:
        """All live rows, the oldest first."""
        rows = np.flatnonzero(self._live)
        return np.concatenate([rows[rows >= self._start], rows[rows < self._start]])

    def compacted(self, low_ids: np.ndarray) -> None:
        """From now on the live rows are 0, 1, 2, ... in the order of pushing, with these ids."""
        self.count = self._span = len(low_ids)
        self._start = 0
        self.touched = max(self.touched, self.count)
        self.low_ids[: self.count] = low_ids
        self._live[:] = False
        self._live[: self.count] = True
        self._block_counts[:] = self._live.reshape(-1, _BLOCK).sum(axis=1)
