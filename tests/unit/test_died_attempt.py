"""The line of an attempt that was killed, written by its successor."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.making import PASSPORT

from unbroken.store.attempts import died_attempt
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.claim import Claim


@dataclass
class Published:
    """As much of a store as the line is made of."""

    created_utc: str
    root: Path = Path("results/x/checkpoints")

    def readable(self) -> list[Checkpoint]:
        return [Checkpoint(Path("x"), replace(PASSPORT, token=2, created_utc=self.created_utc))]


@pytest.mark.parametrize(
    ("created", "next_began", "ended"),
    [
        ("2026-01-01T00:00:50Z", "2026-01-01T00:01:00Z", "2026-01-01T00:00:50Z"),
        ("2026-01-01T00:01:07Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:00Z"),  # published by the next one
        ("2026-01-01T00:01:07Z", "2025-12-31T23:59:00Z", "2026-01-01T00:00:10Z"),  # another node's clock
        ("2026-01-01T00:01:07Z", "", "2026-01-01T00:01:07Z"),
    ],
)
def test_it_ended_before_the_next_one_began(created: str, next_began: str, ended: str) -> None:
    claim = Claim(2, 1, "elsewhere", 1, "", "", "", "", "somebody", "2026-01-01T00:00:10Z")

    assert died_attempt(claim, Published(created), [], next_began).ended_utc == ended  # type: ignore[arg-type]
