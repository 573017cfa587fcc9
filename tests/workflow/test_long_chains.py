"""Chains far longer than Python's recursion goes."""

import json
import sys

import pytest
from support.workdir import WorkDir, one_step_segments

# In front of snakemake's command; Python's own limit is 1000.
LITTLE_RECURSION = (
    sys.executable,
    "-c",
    "import sys; from snakemake.cli import main; sys.argv = sys.argv[1:]; sys.setrecursionlimit(250); main()",
)


def test_a_chain_of_two_thousand_segments_is_planned(work: WorkDir) -> None:
    work.configure({"long": one_step_segments(segments=2000, goal=2000)})

    done = work.snakemake("-n", "--quiet", "rules")

    assert done.code == 0
    assert done.planned == 2000
    assert "RecursionError" not in done.text


@pytest.mark.slow
def test_a_chain_far_longer_than_recursion_goes_runs_to_its_end(work: WorkDir, whole) -> None:
    """160 segments with a quarter of Python's recursion are what 600 are with all of it, in a quarter of the time."""
    work.configure({"long": one_step_segments(segments=160, goal=160)})

    by_its_last_record = work.start("-n", "results/long/segments/160.json", before=LITTLE_RECURSION).wait()
    done = work.start(before=LITTLE_RECURSION).wait(1100)

    assert "RecursionError" in by_its_last_record.text  # else this test would say nothing
    assert done.code == 0, done.text
    assert [attempt.progress_to for attempt in work.history("long")] == list(range(1, 161))
    assert json.loads((work.places("long").final / "summary.json").read_text())["segments"] == 160
    assert work.final("long") == whole(160)
