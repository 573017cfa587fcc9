"""Share the samples of a data set among ranks, and the rest of an epoch among other ranks; standard library alone.

A step takes a batch of each rank.  An epoch's progress is a number of steps, so it is the same for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def shares(order: Sequence[int], ranks: int, overlap: float) -> list[list[int]]:
    """Cut the order into one block for each rank, none larger than another by more than one sample.

    With `overlap` each rank holds that fraction of the next one's block as well; the last one's next is the first.
    """
    borders = [len(order) * rank // ranks for rank in range(ranks + 1)]
    blocks = [list(order[start:end]) for start, end in pairwise(borders)]
    if ranks == 1:
        return blocks
    following = [*blocks[1:], blocks[0]]
    return [block + more[: round(overlap * len(more))] for block, more in zip(blocks, following, strict=True)]


class Epoch:
    """Hold the samples of each rank in their order, in as many steps for all of them.

    A rank that has fewer than others makes smaller batches at the end; one that has none left takes a sample twice.
    With `drop_last` all batches are whole, and the remaining samples are left out.
    """

    def __init__(self, orders: Sequence[Sequence[int]], batch_size: int, drop_last: bool) -> None:
        self.orders, self._size = orders, batch_size
        lengths = [len(order) for order in orders]
        self.steps = min(lengths) // batch_size if drop_last else -(-max(lengths) // batch_size)
        self._ends = [self._ends_of(length) for length in lengths]

    @property
    def samples(self) -> int:
        """Return how many samples all ranks have together."""
        return sum(map(len, self.orders))

    def cut(self, rank: int, step: int) -> tuple[int, int]:
        """Return where in its order a rank's batch begins and ends; it is the last sample once more if none remains."""
        ends = self._ends[rank]
        start = ends[step - 1] if step else 0
        return (start, ends[step]) if ends[step] > start else (max(0, start - 1), max(1, start))

    def done(self, steps: int) -> int:
        """Return how many samples are done after `steps` steps; the last step counts those that it leaves out too."""
        return self.samples if steps >= self.steps else sum(ends[steps - 1] for ends in self._ends) if steps else 0

    def rest(self, steps: int) -> list[int]:
        """Return the samples that remain after `steps` steps, rank by rank."""
        if steps >= self.steps:
            return []
        pairs = zip(self.orders, self._ends, strict=True)
        return [index for order, ends in pairs for index in order[ends[steps - 1] if steps else 0 :]]

    def _ends_of(self, length: int) -> list[int]:
        ends = [min((step + 1) * self._size, length) for step in range(self.steps)]
        if len(ends) > 1 and ends[-1] == ends[-2] and ends[-2] - (ends[-3] if len(ends) > 2 else 0) > 1:
            ends[-2] -= 1  # else nothing would be left for the last step
        return ends
