"""The laboratory itself: it tells the tasks of arrays apart, and what it sets holds."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest
from cluster.accidents import Accidents
from cluster.lab import Cluster, LabError
from cluster.lab_limits import (
    configured,
    controller_killed,
    count_jobs_from,
    default_scheduling,
    ordered_by_age,
    qos,
    room_for_jobs,
    user_limited,
)
from support.workdir import WorkDir

from unbroken.slurm.refusals import SITE_IS_FULL

WAITS = "--begin=now+2"


@pytest.fixture
def array(cluster: Cluster) -> str:
    """An array of six whose second task works."""
    array = cluster.array("[ $SLURM_ARRAY_TASK_ID = 1 ] || exec sleep 300", 6, WAITS)
    cluster.wait_until(lambda: cluster.tasks(array).get(2) == "RUNNING")
    return array


@contextmanager
def refused(*texts: str) -> Iterator[None]:
    """Let Slurm refuse something by one of these texts."""
    with pytest.raises(LabError, match="|".join(map(re.escape, texts))):
        yield


def test_waiting_tasks_are_counted_each(cluster: Cluster, array: str) -> None:
    assert cluster.jobs("pending") == [f"{array}_{task}" for task in (3, 4, 5, 6)]
    assert cluster.jobs("running") == [f"{array}_2"]
    assert cluster.state(f"{array}_4") == "PENDING"
    assert sorted(cluster.state(array).split()) == ["COMPLETED", *["PENDING"] * 4, "RUNNING"]
    assert cluster.tasks(array) == {1: "COMPLETED", 2: "RUNNING", **dict.fromkeys((3, 4, 5, 6), "PENDING")}


def test_a_task_is_changed_and_cancelled_alone(cluster: Cluster, array: str) -> None:
    cluster.run("scontrol", "update", f"JobId={array}_4", "MinMemoryNode=700")
    cluster.run("scancel", f"{array}_5")

    assert [cluster.asked_memory(f"{array}_{task}") for task in (3, 4, 6)] == ["500M", "700M", "500M"]
    assert sorted(cluster.jobs("pending")) == [f"{array}_{task}" for task in (3, 4, 6)]


def test_a_requeued_task_starts_soon_and_the_age_of_the_others_stays(cluster: Cluster, array: str) -> None:
    def ages() -> list[int | None]:
        return [cluster.accrue_time(f"{array}_{task}") for task in (4, 5, 6)]

    before, requeued = ages(), int(time.time())
    cluster.run("scontrol", "requeue", f"{array}_2")
    # By itself it rests two minutes.  It may not age meanwhile: the third task works.
    cluster.wait_until(lambda: requeued <= (cluster.eligible_time(f"{array}_2") or 0) < requeued + 60, 60)
    after = ages()
    cluster.run("scancel", *(f"{array}_{task}" for task in (3, 4, 5, 6)))
    cluster.wait_until(lambda: cluster.tasks(array)[2] == "RUNNING", 60)

    assert None not in before
    assert after == before
    assert cluster.restarts(f"{array}_2") == 1


def test_the_last_task_is_known_by_its_own_name(cluster: Cluster) -> None:
    array = cluster.array("exec sleep 3", 2, WAITS)

    cluster.wait_until(lambda: cluster.tasks(array)[1] == "RUNNING")
    first = cluster.run("squeue", "--noheader", "--states=running", "--format=%A").strip()
    assert first != array
    assert cluster.task_named(first) == f"{array}_1"
    cluster.wait_until(lambda: cluster.tasks(array)[2] == "RUNNING")
    assert cluster.task_named(array) == f"{array}_2"


@pytest.mark.parametrize("kind", ["requeue", "cancel"])
def test_an_accident_meets_the_task_of_its_process_alone(slurm_work: WorkDir, cluster: Cluster, kind: str) -> None:
    """The last task has the number of its array, by which Slurm would requeue those that are over, too."""
    pids = slurm_work.root
    script = f"echo $$ > {pids}/$SLURM_ARRAY_TASK_ID; [ $SLURM_ARRAY_TASK_ID = 2 ] || exec sleep 300"
    array = cluster.array(script, 3, WAITS, cwd=pids)
    cluster.wait_until(lambda: cluster.tasks(array)[1] == "RUNNING")
    cluster.run("scontrol", "requeue", f"{array}_1")
    cluster.wait_until(lambda: cluster.tasks(array)[3] == "RUNNING" and (pids / "3").exists())
    assert cluster.tasks(array) == {1: "PENDING", 2: "COMPLETED", 3: "RUNNING"}

    accidents = Accidents(slurm_work, cluster, Random(1))
    getattr(accidents, f"_{kind}")(int((pids / "3").read_text()))
    cluster.wait_until(lambda: cluster.tasks(array)[1] == "RUNNING", 60)

    assert cluster.tasks(array) == {
        1: "RUNNING",
        2: "COMPLETED",
        3: {"requeue": "PENDING", "cancel": "CANCELLED"}[kind],
    }
    assert cluster.starts(pids) == 4


def test_starts_of_a_folder_are_those_of_its_jobs_alone(cluster: Cluster) -> None:
    here, elsewhere = cluster.folder / "tmp" / "here", cluster.folder / "tmp" / "here_too"
    for folder in (here, elsewhere):
        folder.mkdir(exist_ok=True)
    array = cluster.array("true", 3, WAITS, cwd=here)
    cluster.array("true", 2, WAITS, cwd=elsewhere)

    waiting = cluster.starts(here)
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"))

    assert waiting == 0
    assert cluster.starts(here) == 3
    assert set(cluster.tasks(array).values()) == {"COMPLETED"}


def test_tasks_age_where_the_queue_is_ordered_by_age(cluster: Cluster) -> None:
    with ordered_by_age(cluster):
        before = int(time.time())
        array = cluster.array("exec sleep 300", 3, WAITS)
        assert cluster.accrue_time(f"{array}_3") is None
        cluster.wait_until(lambda: cluster.tasks(array)[1] == "RUNNING")

        age = cluster.accrue_time(f"{array}_3")
        assert age is not None
        assert before <= age <= time.time()
        cluster.cancel_everything()


def test_the_array_size_of_a_site_holds_for_a_while(cluster: Cluster) -> None:
    with configured(cluster, MaxArraySize=4):
        cluster.array("true", 3, "--hold")
        with refused("Invalid job array specification"):
            cluster.array("true", 4, "--hold")
        cluster.cancel_everything()
    cluster.array("true", 4, "--hold")


def test_the_site_has_room_for_as_many_jobs_as_is_set(cluster: Cluster) -> None:
    with room_for_jobs(cluster, 5):
        cluster.array("true", 3, "--hold")
        if cluster.run("sinfo", "--version").split()[1] < "26":  # later, --test-only does not look at it
            with refused(*SITE_IS_FULL):
                cluster.array("true", 3, "--hold", "--test-only")  # else sbatch tries for two minutes
        cluster.array("true", 2, "--hold")
    cluster.array("true", 6, "--hold")


def test_a_user_may_submit_as_many_jobs_as_is_set(cluster: Cluster) -> None:
    with user_limited(cluster, MaxSubmitJobs=4):
        cluster.array("true", 4, "--hold")
        with refused("AssocMaxSubmitJobLimit"):
            cluster.sbatch("true", "--hold")
    cluster.sbatch("true", "--hold")


def test_a_qos_limits_its_own_jobs(cluster: Cluster) -> None:
    with qos(cluster, "few", GrpSubmitJobs=3) as few:
        with refused("QOSGrpSubmitJobsLimit"):
            cluster.array("true", 4, "--hold", f"--qos={few}")
        cluster.array("true", 3, "--hold", f"--qos={few}")
        cluster.array("true", 4, "--hold")
    assert few not in cluster.run("sacctmgr", "--noheader", "show", "qos", "format=Name").split()


def test_an_array_outlives_a_killed_controller(cluster: Cluster, array: str) -> None:
    # The controller saves its jobs some seconds after a change; what it has not saved, a kill costs.
    saved, before = cluster.folder / "state" / "job_state", time.time()

    def is_saved() -> bool:
        with suppress(FileNotFoundError):  # for a moment, while it is replaced
            return bool(saved.stat().st_mtime > before)
        return False

    cluster.run("scontrol", "update", f"jobid={array}_2", "comment=changed")
    cluster.wait_until(is_saved)
    with controller_killed(cluster), pytest.raises(LabError):
        cluster.run("squeue", "--me")

    assert cluster.jobs("pending") == [f"{array}_{task}" for task in (3, 4, 5, 6)]
    assert cluster.state(f"{array}_2") == "RUNNING"


def test_a_number_of_a_job_is_given_again(cluster: Cluster) -> None:
    first = cluster.array("true", 3, "--hold")

    count_jobs_from(cluster, int(first))

    assert cluster.jobs("all") == []
    assert cluster.sbatch("exit 3") == first
    assert cluster.sbatch("true") == str(int(first) + 1)
    cluster.wait_until(lambda: cluster.state(first) == "FAILED")


def test_slurms_own_scheduling_is_to_be_had(cluster: Cluster) -> None:
    with default_scheduling(cluster):
        assert re.search(r"SchedulerParameters += \(null\)", cluster.run("scontrol", "show", "config"))
    assert "bf_interval=1" in cluster.run("scontrol", "show", "config")
