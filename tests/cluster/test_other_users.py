"""Several users in one folder: a run's tasks wait in the queue for another user's job, and nobody waits on a node."""

import json
import os
import pwd
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from cluster.detached import PATIENCE_SECONDS, closed, detached, slurm_logs, submit, wait_for_jobs
from cluster.endings import arrays, submitted
from cluster.lab import Cluster, LabError
from support.needs import skip_or_fail
from support.workdir import WorkDir, one_step_segments, until

from unbroken.slurm.queue import ended, ended_job, job_of_anyone
from unbroken.store import lease
from unbroken.store.claim import Claim, HolderWatch, claim_path
from unbroken.store.history import EndKind

# Not nobody, whom Slurm 25.11 and later take for one that has no account anywhere.
OTHER = pwd.getpwuid(2).pw_name
# From root nothing is hidden, so a third user asks.
THIRD = 1
DRIVEN = ("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "2")


@pytest.fixture
def work(slurm_work: WorkDir) -> WorkDir:
    slurm_work.configure({"a": one_step_segments(segments=3, goal=3)})
    return slurm_work


@dataclass
class OtherJob:
    """A job of another user."""

    cluster: Cluster
    number: str

    @property
    def is_there(self) -> bool:
        return self.number in self.cluster.jobs()

    def others(self) -> list[str]:
        """All jobs that wait or run but this one."""
        return [number for number in self.cluster.jobs() if number != self.number]


@pytest.fixture
def other(cluster: Cluster) -> Iterator[OtherJob]:
    if os.geteuid() != 0:
        skip_or_fail("missing: root, who may submit a job for another user")
    add = ("sacctmgr", "--immediate", "--quiet", "add")
    with suppress(LabError):  # it has the account already
        cluster.run(*add, "user", OTHER, "Account=science", "DefaultAccount=science")
    words = (f"--uid={OTHER}", "--partition=short", "--chdir=/", "--output=/dev/null", "--wrap=sleep 3000")
    number = cluster.run("sbatch", "--parsable", *words).strip()
    cluster.wait_until(lambda: number in cluster.jobs("running"))
    yield OtherJob(cluster, number)
    cluster.run("scancel", "--user", OTHER)
    wait_for_jobs(cluster)


@contextmanager
def working(work: WorkDir, job: OtherJob) -> Iterator[None]:
    """That job holds the run, on a node that is out of sight; its heart beats."""
    places = work.places("a")
    with lease.take(places.lease, 1, 0.0) as held:
        path = claim_path(places.lease, held.claim.token)
        claim = {**json.loads(path.read_text()), "host": "elsewhere", "user": OTHER, "slurm_job": job.number}
        path.write_text(json.dumps(claim))
        yield


@contextmanager
def hidden_jobs(cluster: Cluster) -> Iterator[None]:
    """The site shows everybody their own jobs alone."""
    file = cluster.folder / "slurm.conf"
    text = file.read_text()
    file.write_text(f"{text}PrivateData=jobs\n")
    cluster.run("scontrol", "reconfigure")
    try:
        yield
    finally:
        file.write_text(text)
        cluster.run("scontrol", "reconfigure")


def asked_by_third(cluster: Cluster, question: Callable[[], list[object]]) -> object:
    """The answer of a process of a third user.  A fork: that user may not even read this Python."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer: object = "no answer"
        try:
            os.environ.update(cluster.environment)
            question()  # while what it loads may be read
            os.setgroups([])
            os.setresgid(THIRD, THIRD, THIRD)
            os.setresuid(THIRD, THIRD, THIRD)
            answer = question()
        except Exception as error:  # noqa: BLE001  (told to the test)
            answer = repr(error)
        finally:
            os.write(writing, json.dumps(answer, default=str).encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def finished(work: WorkDir) -> None:
    assert [record.segment for record in work.records("a")] == [1, 2, 3]
    assert [attempt.kind for attempt in work.history("a")] == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]


def waits_for(cluster: Cluster, array: str) -> set[str]:
    """Return what the waiting tasks of an array wait for."""
    words = ("squeue", "--noheader", "--array", "--states=pending", "--format=%E", "--jobs", array)
    return set(cluster.run(*words).split())


@pytest.mark.slow
def test_a_job_that_finds_the_run_held_leaves_its_node_and_no_retry_is_used(
    work: WorkDir, cluster: Cluster, other: OtherJob
) -> None:
    with closed(cluster):
        driver = work.start(*DRIVEN, "--retries", "0")
        cluster.wait_until(other.others)
        (array,) = arrays(other.others())
        holding = working(work, other)
        holding.__enter__()
    cluster.wait_until(lambda: cluster.starts(work.root) == 1)
    cluster.wait_until(lambda: waits_for(cluster, array) == {f"afterany:{other.number}(unfulfilled)"})
    time.sleep(2 * lease.HEARTBEAT_SECONDS)
    starts, nodes_used = cluster.starts(work.root), cluster.jobs("running")
    holding.__exit__(None, None, None)
    cluster.run("scancel", other.number)
    done = driver.wait(PATIENCE_SECONDS)

    assert (starts, nodes_used) == (1, [other.number])
    assert done.code == 0, done.text
    assert arrays(attempt.slurm_job for attempt in work.history("a")) == {array}
    finished(work)


@pytest.mark.slow
@pytest.mark.parametrize("is_attached", [True, False], ids=["attached", "detached"])
def test_the_tasks_of_a_run_wait_in_the_queue_for_the_end_of_another_users_job(
    work: WorkDir, cluster: Cluster, other: OtherJob, is_attached: bool
) -> None:
    if not is_attached:
        detached(work)
    with working(work, other):
        driver = work.start(*(DRIVEN if is_attached else ()))
        until(lambda: submitted(driver.text), PATIENCE_SECONDS)
        (array,) = submitted(driver.text)
        waiting = waits_for(cluster, array)
        working_now = cluster.jobs("running")
    cluster.run("scancel", other.number)
    done = driver.wait(PATIENCE_SECONDS)
    wait_for_jobs(cluster)

    assert (waiting, working_now) == ({f"afterany:{other.number}(unfulfilled)"}, [other.number])
    assert done.code == 0, done.text
    assert done.text.count(f"behind job {other.number}: {OTHER} works on this run") == 1
    finished(work)


@pytest.mark.slow
def test_a_driver_waits_for_an_owner_that_is_no_job_of_this_slurm(
    work: WorkDir, cluster: Cluster, other: OtherJob
) -> None:
    """Such as another user's driver on a login node."""
    with working(work, OtherJob(cluster, "")):
        driver = work.start(*DRIVEN)
        until(lambda: f"{OTHER} works on this run" in driver.text, PATIENCE_SECONDS)
        time.sleep(3 * lease.HEARTBEAT_SECONDS)  # it would have been submitted by now
        beside = other.others()
    done = driver.wait(PATIENCE_SECONDS)

    assert beside == []
    assert done.code == 0, done.text
    assert done.text.count("and the segment waits for the end of that") == 1
    finished(work)


@pytest.mark.slow
def test_a_chain_that_finds_the_run_held_waits_behind_that_job(
    work: WorkDir, cluster: Cluster, other: OtherJob
) -> None:
    detached(work)
    with closed(cluster):
        submit(work)
        (array,) = arrays(other.others())
        holding = working(work, other)
        holding.__enter__()
    cluster.wait_until(lambda: cluster.starts(work.root) == 1)
    cluster.wait_until(lambda: waits_for(cluster, array) == {f"afterany:{other.number}(unfulfilled)"})
    holding.__exit__(None, None, None)
    cluster.run("scancel", other.number)
    wait_for_jobs(cluster)

    assert f"the waiting tasks wait for the end of Slurm job {other.number}" in slurm_logs(work)
    finished(work)


@pytest.mark.slow
def test_another_users_job_that_waits_in_the_queue_is_not_doubled(
    work: WorkDir, cluster: Cluster, other: OtherJob
) -> None:
    """The note on its submission says whose it is."""
    with closed(cluster):
        words = (f"--uid={OTHER}", "--partition=short", f"--chdir={work.root}", "--output=/dev/null", "--wrap=true")
        number = cluster.run("sbatch", "--parsable", *words).strip()
        note = work.write(".snakemake/unbroken/chains/a/1.json", json.dumps({"job": number}))
        os.chown(note, pwd.getpwnam(OTHER).pw_uid, -1)
        driver = work.start(*DRIVEN)
        until(lambda: f"{OTHER}'s job {number} is out for it" in driver.text, PATIENCE_SECONDS)
        (array,) = submitted(driver.text)
        waiting = waits_for(cluster, array)
        cluster.run("scancel", number)
    done = driver.wait(PATIENCE_SECONDS)

    assert waiting == {f"afterany:{number}(unfulfilled)"}
    assert done.code == 0, done.text
    finished(work)


@pytest.mark.slow
def test_a_job_that_the_site_hides_is_not_taken_for_one_that_has_ended(
    work: WorkDir, cluster: Cluster, other: OtherJob
) -> None:
    """Under PrivateData=jobs Slurm says of another user's job what it says of one that never was."""
    places = work.places("a")

    def question() -> list[object]:
        job, now = other.number, time.time()
        return [str(job_of_anyone(job)), str(ended(job, now)), str(ended_job(job)), why_free()]

    def why_free() -> str:
        return HolderWatch(1.0).why_free(path, claim)

    with working(work, other):
        (path,) = places.lease.glob("*.json")
        claim = Claim(**json.loads(path.read_text()))
        shown = asked_by_third(cluster, question)
        with hidden_jobs(cluster):
            hidden = asked_by_third(cluster, question)

    assert isinstance(shown, list) and shown[0].startswith(f"ListedJob(job_id='{other.number}', state='RUNNING'"), shown
    assert shown[1:] == ["None", "None", ""]
    assert hidden == ["None", "None", "None", ""]
