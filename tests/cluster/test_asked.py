"""What Slurm says of jobs, as unbroken understands it, on a real cluster."""

import sys
import time
from pathlib import Path

import pytest
from cluster.lab import Cluster

from unbroken.slurm.client import own_cluster
from unbroken.slurm.job import EndState, ListedJob
from unbroken.slurm.queue import end_of, ended, job_by_controller, my_jobs
from unbroken.slurm.this_job import clock_ahead_seconds


@pytest.fixture(autouse=True)
def _in_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)


def over(cluster: Cluster, job: str, started: float) -> tuple[EndState, bool]:
    """Return how the job ended, once Slurm says so, and if that is certain."""
    found = cluster.wait_until(lambda: ended(job, started))
    assert isinstance(found, ListedJob)
    return found.ending, found.is_certainly_over


@pytest.mark.parametrize(
    ("script", "ending"),
    [("sleep 1", EndState.COMPLETED), ("sleep 1; exit 3", EndState.FAILED)],
    ids=["completed", "failed"],
)
def test_the_end_of_a_job_has_slurms_own_name(cluster: Cluster, script: str, ending: EndState) -> None:
    job = cluster.sbatch(script)
    cluster.wait_until(lambda: cluster.state(job) != "PENDING")

    assert over(cluster, job, time.time()) == (ending, True)


def test_a_cancelled_job_is_known_as_such(cluster: Cluster) -> None:
    job = cluster.sbatch("sleep 60")
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")
    started = time.time()
    lives = ended(job, started)

    cluster.run("scancel", job)
    found = over(cluster, job, started)

    assert lives is None
    assert found == (EndState.CANCELLED, True)


def test_a_job_whose_node_did_not_boot_is_known_as_such_and_may_still_run(cluster: Cluster) -> None:
    job = cluster.sbatch("sleep 60", "--no-requeue")
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")
    started = time.time()

    cluster.fail_boot(job)

    assert over(cluster, job, started) == (EndState.BOOT_FAIL, False)


def test_an_earlier_start_of_a_requeued_job_has_ended_although_the_job_lives(cluster: Cluster) -> None:
    job = cluster.sbatch("sleep 60")
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")
    first_start = time.time()

    cluster.run("scontrol", "requeue", job)
    # The controller tells accounting a little later; until then nobody swears that nothing of it runs.
    words = ("--duplicates", "--allocations", "--noheader", "--format=State", "--jobs", job)
    cluster.wait_until(lambda: "REQUEUED" in cluster.run("sacct", *words))
    found = over(cluster, job, first_start)
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")

    assert found == (EndState.REQUEUED, True)
    assert ended(job, time.time()) is None


def test_without_accounting_a_requeued_start_is_over_but_nobody_swears_that_nothing_of_it_runs(
    cluster: Cluster,
) -> None:
    job = cluster.sbatch("sleep 60")
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")
    first_start = time.time()
    cluster.stop_accounting()

    cluster.run("scontrol", "requeue", job)
    found = over(cluster, job, first_start)

    assert found == (EndState.REQUEUED, False)


def test_nobody_knows_a_job_that_never_was(cluster: Cluster) -> None:
    assert ended("999999", time.time()) is None


def test_a_time_format_of_the_users_own_confuses_nobody(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    job = cluster.sbatch("sleep 60", "--time=2")
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")

    assert end_of(job) == pytest.approx(time.time() + 120, abs=10)


def test_of_a_heterogeneous_job_the_component_that_ends_first_decides(cluster: Cluster) -> None:
    words = ["sbatch", "--parsable", "--output=/dev/null", "--time=4", ":", "--time=2", "--wrap", "sleep 60"]
    job = cluster.run(*words).strip()
    cluster.wait_until(lambda: "RUNNING" in cluster.state(job))

    assert end_of(job) == pytest.approx(time.time() + 120, abs=10)


# Says what a task of an array believes of itself, once it is asked.
ASKED = """\
until [ -e go ]; do sleep 0.2; done
{python} -c '
from unbroken.slurm.this_job import job_around_us
job = job_around_us()
print(job.job_id, job.number, job.end_unix)' >said.$SLURM_ARRAY_TASK_ID
mv said.$SLURM_ARRAY_TASK_ID told.$SLURM_ARRAY_TASK_ID
sleep 60
"""


def test_a_task_of_an_array_asks_for_itself_alone(cluster: Cluster, tmp_path: Path) -> None:
    """Also the one that has the number of the whole array."""
    array = cluster.sbatch(ASKED.format(python=sys.executable), "--array=1-2", "--time=4", cwd=tmp_path)
    cluster.wait_until(lambda: len(cluster.jobs("running")) == 2)
    started = time.time()
    cluster.run("scontrol", "update", f"JobId={array}_1", "TimeLimit=2")
    (tmp_path / "go").touch()
    cluster.wait_until(lambda: len(list(tmp_path.glob("told.*"))) == 2)
    said = [(tmp_path / f"told.{task}").read_text().split() for task in (1, 2)]
    cluster.run("scancel", f"{array}_1")

    assert [name for name, _, _ in said] == [f"{array}_1", f"{array}_2"]
    assert array in {number for _, number, _ in said}
    assert float(said[1][2]) - float(said[0][2]) == pytest.approx(120, abs=30)
    assert over(cluster, f"{array}_1", started)[0] is EndState.CANCELLED
    assert ended(f"{array}_2", started) is None


def test_the_times_of_all_that_waits_come_with_the_queue(cluster: Cluster) -> None:
    held = cluster.sbatch("sleep 60", "--hold")
    later = cluster.sbatch("sleep 60", "--begin=now+1hour")
    cluster.wait_until(lambda: cluster.state(later) == "PENDING")

    found = {job.job_id: job for job in my_jobs() or [] if job.is_waiting}

    assert {held, later} <= set(found)
    assert found[held].is_stuck and found[held].submit_unix == pytest.approx(time.time(), abs=60)
    for number in (held, later):
        asked = job_by_controller(number)
        assert asked is not None and found[number].submit_unix == asked.submit_unix
    cluster.run("scancel", held, later)


def test_slurms_own_time_is_asked_for_and_on_this_machine_is_ours(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")

    assert clock_ahead_seconds() == pytest.approx(0, abs=30)


def test_a_job_is_asked_for_on_its_own_cluster_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster.sbatch("true")
    cluster.wait_until(lambda: cluster.state(job) == "COMPLETED")
    name = own_cluster()

    assert name != ""
    found = ended(job, time.time(), name)
    assert found is not None and found.ending is EndState.COMPLETED
    assert ended(job, time.time(), f"not-{name}") is None
