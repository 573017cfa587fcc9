"""`unbroken run --detached`: chains of detached jobs, on a real cluster."""

import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster.detached import IS_FULL, PATIENCE_SECONDS, attached, closed, detached, slurm_logs, submit, wait_for_jobs
from cluster.endings import arrays, submitted, wait_until_it_hears
from cluster.lab import Cluster
from support.pages import facts_in
from support.workdir import ROOT, WorkDir, one_long_segment, one_step_segments, overlaps, uninterrupted, until

from unbroken.store.history import EndKind


@pytest.fixture
def work(slurm_work: WorkDir) -> WorkDir:
    return detached(slurm_work)


def holder(work: WorkDir, run: str) -> int:
    """The process of the segment at work; 0 if there is none."""
    try:
        pid = work.holder(run)
        os.kill(pid, 0)
    except (OSError, IndexError, ValueError):
        return 0
    return pid


def counted(goal: int, **more: object) -> dict[str, object]:
    """A run that counts some 100 steps in each of its short segments and saves every 20."""
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 20}
    return {"engine": "toy", "segments": 20, "segment_minutes": 0.05, "settings": settings, **more}


def test_a_campaign_reaches_its_goals_and_its_report_without_a_driver(
    work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work.configure({"a": counted(250), "b": counted(200)})
    work.added_environment["UNBROKEN_REPORT"] = "on"

    with closed(cluster):
        submit(work, "--unbroken-ahead", "2")
        assert len(cluster.jobs()) == 4
    wait_for_jobs(cluster)

    for run, goal in (("a", 250), ("b", 200)):
        assert list(overlaps(work.history(run))) == []
        assert {attempt.kind for attempt in work.history(run)} <= {EndKind.PAUSED, EndKind.FINISHED}
        assert work.final(run) == uninterrupted(tmp_path / run, goal)
    told = facts_in(work.root / "results/report.html")
    assert [(run["name"], run["state"]) for run in told["runs"]] == [("a", "finished"), ("b", "finished")]
    assert told["promise"]["seconds"] == 0  # nobody will write another one
    assert "all runs are over: results/report.html" in slurm_logs(work)
    assert attached(work).plan() == 0


# What jobs of a run ask for by other words than their segment's: as the controller shows it.
ASKED = (
    *("JobName", "UserId", "Nice", "Account", "QOS", "Requeue", "TimeLimit", "TimeMin", "Partition", "ReqNodeList"),
    *("ExcNodeList", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "TRES", "ReqTRES", "MinMemoryNode", "Features"),
    *("Command", "OverSubscribe", "Contiguous", "Licenses", "Network", "WorkDir", "StdIn", "BatchFlag", "Power"),
    "Deadline",
)
# What Slurm 22.05 does not show, and 26.05.
OF_RELEASES = ({"ReqTRES"}, {"TRES", "Power"})


def asked(cluster: Cluster, job: str) -> dict[str, str]:
    """What a job asks for, as the controller shows it."""
    shown = cluster.run("scontrol", "--oneliner", "show", "job", job).split()
    fields = dict(word.split("=", 1) for word in shown if "=" in word)
    missing = {*ASKED} - {*fields}
    assert missing in OF_RELEASES
    return {key: fields[key] for key in ASKED if key not in missing}


# One step a job, however short: so that the job has minutes, and comes back on no machine because they are over.
ONE_STEP = """\
import os, pathlib
save, resume = pathlib.Path(os.environ["UNBROKEN_SAVE"]), os.environ.get("UNBROKEN_RESUME")
done = 1 + (int((pathlib.Path(resume) / "state").read_text()) if resume else 0)
(save / "state").write_text(str(done))
(save / "progress.json").write_text(f'{{"done": {done}, "goal": 5, "unit": "steps"}}')
raise SystemExit(0 if done == 5 else 85)
"""


def test_jobs_beyond_those_ahead_are_submitted_by_jobs_without_a_snakemake(work: WorkDir, cluster: Cluster) -> None:
    """And ask for what the driver has asked for, whose own command is broken by now."""
    work.write("steps.py", ONE_STEP)
    run = {"engine": "torch", "segments": 5, "segment_minutes": 9, "settings": {"script": "steps.py", "goal": 5}}
    asking = {"threads": 2, "mem_mb": 300, "constraint": "plain", "slurm_extra": ["--nice=7"]}
    work.configure({"a": run | asking})
    work.snakefile = work.write("Snakefile", work.snakefile.read_text().replace('"workflow/', f'"{ROOT}/workflow/'))

    with closed(cluster):
        submit(work, "--unbroken-ahead", "2")
        first = cluster.jobs()
        work.write("Snakefile", "rule a:\n    input: (\n")
    wait_for_jobs(cluster)

    history = work.history("a")
    jobs = [attempt.slurm_job for attempt in history]
    assert [attempt.kind for attempt in history] == [EndKind.PAUSED] * 4 + [EndKind.FINISHED]
    assert (sorted(first), len(set(jobs))) == (sorted(jobs[:2]), 5)
    assert "all runs are over\n" in slurm_logs(work)  # and no page, which no test writes without asking for it
    assert asked(cluster, jobs[0])["Nice"] == "7"
    assert [asked(cluster, job) for job in jobs[1:]] == [asked(cluster, jobs[0])] * 4
    assert (work.root / f"logs/a/slurm-{jobs[4]}.log").exists()
    work.write("Snakefile", (ROOT / "Snakefile").read_text().replace('"workflow/', f'"{ROOT}/workflow/'))
    assert work.plan() == 0
    assert work.snakemake().code == 0
    assert "Missing metadata" not in work.snakemake("--report", "report.html").text


def test_a_run_that_ends_early_cancels_its_waiting_tasks(work: WorkDir, cluster: Cluster) -> None:
    work.configure({"a": one_step_segments(10, goal=3)})

    with closed(cluster):
        submit(work, "--unbroken-ahead", "10")
        assert len(cluster.jobs()) == 10
    wait_for_jobs(cluster)

    assert [attempt.kind for attempt in work.history("a")] == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    (array,) = arrays(attempt.slurm_job for attempt in work.history("a"))
    assert cluster.tasks(array) == {1: "COMPLETED", 2: "COMPLETED", 3: "COMPLETED"}, "the others were canceled"
    assert cluster.starts(work.root) == 3


@contextmanager
def allowed(cluster: Cluster, jobs: int) -> Iterator[None]:
    """A site where a user may have so many jobs in the queue."""
    setting = ("sacctmgr", "--immediate", "modify", "user", cluster.plan.user, "set")
    cluster.run(*setting, f"MaxSubmitJobs={jobs}")
    try:
        shown = ("sacctmgr", "-nP", "show", "assoc", "format=MaxSubmitJobs")
        cluster.wait_until(lambda: str(jobs) in cluster.run(*shown))
        yield
    finally:
        cluster.run(*setting, "MaxSubmitJobs=-1")


@pytest.mark.slow
def test_a_site_that_allows_one_job_finishes_one_run_and_says_what_of_the_others(
    work: WorkDir, cluster: Cluster
) -> None:
    with allowed(cluster, 1):
        work.configure({run: one_step_segments(3, goal=3) for run in "ab"})
        text = submit(work)
        wait_for_jobs(cluster)  # it puts itself back into the queue after each segment
        over = [run for run in "ab" if len(work.records(run)) == 3]
        submit(work)
        wait_for_jobs(cluster)

    assert "a job of another run submits it later; if none is left, start snakemake again" in text
    assert over
    # On a busy machine a job may have used up its minute before its program is there; the next one does the segment.
    assert [[attempt.kind for attempt in work.history(run) if attempt.kind.settles] for run in "ab"] == [
        [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    ] * 2


@pytest.mark.slow
def test_a_site_that_allows_few_jobs_gets_few_and_the_rest_follows(work: WorkDir, cluster: Cluster) -> None:
    with allowed(cluster, 2):
        work.configure({run: one_step_segments(3, goal=3) for run in "abc"})

        with closed(cluster):
            text = submit(work)
            assert len(cluster.jobs()) == 2
        wait_for_jobs(cluster)

    assert "the queue takes no more jobs now (" in text and "; a job of another run submits it later" in text
    assert [work.history(run)[-1].kind for run in "abc"] == [EndKind.FINISHED] * 3
    assert [len(work.records(run)) for run in "abc"] == [3, 3, 3]


@pytest.mark.slow
def test_scancel_of_the_running_job_stops_its_run_only(work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work.configure({"a": one_long_segment(1000), "b": one_long_segment(700)})
    submit(work)
    until(lambda: work.saved("a") and work.saved("b"), PATIENCE_SECONDS)

    cluster.run("scancel", str(work.claim("a")["slurm_job"]))
    wait_for_jobs(cluster)

    assert len({attempt.slurm_job for attempt in work.history("a")}) == 1
    assert "a: the run stops: Slurm job " in slurm_logs(work)
    assert "was canceled; to go on, start snakemake again" in slurm_logs(work)
    assert work.final("b") == uninterrupted(tmp_path / "b", 700)


@pytest.mark.slow
def test_scancel_of_a_run_s_only_job_stops_it(work: WorkDir, cluster: Cluster) -> None:
    work.configure({"a": one_long_segment(3000, segments=1)})
    submit(work, "--unbroken-ahead", "1")
    until(lambda: work.saved("a"), PATIENCE_SECONDS)
    wait_until_it_hears(work)
    job = str(work.claim("a")["slurm_job"])

    cluster.run("scancel", job)
    wait_for_jobs(cluster)

    assert {attempt.slurm_job for attempt in work.history("a")} == {job}
    assert f"a: the run stops: Slurm job {job} was canceled; to go on, start snakemake again" in slurm_logs(work)


@pytest.mark.slow
def test_scancel_of_a_run_s_only_job_stops_it_also_where_there_is_no_accounting(
    silent_work: WorkDir, silent_cluster: Cluster
) -> None:
    test_scancel_of_a_run_s_only_job_stops_it(detached(silent_work), silent_cluster)


@pytest.mark.slow
def test_a_killed_segment_is_done_by_the_next_task(work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 600
    work.configure({"a": one_long_segment(goal)})
    submit(work)
    until(lambda: work.saved("a"), PATIENCE_SECONDS)

    os.kill(work.holder("a"), signal.SIGKILL)
    wait_for_jobs(cluster)

    history = work.history("a")
    assert [(attempt.segment, attempt.kind) for attempt in history] == [(1, EndKind.DIED), (1, EndKind.FINISHED)]
    assert history[0].slurm_job != history[1].slurm_job
    assert work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_lost_node_is_left_to_slurm(work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 600
    work.configure({"a": one_long_segment(goal)})
    submit(work)
    until(lambda: work.saved("a"), PATIENCE_SECONDS)

    cluster.kill_slurmd(work.claim("a")["slurm_node"])
    os.kill(work.holder("a"), signal.SIGKILL)
    wait_for_jobs(cluster)

    assert work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_run_that_crashes_stops_by_itself(work: WorkDir, cluster: Cluster) -> None:
    work.configure({"a": one_step_segments(9, goal=9, enter=["false"])})

    submit(work)
    wait_for_jobs(cluster)

    history = work.history("a")
    assert {attempt.kind for attempt in history} == {EndKind.FAILED}
    # On two nodes, so it is the program; where Slurm takes the same one again and again, after twice as many.
    assert len({attempt.slurm_node for attempt in history[-2:]}) == 2 or len(history) == 4
    assert f"a: the run stops: {len(history)} attempts without progress on {history[0].slurm_node}" in slurm_logs(work)


@pytest.mark.slow
def test_a_driver_takes_the_waiting_tasks_over(work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 600
    work.configure({"a": counted(goal, segment_minutes=0.15)})
    with closed(cluster):
        submit(work)
        jobs = set(cluster.jobs())

    done = attached(work).start("--executor", "unbroken").wait(PATIENCE_SECONDS)
    wait_for_jobs(cluster)

    assert done.code == 0, done.text
    assert submitted(done.text) == []
    assert {attempt.slurm_job for attempt in work.history("a")} <= jobs
    assert work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_submitting_twice_doubles_nothing(work: WorkDir, cluster: Cluster) -> None:
    work.configure({"a": one_step_segments(4, goal=4)})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    submit(work)
    jobs = cluster.jobs("pending")

    submit(work)

    assert cluster.jobs("pending") == jobs
    cluster.run("scancel", blocker)
    wait_for_jobs(cluster)
    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_an_answer_of_squeue_counts_from_when_it_was_asked(work: WorkDir, cluster: Cluster) -> None:
    """The answer reaches the second driver late; meanwhile the first one has submitted everything."""
    work.configure({"a": one_step_segments(3, goal=3)})
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    late = work.write("late/squeue", LATE_SQUEUE.format(real=shutil.which("squeue"), folder=work.root))
    late.chmod(0o755)
    path = work.environment()["PATH"]

    second = work.start(before=["env", f"PATH={late.parent}:{path}"])
    until(lambda: (work.root / "asked").exists(), PATIENCE_SECONDS)
    first = submit(work)
    (work.root / "go").touch()
    done = second.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert arrays(cluster.jobs("pending")) == set(submitted(first)), "the second driver submitted another array"
    assert submitted(done.text) == []
    assert done.text.count("is in the queue or running already, taken over") == 1, done.text


LATE_SQUEUE = """\
#!/bin/sh
answer=$({real} "$@") || exit 1
touch {folder}/asked
while [ ! -e {folder}/go ]; do sleep 0.1; done
printf '%s\\n' "$answer"
"""


@pytest.mark.slow
def test_a_campaign_with_random_kills_ends_as_if_nothing_had_happened(
    work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    count, kills = (50, 60) if IS_FULL else (6, 10)
    goal = 300
    chance = random.Random(11)
    runs = [f"r{number:02d}" for number in range(count)]
    work.configure({run: counted(goal, attempts_without_progress=20) for run in runs})
    submit(work)

    # Each kill meets a run that has saved something since the last one, so that no run is taken for a broken one.
    saved = dict.fromkeys(runs, 0)

    def advanced() -> list[str]:
        return [run for run in runs if work.saved(run) > saved[run] and holder(work, run)]

    killed = 0
    while killed < kills and cluster.wait_until(lambda: advanced() or not cluster.jobs(), PATIENCE_SECONDS):
        if not (found := advanced()):
            break
        time.sleep(chance.uniform(0, 0.3))
        victim = chance.choice(found)
        if pid := holder(work, victim):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        saved[victim] = work.saved(victim)
    wait_for_jobs(cluster)

    left = [run for run in runs if not (work.places(run).final / "summary.json").exists()]
    assert left == [], [work.history(run)[-1] for run in left]
    deaths = [attempt for run in runs for attempt in work.history(run) if attempt.kind is EndKind.DIED]
    assert len(deaths) >= kills / 2  # the others came in the last moment, when the work was done
    for run in runs:
        history = work.history(run)
        assert list(overlaps(history)) == []
        assert all(after.progress_from == before.progress_to for before, after in itertools.pairwise(history))
        assert work.final(run) == uninterrupted(tmp_path / run, goal)
