"""The tutorial's training loop as a run of segments: the same model bit for bit, and a README that shows the change."""

import difflib
from pathlib import Path

import pytest
from support.stopping import script_segment
from support.toyrun import ROOT, toy_job

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.store.history import EndKind

EXAMPLE = ROOT / "examples" / "torch_tutorial"


def segment(base: Path, number: int, stop_at: float | None = None, pause_seconds: float = 0.0):
    """One segment of the example towards three epochs."""
    return script_segment(base, number, 3, [str(EXAMPLE / "train.py"), str(pause_seconds)], stop_at)


@pytest.mark.slow
def test_the_tutorial_in_pieces_is_the_tutorial_bit_for_bit(tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    segment(whole, 1)

    first = segment(pieces, 1, stop_at=0.2, pause_seconds=0.05)
    second = segment(pieces, 2, stop_at=1.5, pause_seconds=0.05)
    last = segment(pieces, 3)

    found, expected = toy_job(pieces).places, toy_job(whole).places
    assert [record.kind for record in (first, second, last)] == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    assert 0 < first.progress.done < second.progress.done < 3
    assert [first.progress.done % 1 > 0, second.progress.done % 1 > 0] == [True, True]  # in the middle of an epoch
    for name in ("model.pt", "metrics.csv", "metrics.json"):
        assert (found.final / name).read_bytes() == (expected.final / name).read_bytes()
    assert (found.live / "metrics.jsonl").read_bytes() == (expected.live / "metrics.jsonl").read_bytes()


def test_the_readme_shows_exactly_what_changed() -> None:
    before, after = ((EXAMPLE / name).read_text().splitlines() for name in ("before.py", "train.py"))
    diff = "\n".join(difflib.unified_diff(before, after, "before.py", "train.py", lineterm="", n=1))

    assert f"```diff\n{diff}\n```" in (EXAMPLE / "README.md").read_text()
