"""Rows in the order of pushing, with holes where something was removed: which is the oldest, which is the n-th."""

from typing import Iterator

import numpy as np

_BLOCK = 1024


class RowRing(object):
    """
    Overview:
        Hands out rows round a ring, always at the end, and lets any be removed. Rows thus stay in the order of \
        pushing whatever is removed, which makes "the oldest" and "the last thousand" mean something under random \
        eviction, too.

        A ring has some rows more than it holds at most. When the end meets the start although there are holes, \
        ``live`` says how the live rows move up, and the owner of the rows moves them. That happens once in as many \
        pushes as there are rows to spare, so a push stays O(1) on average.

        The n-th live row is found through the numbers of live rows in blocks of 1,024, without a search over all.
    Interfaces:
        ``append``, ``remove``, ``nth``, ``find``, ``compacted``, ``live``.
    Properties:
        ``count``, ``rows``, ``room``, ``touched``, ``oldest``, ``next_ticket``.
    """

    def __init__(self, capacity: int) -> None:
        """
        Arguments:
            - capacity (:obj:`int`): Rows it is to hold at most.
        """
        spare = max(_BLOCK, capacity // 32)
        self.rows = -(-(capacity + spare) // _BLOCK) * _BLOCK
        # The low half of the number of each push: who was pushed when, and which row is still the one it was.
        self.tickets = np.zeros(self.rows, np.uint32)
        self._live = np.zeros(self.rows, np.bool_)
        self._block_counts = np.zeros(self.rows // _BLOCK, np.int64)
        self._start = 0
        self._span = 0
        self.count = 0
        # rows that were written to so far: what lies behind them takes no memory yet
        self.touched = 0
        self.next_ticket = 0

    @property
    def room(self) -> int:
        """Rows until the end meets the start; with none left, ``append`` needs ``live`` and ``compacted`` first."""
        return self.rows - self._span

    @property
    def oldest(self) -> int:
        """The row pushed first of those that are there."""
        return self._start

    def is_live(self, row: int) -> bool:
        return 0 <= row < self.rows and bool(self._live[row])

    def append(self) -> int:
        """A row for the next push."""
        row = (self._start + self._span) % self.rows
        self.tickets[row] = self.next_ticket & 0xFFFFFFFF
        self.next_ticket += 1
        self._live[row] = True
        self._block_counts[row // _BLOCK] += 1
        self._span += 1
        self.count += 1
        if row >= self.touched:
            self.touched = row + 1
        return row

    def remove(self, row: int) -> None:
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
        # In the order of rows the ring is turned, so that a rank is turned by what lies before its start.
        ends = np.cumsum(self._block_counts)
        block, within = divmod(self._start, _BLOCK)
        before = ends[block] - self._block_counts[block] + np.count_nonzero(self._live[block * _BLOCK : self._start])
        ranks = (ranks + before) % self.count
        blocks = np.searchsorted(ends, ranks, side='right')
        ranks = ranks - (ends[blocks] - self._block_counts[blocks])
        counted = np.cumsum(self._live.reshape(-1, _BLOCK)[blocks], axis=1)
        return blocks * _BLOCK + (counted > ranks[:, None]).argmax(axis=1)

    def find(self, ticket: int, guess: int = -1) -> int:
        """The row of a push, or -1 if it is gone; at once if it still is where it is guessed to be."""
        low = ticket & 0xFFFFFFFF
        if self.is_live(guess) and self.tickets[guess] == low:
            return guess
        if not 0 <= ticket < self.next_ticket or not self.count:
            return -1
        first = int(self.tickets[self._start])
        wanted = (low - first) & 0xFFFFFFFF
        begin, end = 0, self._span  # tickets grow along the ring, those of holes included
        while begin < end:
            middle = (begin + end) // 2
            if (int(self.tickets[(self._start + middle) % self.rows]) - first) & 0xFFFFFFFF < wanted:
                begin = middle + 1
            else:
                end = middle
        row = (self._start + begin) % self.rows
        return row if begin < self._span and self._live[row] and self.tickets[row] == low else -1

    def live(self) -> np.ndarray:
        """All live rows, the oldest first."""
        rows = np.flatnonzero(self._live)
        return np.concatenate([rows[rows >= self._start], rows[rows < self._start]])

    def __iter__(self) -> Iterator[int]:
        return iter(self.live().tolist())

    def compacted(self, tickets: np.ndarray) -> None:
        """From now on the live rows are 0, 1, 2, ... in the order of pushing, with these tickets."""
        self.count = self._span = len(tickets)
        self._start = 0
        self.touched = max(self.touched, self.count)
        self.tickets[: self.count] = tickets
        self._live[:] = False
        self._live[: self.count] = True
        self._block_counts[:] = self._live.reshape(-1, _BLOCK).sum(axis=1)
