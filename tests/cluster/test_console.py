"""What a driver on a cluster shows: a line for each segment that worked, and why a job waits."""

import re

import pytest
from cluster.lab import Cluster
from support.terminal import Terminal
from support.workdir import BIN, WorkDir, one_long_segment, one_step_segments


@pytest.fixture
def shown(slurm_work: WorkDir) -> WorkDir:
    """With the console on."""
    slurm_work.added_environment = {**slurm_work.added_environment, "UNBROKEN_CONSOLE": ""}
    return slurm_work


def test_in_a_pipe_a_chain_is_a_line_for_each_segment_that_worked(shown: WorkDir) -> None:
    shown.configure({"a": one_step_segments(10, goal=3)})

    done = shown.snakemake()

    lines = [re.sub(r"^[0-9:]{8} |, \d+ s of work| \d{4,}$", "", line) for line in done.lines("")]
    assert done.code == 0
    assert [line for line in lines if not line.startswith("Using profile")] == [
        "unbroken 0.1.0: 1 run: a",
        "unbroken: a: submitted array of 12 tasks",
        "a segment 1 of 10: saved at 1/3 steps",
        "a segment 2 of 10: saved at 2/3 steps",
        "a segment 3 of 10: finished, 3/3 steps; results: results/a/final",
    ]


def test_at_a_terminal_the_live_line_says_why_a_job_waits(shown: WorkDir, cluster: Cluster) -> None:
    shown.configure({"a": one_long_segment(30, threads=4)})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    command = [str(BIN / "snakemake"), "--snakefile", str(shown.snakefile), "--profile", str(shown.profile)]
    with Terminal(command, shown.root, shown.environment(), 100, 24) as screen:
        screen.wait_for("Resources")
        waiting = " ".join(screen.shown)
        cluster.run("scancel", blocker)
        code = screen.wait()
        after = " ".join(screen.shown)

    assert code == 0
    assert re.search(r"a +queued .* Slurm job \d+_1 is PENDING \(Resources\)", waiting), waiting
    assert "a segment 1 of 3: finished, 30/30 steps" in after
