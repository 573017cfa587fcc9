"""Where in the time to come a job finds enough nodes: the list of free nodes that a backfill scheduler keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf


class Profile:
    """How many nodes are free from now on: by the limits of running jobs, and by the reservations made so far."""

    def __init__(self, now: float, free: int, releases: Sequence[tuple[float, int]]) -> None:
        self.times, self.free = [now], [free]
        for when, nodes in releases:
            free += nodes
            if when == self.times[-1]:
                self.free[-1] = free
            else:
                self.times.append(when)
                self.free.append(free)

    def earliest(self, nodes: int, length: float, latest: float, begin: float = -inf) -> float | None:
        """The first moment, from `begin` to `latest`, from which so many nodes are free for so long."""
        times, free = self.times, self.free
        count = len(times)
        at = max(bisect_right(times, begin) - 1, 0)
        while True:
            while at < count and free[at] < nodes:
                at += 1
            if at == count or times[at] > latest:
                return None
            until = times[at] + length
            ahead = at + 1
            while ahead < count and times[ahead] < until:
                if free[ahead] < nodes:
                    break
                ahead += 1
            else:
                return times[at]
            at = ahead

    def hole(self, nodes: int) -> float:
        """How long so many nodes are free from now on."""
        for when, free in zip(self.times, self.free, strict=True):
            if free < nodes:
                return when - self.times[0]
        return inf

    def take(self, nodes: int, start: float, end: float) -> None:
        first, last = self._cut(start), self._cut(end)
        for at in range(first, last):
            self.free[at] -= nodes

    def _cut(self, when: float) -> int:
        at = bisect_left(self.times, when)
        if at == len(self.times) or self.times[at] != when:
            self.times.insert(at, when)
            self.free.insert(at, self.free[at - 1])
        return at
