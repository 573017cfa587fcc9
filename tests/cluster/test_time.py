"""When a segment thinks that Slurm ends it, on a real cluster."""

import json
import time
from pathlib import Path

import pytest
from cluster.endings import wait_until_it_hears
from cluster.lab import Cluster
from support.workdir import WorkDir, one_long_segment, overlaps, uninterrupted, until

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0


def job_of(work: WorkDir) -> str:
    return str(work.claim("a")["slurm_job"])


def test_a_segment_knows_when_its_job_ends_without_being_told_by_a_variable(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    slurm_work.configure({"a": one_long_segment(100, segment_minutes=1)})

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    passport = slurm_work.passports("a")[-1]
    assert passport.slurm_job is not None
    listed = cluster.run(
        "squeue", "-h", "--states=all", "-j", str(passport.slurm_job["job_id"]), "-o", "%S", SLURM_TIME_FORMAT="%s"
    )
    assert passport.slurm_job["end_unix"] == pytest.approx(float(listed) + 60, abs=2)


@pytest.mark.slow
def test_a_segment_works_longer_when_an_administrator_gives_its_job_more_time(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    slurm_work.configure({"a": one_long_segment(4000, segment_minutes=0.5)})
    driver = slurm_work.start()
    until(lambda: slurm_work.saved("a"))

    cluster.run("scontrol", "update", f"JobId={job_of(slurm_work)}", "TimeLimit=9")
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    first = slurm_work.history("a")[0]
    assert (first.kind, first.progress_to) == (EndKind.FINISHED, 4000)
    assert "Slurm ends the job 480 s later than it said" in slurm_work.log("a", 1)
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", 4000)


@pytest.mark.slow
def test_a_segment_leaves_earlier_when_its_job_gets_less_time(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    slurm_work.configure({"a": one_long_segment(4000, segment_minutes=5)})
    driver = slurm_work.start()
    until(lambda: slurm_work.saved("a"))
    wait_until_it_hears(slurm_work)

    cluster.run("scontrol", "update", f"JobId={job_of(slurm_work)}", "TimeLimit=1")  # less than its warning time
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = slurm_work.history("a")
    assert "Slurm ends the job 240 s sooner than it said" in (slurm_work.root / "logs/a/001.1.log").read_text()
    assert (history[0].kind, history[0].exit_code) == (EndKind.PAUSED, 85)
    assert history[1].progress_from == history[0].progress_to
    assert list(overlaps(history)) == []
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", 4000)


# Makes a step in half a second.
COUNTS = """\
import time
import torch
from unbroken.training.torch import Training

training = Training(state={"model": torch.nn.Linear(1, 1)})
loader = training.loader(torch.utils.data.TensorDataset(torch.arange(10.0)), 1)
for epoch in training.epochs():
    for _ in training.batches(loader):
        time.sleep(0.5)
training.finish()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_is_suspended_and_resumed_goes_on_to_its_new_end(slurm_work: WorkDir, cluster: Cluster) -> None:
    """Its old end is past then; the program, which watches it too, would leave before unbroken has asked."""
    slurm_work.write("counts.py", COUNTS)
    # In a job Slurm takes its time to answer, as a busy controller does: the program could have left long since.
    real = cluster.environment["PATH"]
    slow = slurm_work.write(
        "slow/squeue", f'#!/bin/sh\n[ -z "$SLURM_JOB_ID" ] || sleep 3\nPATH={real} exec squeue "$@"\n'
    )
    slow.chmod(0o755)
    slurm_work.added_environment = {**slurm_work.added_environment, "PATH": f"{slow.parent}:{real}"}
    settings = {"script": "counts.py", "goal": 10_000}
    run = {"engine": "torch", "segments": 9, "segment_minutes": 1, "save_minutes": 0.01, "settings": settings}
    slurm_work.configure({"a": run})
    driver = slurm_work.start()
    until(lambda: slurm_work.saved("a"), PATIENCE_SECONDS)
    job = job_of(slurm_work)

    cluster.run("scontrol", "suspend", job)
    time.sleep(65)
    cluster.run("scontrol", "resume", job)
    until(lambda: len(slurm_work.history("a")) == 1, PATIENCE_SECONDS)
    (attempt,) = slurm_work.history("a")
    driver.interrupt()
    driver.wait(PATIENCE_SECONDS)

    assert attempt.slurm_job == job
    assert "Slurm ends the job" in slurm_work.log("a", 1) and "later than it said" in slurm_work.log("a", 1)
    assert attempt.unused_seconds is not None and attempt.unused_seconds < 20  # of 40 and more that were left


def test_the_folders_on_the_nodes_own_disk_are_handed_on(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.write("say.py", SAY)
    settings = {"script": "say.py", "goal": 1}
    run = {"engine": "torch", "segments": 1, "segment_minutes": 1, "settings": settings}
    slurm_work.configure({"a": run})
    slurm_work.added_environment = {**slurm_work.added_environment, "TMPDIR": "/var/tmp"}

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    said = json.loads(slurm_work.final("a")["said.json"])
    assert said == {"TMPDIR": "/var/tmp", "SLURM_JOB_PARTITION": "short"}


SAY = """\
import json, os, pathlib
save = pathlib.Path(os.environ["UNBROKEN_SAVE"])
names = ("TMPDIR", "SLURM_JOB_PARTITION")
(save / "said.json").write_text(json.dumps({name: os.environ.get(name) for name in names}))
(save / "progress.json").write_text('{"done": 1, "goal": 1, "unit": "steps"}')
"""
