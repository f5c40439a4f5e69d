"""Which rows a batch gets: uniformly at random, or in proportion to priorities."""

from typing import Optional

import numpy as np

from .row_ring import RowRing
from .sum_tree import SumTree


def uniform(
    random: np.random.Generator, ring: RowRing, size: int, replace: bool, sample_range: Optional[slice]
) -> np.ndarray:
    """Rows, each as likely as any other; O(size), however many there are."""
    among = range(ring.count) if sample_range is None else range(ring.count)[sample_range]
    if not among or (len(among) < size and not replace):
        raise ValueError(f'{size} transitions are to be sampled, but there are {len(among)} to sample from')
    ranks = random.integers(len(among), size=size)
    # Without replacement: where a rank seldom occurs twice, resampling all is ten times faster than `choice`.
    if not replace and len(among) < 4 * size * size:
        ranks = random.choice(len(among), size, replace=False, shuffle=False)
    while not replace and len(set(ranks.tolist())) < size:
        ranks = random.integers(len(among), size=size)
    return ring.nth(among.start + among.step * ranks)


def proportional(
    random: np.random.Generator, ring: RowRing, tree: SumTree, size: int, sample_range: Optional[slice]
) -> np.ndarray:
    """Rows in proportion to the leaves of a tree, one from each of ``size`` equal shares of the sum."""
    if not ring.count:
        raise ValueError(f'{size} transitions are to be sampled, but there is none')
    shares = (np.arange(size) + random.random(size)) / size
    if sample_range is None:
        return tree.find(shares * tree.total)
    rows = ring.nth(np.arange(ring.count)[sample_range])
    if not len(rows):
        raise ValueError(f'{size} transitions are to be sampled, but there are none in {sample_range}')
    sums = np.cumsum(tree.get(rows), dtype=np.float64)
    return rows[np.minimum(np.searchsorted(sums, shares * sums[-1], side='right'), len(rows) - 1)]
