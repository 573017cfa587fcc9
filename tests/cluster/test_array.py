"""The chain of a run as one job array, attached and detached, on a real cluster."""

import itertools
import json
import os
import pwd
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.both_ways import BOTH_WAYS, Chain, assert_done_once, steps, until
from cluster.both_ways import arrays as arrays_of
from cluster.detached import detached, slurm_logs, submit, wait_for_jobs
from cluster.lab import Cluster, LabError
from cluster.lab_limits import configured, controller_killed, count_jobs_from
from support import gmx_systems
from support.needs import skip_or_fail
from support.workdir import WorkDir, one_step_segments

from unbroken.job import submissions
from unbroken.store.history import Attempt, EndKind


def gaps(history: list[Attempt]) -> list[float]:
    """Return the seconds from the end of one attempt to the start of the next."""
    return [
        after.times.job_started - before.times.ended
        for before, after in itertools.pairwise(history)
        if after.times.job_started and before.times.ended
    ]


def arrays(history: list[Attempt]) -> set[str]:
    return {attempt.slurm_job.partition("_")[0] for attempt in history}


def test_attached_a_run_is_one_array_whose_tasks_hand_over(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(5, goal=5)})

    done = slurm_work.start("--executor", "unbroken").wait(120)

    history = slurm_work.history("a")
    print(done.text, slurm_logs(slurm_work), gaps(history))
    assert done.code == 0, done.text
    assert [record.kind for record in slurm_work.records("a")] == [EndKind.PAUSED] * 4 + [EndKind.FINISHED]
    assert len(arrays(history)) == 1
    assert cluster.jobs("pending,running") == []


def test_detached_a_run_is_one_array_whose_tasks_hand_over(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(5, goal=5)})

    said = submit(detached(slurm_work))
    wait_for_jobs(cluster)

    history = slurm_work.history("a")
    print(said, slurm_logs(slurm_work), gaps(history))
    assert [record.kind for record in slurm_work.records("a")] == [EndKind.PAUSED] * 4 + [EndKind.FINISHED]
    assert len(arrays(history)) == 1


@pytest.mark.slow
@pytest.mark.needs("gromacs")
@BOTH_WAYS
def test_a_run_that_grompp_prepares_first_is_one_array(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    system = gmx_systems.dipeptide() / "system"
    settings = {"mdp": str(gmx_systems.dipeptide_mdp(400)), "fixed_rlist_nm": 1.0, "exact": True}
    settings |= {"structure": str(system / "conf.gro"), "topology": str(system / "topol.top")}
    slurm_work.configure({"a": {"engine": "gromacs", "segments": 2, "segment_minutes": 4, "settings": settings}})

    said = submit(slurm_work if is_attached else detached(slurm_work))
    wait_for_jobs(cluster)

    assert "unbroken: a: submitted array of 4 tasks" in said
    assert [record.kind for record in slurm_work.records("a")][:1] == [EndKind.FINISHED], slurm_logs(slurm_work)
    assert (slurm_work.places("a").final / "md.xtc").stat().st_size > 0


@pytest.mark.slow
@BOTH_WAYS
def test_a_requeued_task_comes_back_after_later_ones_and_nothing_is_done_twice(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(5)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)
    requeued = chain.working()

    cluster.run("scontrol", "requeue", requeued)
    cluster.wait_until(lambda: set(cluster.jobs("running")) - {requeued})
    chain.let("all")
    said = chain.end()

    history = assert_done_once(slurm_work, 5)
    assert len(arrays_of(history)) == 1, said
    assert cluster.restarts(requeued) == 1


@pytest.mark.slow
@BOTH_WAYS
def test_a_task_that_is_over_and_requeued_while_a_later_one_works_does_what_comes_next(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(5)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.start()
    chain.reaches(1)
    first = chain.working()
    chain.let(1)
    chain.let(2)
    chain.reaches(3)

    cluster.run("scontrol", "requeue", first)
    cluster.wait_until(lambda: first in cluster.jobs("pending"))
    chain.let("all")
    said = chain.end()

    history = assert_done_once(slurm_work, 5)
    assert len(arrays_of(history)) == 1, said


# The answer of Slurm's sbatch, and what it waits for before or after it is asked.
SLOW_SBATCH = """\
#!/bin/sh
wait_for_sign() {{
    echo $$ > {folder}/waits
    while [ ! -e {folder}/may ]; do sleep 0.1; done
}}
[ {moment} = before ] && wait_for_sign
answer=$({real} "$@") || exit 1
[ {moment} = between ] && wait_for_sign
printf '%s\\n' "$answer"
"""


def with_slow_sbatch(work: WorkDir, cluster: Cluster, moment: str) -> Path:
    """Let drivers meet an sbatch that waits; return the folder of its signs."""
    real = shutil.which("sbatch", path=cluster.environment["PATH"])
    path = work.write("slow/sbatch", SLOW_SBATCH.format(real=real, folder=work.root / "slow", moment=moment))
    path.chmod(0o755)
    return path.parent


def killed_in_mid_submission(chain: Chain, moment: str) -> Path:
    """Kill a driver over its submission; sbatch, or what it waits for, lives on."""
    folder = with_slow_sbatch(chain.work, chain.cluster, moment)
    path = f"PATH={folder}:{chain.work.environment()['PATH']}"
    driver = chain.work.start(before=["env", path])
    until(lambda: (folder / "waits").exists())
    driver.kill()
    return folder


def let_time_pass(work: WorkDir) -> None:
    """Let the submission that was begun be one of minutes ago."""
    (note,) = (work.root / ".snakemake/unbroken/chains/a").glob("[0-9]*.json")
    before = time.time() - submissions.UNANSWERED_SECONDS - 1
    os.utime(note, (before, before))


@pytest.mark.slow
@BOTH_WAYS
def test_a_driver_killed_before_sbatch_was_asked_costs_a_wait(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(3)})
    chain = Chain(slurm_work, cluster, is_attached)
    folder = killed_in_mid_submission(chain, "before")
    os.kill(int((folder / "waits").read_text()), signal.SIGKILL)
    chain.let("all")

    let_time_pass(slurm_work)
    chain.start()
    chain.end()

    history = assert_done_once(slurm_work, 3)
    assert len(arrays_of(history)) == 1
    assert cluster.starts(slurm_work.root) == 3


@pytest.mark.slow
@BOTH_WAYS
def test_an_sbatch_that_outlives_its_driver_and_comes_late_makes_no_second_writer(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(4)})
    chain = Chain(slurm_work, cluster, is_attached)
    folder = killed_in_mid_submission(chain, "before")

    let_time_pass(slurm_work)
    chain.start()
    chain.reaches(1)
    before = set(cluster.jobs())
    (folder / "may").touch()
    cluster.wait_until(lambda: set(cluster.jobs()) - before)
    chain.let("all")
    chain.end()

    assert_done_once(slurm_work, 4)
    assert cluster.jobs() == []


@pytest.mark.slow
@BOTH_WAYS
def test_a_driver_killed_before_it_noted_the_number_leaves_an_array_that_the_next_one_finds(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(4)})
    chain = Chain(slurm_work, cluster, is_attached)
    folder = killed_in_mid_submission(chain, "between")
    os.kill(int((folder / "waits").read_text()), signal.SIGKILL)
    chain.reaches(1)

    let_time_pass(slurm_work)
    chain.start()
    until(lambda: "taken over" in chain.said)
    chain.let("all")
    chain.end()

    history = assert_done_once(slurm_work, 4)
    assert len(arrays_of(history)) == 1
    assert cluster.starts(slurm_work.root) == 4


@pytest.mark.slow
@BOTH_WAYS
def test_a_driver_killed_after_its_submission_changes_nothing(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(4)})
    chain = Chain(slurm_work, cluster, is_attached)
    driver = slurm_work.start()
    until(lambda: "submitted array of" in driver.text)
    driver.kill()
    chain.let(1)
    chain.reaches(2)

    chain.start()
    until(lambda: "taken over" in chain.said)
    chain.let("all")
    chain.end()

    history = assert_done_once(slurm_work, 4)
    assert len(arrays_of(history)) == 1
    assert cluster.starts(slurm_work.root) == 4


@pytest.mark.slow
@BOTH_WAYS
def test_two_drivers_at_once_submit_one_array(slurm_work: WorkDir, cluster: Cluster, is_attached: bool) -> None:
    slurm_work.configure({"a": steps(4)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.let("all")
    chain.drivers += [slurm_work.start(), slurm_work.start()]
    said = chain.end()

    history = assert_done_once(slurm_work, 4)
    assert len(arrays_of(history)) == 1
    assert said.count("a: submitted array of") == 1, said
    assert cluster.starts(slurm_work.root) == 4


@pytest.mark.slow
@BOTH_WAYS
def test_a_controller_killed_while_a_task_works_costs_nothing(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """The task ends while nobody answers."""
    slurm_work.configure({"a": steps(4)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.start()
    chain.reaches(1)
    time.sleep(6)  # the controller saves its jobs within five seconds

    with controller_killed(cluster):
        chain.let("all")
        until(lambda: slurm_work.records("a"))
    chain.end()

    history = assert_done_once(slurm_work, 4)
    assert len(arrays_of(history)) == 1
    assert cluster.starts(slurm_work.root) == 4


@pytest.mark.slow
@BOTH_WAYS
def test_numbers_of_jobs_that_are_given_again_confuse_nobody(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """The controller has lost its state: the next array gets the number of the one before."""
    slurm_work.configure({"a": steps(5)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)
    array = chain.working().partition("_")[0]
    for driver in chain.drivers:
        driver.kill()
    chain.drivers.clear()

    count_jobs_from(cluster, int(array))
    chain.let("all")
    chain.start()
    said = chain.end()

    history = assert_done_once(slurm_work, 5)
    assert arrays_of(history) == [array], said
    assert cluster.starts(slurm_work.root) == 4


@pytest.mark.slow
@BOTH_WAYS
def test_without_accounting_a_killed_task_costs_a_task(
    silent_work: WorkDir, silent_cluster: Cluster, is_attached: bool
) -> None:
    silent_work.configure({"a": steps(4)})
    chain = Chain(silent_work, silent_cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)

    os.kill(silent_work.holder("a"), signal.SIGKILL)
    chain.let("all")
    said = chain.end()

    history = assert_done_once(silent_work, 4)
    assert [attempt.segment for attempt in history] == [1, 2, 2, 3, 4], said
    assert len(arrays_of(history)) == 1


@pytest.mark.slow
@BOTH_WAYS
def test_where_the_site_hides_other_users_jobs_the_next_driver_finds_the_array(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(3)})
    chain = Chain(slurm_work, cluster, is_attached)
    with configured(cluster, PrivateData="jobs"):
        chain.start()
        chain.reaches(1)
        chain.restart()
        until(lambda: "taken over" in chain.said)
        chain.let("all")
        chain.end()

    history = assert_done_once(slurm_work, 3)
    assert len(arrays_of(history)) == 1


# Not nobody, whom Slurm 25.11 and later take for one that has no account anywhere.
OTHER = pwd.getpwuid(2).pw_name


@pytest.fixture
def other_user(cluster: Cluster) -> Iterator[str]:
    if os.geteuid() != 0:
        skip_or_fail("missing: root, who may submit a job for another user")
    with suppress(LabError):  # it has the account already
        add = ("sacctmgr", "--immediate", "--quiet", "add", "user", OTHER)
        cluster.run(*add, "Account=science", "DefaultAccount=science")
    yield OTHER
    cluster.run("scancel", "--user", OTHER)
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"))


@pytest.mark.slow
@BOTH_WAYS
def test_another_user_s_array_in_the_same_folder_is_waited_for(
    slurm_work: WorkDir, cluster: Cluster, other_user: str, is_attached: bool
) -> None:
    slurm_work.configure({"a": steps(3)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.let("all")
    words = (f"--uid={other_user}", "--partition=short", "--output=/dev/null", "--comment=unbroken chain a")
    number = cluster.array("[ $SLURM_ARRAY_TASK_ID = 1 ] || exec sleep 300", 3, *words, cwd=slurm_work.root)
    cluster.wait_until(lambda: cluster.tasks(number).get(2) == "RUNNING")
    note = slurm_work.write(".snakemake/unbroken/chains/a/1.json", json.dumps({"job": number, "words": []}))
    os.chown(note, pwd.getpwnam(other_user).pw_uid, -1)

    driver = slurm_work.start()
    until(lambda: f"behind job {number}: {other_user}'s job {number} is out for it" in driver.text)
    working = cluster.jobs("running")
    cluster.run("scancel", number)
    chain.drivers.append(driver)
    chain.end()

    assert working == [f"{number}_2"]
    assert_done_once(slurm_work, 3)
