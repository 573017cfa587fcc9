"""What users have used, and which rank that gives them: Slurm's fair tree with one level and equal shares."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import exp, log


class Shares:
    """What each user has used, in node-seconds that count half after each half-life."""

    def __init__(self, half_life: float, users: Sequence[str]) -> None:
        self._rate = log(2) / half_life
        self._used = dict.fromkeys(users, (0.0, 0.0))
        self._nodes = dict.fromkeys(users, 0)

    def occupy(self, user: str, nodes: int, now: float) -> None:
        """A job of this user has taken so many nodes, or left them (negative)."""
        self._used[user] = (self.used(user, now), now)
        self._nodes[user] = self._nodes.get(user, 0) + nodes

    def grant(self, user: str, used: float, now: float) -> None:
        """Lets a user have used so much."""
        self._used[user] = (used, now)
        self._nodes.setdefault(user, 0)

    def used(self, user: str, now: float) -> float:
        used, since = self._used.get(user, (0.0, now))
        kept = exp(-self._rate * (now - since))
        return used * kept + self._nodes.get(user, 0) * (1 - kept) / self._rate

    def factors(self, now: float) -> dict[str, float]:
        """Between 0 and 1: the rank of each user among all, 1 for who has used least; equals share their rank."""
        all_used = sorted(self.used(user, now) for user in self._used)
        count = len(all_used)
        return {user: 1 - bisect_left(all_used, self.used(user, now)) / count for user in self._used}

    def quantile(self, part: float, now: float) -> float:
        """What the user has used below whom this part of all users is."""
        all_used = sorted(self.used(user, now) for user in self._used)
        return all_used[min(int(part * len(all_used)), len(all_used) - 1)] if all_used else 0.0
