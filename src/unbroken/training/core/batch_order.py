"""Cut an epoch into a row of small batches, the same for any number of ranks, and share it; standard library alone.

The row is a function of seed and epoch.  Each step takes the next batch for every rank.  So an epoch's progress is one
number, and if another number of ranks resumes from it, every sample still comes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Batch = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """Identify a rank and the number of ranks."""

    rank: int = 0
    ranks: int = 1


class BatchRow(Sequence[Batch]):
    """Cut indices into batches of one size on access; the last one may be smaller."""

    def __init__(self, indices: Sequence[int], batch_size: int, *, drop_last: bool = False) -> None:
        self._indices, self._size = indices, batch_size
        whole, rest = divmod(len(indices), batch_size)
        self._count = whole + (rest > 0 and not drop_last)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Batch:  # type: ignore[override]
        if not 0 <= number < self._count:
            raise IndexError(number)
        return tuple(self._indices[number * self._size : (number + 1) * self._size])


def grouped(
    indices: Sequence[int], groups: Sequence[object], batch_size: int, *, drop_last: bool = False
) -> list[Batch]:
    """Return the indices in batches of one group each; `groups` names the group of each index.

    A batch takes the place of its last sample.
    """
    open_batches: dict[object, list[int]] = {}
    row: list[Batch] = []
    for index, group in zip(indices, groups, strict=True):
        batch = open_batches.setdefault(group, [])
        batch.append(index)
        if len(batch) == batch_size:
            row.append(tuple(batch))
            batch.clear()
    if not drop_last:
        row += [tuple(batch) for batch in open_batches.values() if batch]
    return row


class EpochSteps:
    """Iterate over the steps from a place in the row to its end, as one rank sees them.

    Each has a batch for every rank.  If fewer batches than ranks remain, `drop_last` leaves them out; else they
    are divided, so that each rank gets some samples.  If there are fewer samples than ranks, they join the step
    before, if batches may be `mixed`; else some are taken twice, at most one less than there are ranks.
    """

    def __init__(self, row: Sequence[Batch], share: Share, start: int, *, drop_last: bool, mixed: bool = True) -> None:
        self._row, self._share, self._start = row, share, start
        self._whole, tail = divmod(max(len(row) - start, 0), share.ranks)
        self._last: list[Batch] = []
        if tail and not drop_last:
            self._last = self._shared_tail([row[len(row) - tail + number] for number in range(tail)], mixed=mixed)

    def __len__(self) -> int:
        return self._whole + bool(self._last)

    def __iter__(self) -> Iterator[Batch]:
        for step in range(self._whole):
            yield self._row[self._start + step * self._share.ranks + self._share.rank]
        if self._last:
            yield self._last[self._share.rank]

    def end_after(self, place: int) -> int:
        """Return where in the row the step from `place` on ends; the last step takes the remaining batches too."""
        last = self._start + (len(self) - 1) * self._share.ranks
        return len(self._row) if place >= last else place + self._share.ranks

    def place_after(self, steps: int) -> int:
        """Return where in the row the place lies that is so many of these steps after the first one's begin."""
        return len(self._row) if steps >= len(self) else max(self._start + steps * self._share.ranks, 0)

    def samples(self, start: int, end: int) -> int:
        """Return how many samples the row has from `start` to `end`."""
        return sum(len(self._row[number]) for number in range(start, end))

    def _shared_tail(self, tail: list[Batch], *, mixed: bool) -> list[Batch]:
        ranks = self._share.ranks
        samples = [index for batch in tail for index in batch]
        if len(samples) >= ranks:
            return _divided(tail, ranks)
        if not self._whole or not mixed or len(self._row[0]) == 1:
            return [(samples[rank % len(samples)],) for rank in range(ranks)]
        self._whole -= 1
        first = self._start + self._whole * ranks
        return [self._row[first + rank] + tuple(samples[rank : rank + 1]) for rank in range(ranks)]


def _divided(batches: list[Batch], count: int) -> list[Batch]:
    """Split the batches into `count` non-empty ones of the same samples, by halving the largest again and again."""
    found = list(batches)
    while len(found) < count:
        at = max(range(len(found)), key=lambda number: len(found[number]))
        half = (len(found[at]) + 1) // 2
        found[at : at + 1] = [found[at][:half], found[at][half:]]
    return found
