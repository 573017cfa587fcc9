"""Who else works on a run, and for whose job its tasks can wait in the queue."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain
from support.toyrun import toy

from unbroken.job import submissions
from unbroken.job.control import OtherOwner
from unbroken.job.spec import JobSpec
from unbroken.store.claim import claim_path
from unbroken.store.layout import RunFolder
from unbroken.store.lease import take

pytestmark = pytest.mark.process


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    slurm.answer("scontrol", "echo ClusterName = here")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "here")
    toy(Path(), goal=10**6, segment_minutes=0.001)
    return slurm


@pytest.fixture
def spec(tmp_path: Path, slurm: Slurm) -> JobSpec:
    return chain_spec(tmp_path)


@contextmanager
def owned(**values: object) -> Iterator[None]:
    """A process on a machine that is out of sight owns the run."""
    folder = RunFolder("demo").lease
    with take(folder, 2, 0.0) as held:
        path = claim_path(folder, held.claim.token)
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere", **values}))
        yield


@pytest.mark.parametrize(
    ("values", "job"),
    [
        ({"slurm_job": "30", "slurm_cluster": ""}, "30"),
        ({"slurm_job": "30_7", "slurm_cluster": "here"}, "30"),  # all tasks of its array may work on the run
        ({"slurm_job": "30", "slurm_cluster": "elsewhere"}, ""),  # the number means another job here
        ({"slurm_job": "", "slurm_cluster": ""}, ""),
    ],
)
def test_the_tasks_of_a_run_wait_for_a_job_of_this_slurm_alone(
    spec: JobSpec, slurm: Slurm, values: dict[str, object], job: str
) -> None:
    slurm.answer("squeue", "echo 'ada|node1|30|RUNNING|None|0|0|Unknown||/'")
    with owned(user="ada", **values):
        found = OtherOwner().find(spec, None)

    assert found is not None
    assert (found.job_id, found.line.partition(",")[0]) == (job, "ada works on this run")


def test_a_job_of_this_user_is_in_the_queue_unless_another_job_has_met_it(spec: JobSpec) -> None:
    owner = OtherOwner()
    with owned(slurm_job="", slurm_cluster=""):
        before = owner.find(spec, None)
        owner.was_met = True
        met = owner.find(spec, None)

    assert before is None
    assert met is not None and met.job_id == ""
    assert owner.find(spec, None) is None  # it has given the run back


@pytest.mark.parametrize(("state", "is_waited_for"), [("RUNNING", True), ("PENDING", True), ("COMPLETED", False)])
def test_another_user_s_array_of_this_folder_is_waited_for_while_it_is_in_the_queue(
    spec: JobSpec, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, state: str, is_waited_for: bool
) -> None:
    submission = submissions.take("demo", None)
    assert submission is not None
    submission.fill("30")
    slurm.shows("30_2", state, user="ada")
    mine = OtherOwner().find(spec, submissions.newest("demo"))
    monkeypatch.setattr(os, "getuid", lambda: 4711)

    found = OtherOwner().find(spec, submissions.newest("demo"))

    assert mine is None
    assert (found and (found.job_id, found.line)) == (("30", "ada's job 30 is out for it") if is_waited_for else None)
