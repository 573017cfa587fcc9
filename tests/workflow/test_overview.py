"""The overview, made by a real snakemake call."""

import pandas as pd
from support.workdir import WorkDir, one_step_segments


def test_the_overview_has_a_row_a_run_and_starts_none(work: WorkDir) -> None:
    work.configure({"done": one_step_segments(segments=2, goal=2), "half": one_step_segments(segments=1, goal=2)})
    work.snakemake()
    both = {"half": one_step_segments(segments=2, goal=2), "new": one_step_segments(segments=2, goal=2)}
    work.configure({"done": one_step_segments(segments=2, goal=2), **both})

    done = work.snakemake("overview")

    table = pd.read_csv(work.root / "results/overview.tsv", sep="\t")
    assert done.code == 0
    assert table[["run", "state", "done", "goal", "segments_used", "attempts"]].values.tolist() == [
        ["done", "finished", 2.0, 2, 2, 2],
        ["half", "paused", 1.0, 2, 1, 1],
        ["new", "not started", 0.0, 2, 0, 0],
    ]
