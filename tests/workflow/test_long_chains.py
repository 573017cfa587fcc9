"""Chains far longer than Python's recursion goes."""

import json

import pytest
from support.workdir import WorkDir, one_step_segments


def test_a_chain_of_two_thousand_segments_is_planned(work: WorkDir) -> None:
    work.configure({"long": one_step_segments(segments=2000, goal=2000)})

    done = work.snakemake("-n", "--quiet", "rules")

    assert done.code == 0
    assert done.planned == 2000
    assert "RecursionError" not in done.text


@pytest.mark.slow
def test_a_chain_of_six_hundred_segments_runs(work: WorkDir, whole) -> None:
    work.configure({"long": one_step_segments(segments=600, goal=600)})

    done = work.start().wait(1100)

    assert done.code == 0
    assert [attempt.progress_to for attempt in work.history("long")] == list(range(1, 601))
    assert json.loads((work.places("long").final / "summary.json").read_text())["segments"] == 600
    assert work.final("long") == whole(600)
