"""A rule whose own script uses `unbroken.training.torch`, with `executor: unbroken`, on a real cluster."""

import signal
from pathlib import Path

import pytest
from cluster.exec_rules import plain_jobs, started, submissions
from cluster.lab import Cluster
from support.alone import batches, prepare, uninterrupted
from support.toyrun import until
from support.workdir import Driver, WorkDir

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.store.history import Attempt, EndKind, History

PATIENCE_SECONDS = 800.0
# Two jobs of a minute do not come to the end; the third one is then not to be near its limit.
EPOCHS, PACE = 30, 1.0


def start(work: WorkDir, *words: str) -> Driver:
    return work.start("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "3", *words)


def history(work: WorkDir) -> list[Attempt]:
    return History(work.root / "ckpt" / "history.jsonl").attempts()


def always(work: WorkDir, step: int, accident: int) -> None:
    """Each start has it."""
    text = (work.root / "train.py").read_text()
    work.write("train.py", text.replace("            os.remove(accident)\n", ""))
    work.write(f"accident-{step}", str(int(accident)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "shell"])
def test_a_training_goes_on_over_the_ends_of_its_jobs_without_an_error(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    slurm_work.added_environment |= {"EPOCHS": str(EPOCHS), "PACE": str(PACE)}
    prepare(slurm_work, kind, "resources: runtime=1, segments=20")

    driver = start(slurm_work)
    until(lambda: len(history(slurm_work)) >= 2 or driver.process.poll() is not None, PATIENCE_SECONDS)
    slurm_work.write("hurry", "")
    done = driver.wait(PATIENCE_SECONDS)

    lines = history(slurm_work)
    assert done.code == 0, done.text
    assert (slurm_work.root / "model.pt").read_bytes() == uninterrupted(tmp_path / "whole", EPOCHS)
    assert (slurm_work.root / "plotted.txt").read_text() == "plotted\n"
    assert [line for line in done.text.splitlines() if "Error" in line] == []
    assert batches(slurm_work) == list(range(EPOCHS * 4)), "a step was trained twice"
    assert [line.kind for line in lines] == [EndKind.PAUSED] * (len(lines) - 1) + [EndKind.FINISHED]
    assert len(lines) >= 3
    assert len({line.slurm_job for line in lines}) == len(lines)
    assert (plain_jobs(done), len(submissions(done))) == (1, 1)
    assert started(slurm_work) == len(lines)
    assert len(done.lines("unbroken: ckpt: segment ")) == len(lines) - 1


@pytest.mark.slow
def test_a_killed_training_goes_on_and_one_that_fails_is_a_failure_of_snakemake(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, "script", "resources: runtime=10, segments=20")
    slurm_work.write("accident-5", str(int(signal.SIGKILL)))
    slurm_work.write("accident-9", str(int(signal.SIGTERM)))
    slurm_work.write("accident-15", "0")

    failed = start(slurm_work, "--retries", "0").wait(PATIENCE_SECONDS)
    done = start(slurm_work).wait(PATIENCE_SECONDS)

    lines = history(slurm_work)
    assert failed.code == 1
    assert len({line.slurm_job for line in lines[:3]}) == 3, failed.text
    assert started(slurm_work) == 4
    assert failed.text.count("Error in rule train") == 1
    assert "ValueError: no such luck" in failed.text
    assert done.code == 0, done.text
    assert (slurm_work.root / "model.pt").read_bytes() == uninterrupted(tmp_path / "whole")
    assert [line.kind.value for line in lines] == ["died", "interrupted", "failed", "finished"]
    assert batches(slurm_work) == sorted([*range(24), 5, 15])


FOLDS = """\
import os, time
import torch
from unbroken.training.torch import Training, seed_everything

torch.set_num_threads(1)
for fold in (1, 2):
    os.environ["UNBROKEN_DEADLINE"] = str(time.time() + 4)
    seed_everything(fold)
    model = torch.nn.Linear(6, 1)
    training = Training(state={"model": model}, folder=f"fold{fold}")
    loader = training.loader(torch.randn(20, 6), 1)
    for epoch in training.epochs(1):
        for batch in training.batches(loader):
            time.sleep(0.25)
    training.finish()
open(snakemake.output[0], "w").close()
"""


@pytest.mark.slow
def test_two_trainings_one_after_the_other_have_their_pauses_each(slurm_work: WorkDir, cluster: Cluster) -> None:
    prepare(slurm_work, "script", "resources: runtime=10, segments=20")
    slurm_work.write("train.py", FOLDS)

    done = start(slurm_work, "--retries", "0").wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert "Error" not in done.text
    for fold in ("fold1", "fold2"):
        lines = History(slurm_work.root / fold / "history.jsonl").attempts()
        assert lines[0].kind is EndKind.PAUSED
        assert lines[-1].kind is EndKind.FINISHED


@pytest.mark.slow
def test_a_training_that_is_killed_at_each_start_is_not_handed_over_for_ever(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    prepare(slurm_work, "shell", "resources: runtime=10, segments=20")
    always(slurm_work, 5, signal.SIGKILL)

    done = start(slurm_work, "--retries", "10").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert "attempts without progress" in done.text
    # The first came forward, three without progress are allowed on each of two nodes, then one more: the policy's rule.
    assert len({line.slurm_job for line in history(slurm_work)}) <= 8, done.text


@pytest.mark.slow
def test_a_training_that_runs_out_of_memory_gets_more_and_is_a_failure_of_snakemake_after_its_retries(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    """The kernel kills the training, which leaves no line; its own job says why, so that no job starts in vain."""
    prepare(
        cgroup_work, "script", "resources: runtime=10, segments=20, mem_mb=lambda wildcards, attempt: 900 * attempt"
    )
    always(cgroup_work, 5, -2500)

    done = start(cgroup_work, "--retries", "1").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert started(cgroup_work) == 2, done.text
    assert "rule train ran out of memory (1800 MB); raise its mem_mb, then start snakemake again" in done.text
    (line,) = history(cgroup_work)
    assert (line.kind, line.job_state) == (EndKind.DIED, "OUT_OF_MEMORY")
    array = line.slurm_job.partition("_")[0]
    assert [cgroup_cluster.asked_memory(f"{array}_{task}") for task in (1, 2)] == ["900M", "1800M"]
