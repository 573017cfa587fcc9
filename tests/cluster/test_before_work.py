"""Jobs that end before their work: how many start until a run stops, and what it says, with a driver and without.

What is broken is broken while the chain is under way: between its first job and its second.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml
from cluster.detached import PATIENCE_SECONDS, detached, slurm_logs, submit, wait_for_jobs, without_slurm_on_nodes
from cluster.endings import arrays
from cluster.lab import Cluster
from support.disks import as_root, mount_small, unmount
from support.workdir import ROOT, WorkDir, until

from unbroken.job.segment_process import PATIENCE
from unbroken.slurm.job import number_of
from unbroken.store.history import EndKind

# Counts one step a job; the first one waits for a sign.
ONE_STEP = """\
import os, pathlib, time
save, resume = pathlib.Path(os.environ["UNBROKEN_SAVE"]), os.environ.get("UNBROKEN_RESUME")
while not resume and not os.path.exists(os.environ["GO_FILE"]):
    time.sleep(0.1)
done = 1 + (int((pathlib.Path(resume) / "state").read_text()) if resume else 0)
(save / "state").write_text(str(done))
(save / "progress.json").write_text(f'{{"done": {done}, "goal": 4, "unit": "steps"}}')
raise SystemExit(0 if done == 4 else 85)
"""


# A driver that asks Slurm soon about jobs that left no record.
DRIVEN = ("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "2")
# A job's Snakemake waits so long for the record before it; a minute is all that the jobs here have.
SOON = ("--latency-wait", "5")


@dataclass(frozen=True)
class Trigger:
    """Something that breaks, how many jobs may start then, and what is said."""

    breaks: Callable[[WorkDir], None]
    starts: int
    says: str
    mend: Callable[[WorkDir], None] = lambda work: None

    @contextmanager
    def broken(self, work: WorkDir) -> Iterator[None]:
        self.breaks(work)
        try:
            yield
        finally:
            self.mend(work)


def edit_config(work: WorkDir, change: Callable[[dict[str, object]], None]) -> None:
    path = work.root / "config/config.yaml"
    config = yaml.safe_load(path.read_text())
    change(config["runs"]["a"])
    path.write_text(yaml.safe_dump(config))


def set_immutable(work: WorkDir, flag: str) -> None:
    words = ("find", str(work.root / "results/a"), "-not", "-type", "l", "-exec", "chattr", flag, "{}", "+")
    done = as_root(*words)
    assert done.returncode == 0, done.stderr


def immutable(work: WorkDir) -> None:
    set_immutable(work, "+i")


def mutable(work: WorkDir) -> None:
    set_immutable(work, "-i")


def fill(work: WorkDir) -> None:
    with (work.root / "results/other").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def bring_back(work: WorkDir) -> None:
    """Bring the folder back; Snakemake has made that of its output again, or removed the empty one around it."""
    assert [path.name for path in (work.root / "results/a").rglob("*")] in ([], ["segments"])
    (work.root / "results").mkdir(exist_ok=True)
    shutil.rmtree(work.root / "results/a", ignore_errors=True)
    (work.root / "elsewhere").rename(work.root / "results/a")


def spoil_checkpoints(work: WorkDir) -> None:
    for state in (work.root / "results/a/checkpoints").glob("*/state"):
        state.write_text("9")


def remove_checkpoints(work: WorkDir) -> None:
    shutil.rmtree(work.root / "results/a/checkpoints")


TRIGGERS = {
    "script edited": Trigger(
        lambda work: work.write("steps.py", ONE_STEP + "\n"), 1, "not the computation that checkpoint"
    ),
    "script deleted": Trigger(lambda work: (work.root / "steps.py").unlink(), 2, "No such file"),
    "results immutable": Trigger(immutable, 2, "Operation not permitted", mutable),
    "disk full": Trigger(fill, 2, "No space left on device"),
    "checkpoints bad": Trigger(spoil_checkpoints, 1, "no good checkpoint is left"),
    "results missing": Trigger(
        lambda work: (work.root / "results/a").rename(work.root / "elsewhere"),
        2,
        "although the run has begun (is its disk mounted?)",
        bring_back,
    ),
    "checkpoints gone": Trigger(remove_checkpoints, 1, "no good checkpoint is left"),
}


# What no job could write down, `status` finds itself; and it reads the config too.
STATUS_SAYS = {
    "script deleted": "there is no such file",
    "results immutable": "results/a cannot be written",
    "results missing": "results/a is missing on ",
    "disk full": "results/a: the disk is full, ",
}
# What a job that has its spec does not read; the next start does.
BROKEN_BY_AN_EDIT = {
    "YAML broken": (
        lambda work: work.write("config/config.yaml", "runs: {a: ["),
        "line 1: a [ or { that nothing closes",
    ),
    "unknown key": (
        lambda work: edit_config(work, lambda run: run.update(segmets=3)),
        "did you mean `segments`?",
    ),
    "Snakefile broken": (lambda work: work.write("Snakefile", "rule a:\n    input: (\n"), "SyntaxError"),
}


@pytest.fixture
def work(slurm_work: WorkDir) -> Iterator[WorkDir]:
    """A working directory with a small disk of its own for results, and a chain of one step a job."""
    results = slurm_work.root / "results"
    slurm_work.write("steps.py", ONE_STEP)
    slurm_work.added_environment |= {"GO_FILE": str(slurm_work.root / "go"), PATIENCE: "2"}
    run = {"engine": "torch", "segments": 4, "segment_minutes": 1, "settings": {"script": "steps.py", "goal": 4}}
    slurm_work.configure({"a": run}, attempts_without_progress=2)
    yield slurm_work
    unmount(results)


def with_small_disk(work: WorkDir) -> None:
    results = work.root / "results"
    results.mkdir(exist_ok=True)
    mount_small(results, "size=8m")


def until_first_job_is_done(work: WorkDir, cluster: Cluster) -> None:
    """The first segment is over, and no other job starts before the partition is up again."""
    until(lambda: list((work.root / "results/a/work").glob("*/save")), PATIENCE_SECONDS)
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    (work.root / "go").touch()
    until(lambda: len(work.records("a")) == 1, PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIGGERS)
def test_a_detached_run_stops_and_says_why(name: str, work: WorkDir, cluster: Cluster) -> None:
    trigger = TRIGGERS[name]
    if name == "disk full":
        with_small_disk(work)
    detached(work)
    submit(work)
    until_first_job_is_done(work, cluster)
    cluster.wait_until(lambda: not cluster.jobs("running,completing"))

    with trigger.broken(work):
        cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
        wait_for_jobs(cluster)
        said, status = slurm_logs(work), work.unbroken("status").text

    assert cluster.starts(work.root) == 1 + trigger.starts, said
    assert "a: the run stops: " in said
    assert trigger.says in said
    assert STATUS_SAYS.get(name, trigger.says) in status
    assert work.history("a")[0].kind is EndKind.PAUSED


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIGGERS)
def test_a_driver_stops_the_run_and_says_why(name: str, work: WorkDir, cluster: Cluster) -> None:
    trigger = TRIGGERS[name]
    if name == "disk full":
        with_small_disk(work)
    driver = work.start(*DRIVEN, *SOON)
    until_first_job_is_done(work, cluster)
    # The driver too is done with that job: Snakemake ends with an error of its own if it cannot touch an output.
    cluster.wait_until(lambda: "Finished jobid" in driver.output.read_text() and not cluster.jobs("running,completing"))

    with trigger.broken(work):
        cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
        done = driver.wait(PATIENCE_SECONDS)
        wait_for_jobs(cluster)

    assert done.code == 1
    assert cluster.starts(work.root) == 1 + trigger.starts, done.text
    assert "this run stops: " in done.text
    assert trigger.says in done.text  # the job has left a note on it, outside the results


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN_BY_AN_EDIT)
@pytest.mark.parametrize("has_driver", [True, False], ids=["attached", "detached"])
def test_an_edit_that_breaks_the_config_ends_no_job_and_is_told_at_the_next_start(
    has_driver: bool, name: str, work: WorkDir, cluster: Cluster
) -> None:
    breaks, says = BROKEN_BY_AN_EDIT[name]
    work.snakefile = work.write("Snakefile", work.snakefile.read_text().replace('"workflow/', f'"{ROOT}/workflow/'))
    if not has_driver:
        detached(work)
        submit(work)
    driver = work.start(*DRIVEN, *SOON) if has_driver else None
    until_first_job_is_done(work, cluster)

    breaks(work)
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    done = driver.wait(PATIENCE_SECONDS) if driver else None
    wait_for_jobs(cluster)

    assert done is None or done.code == 0, done.text
    assert [record.kind for record in work.records("a")] == [EndKind.PAUSED] * 3 + [EndKind.FINISHED]
    again = work.snakemake(*DRIVEN)
    assert again.code == 1
    assert says in again.text


@pytest.mark.slow
def test_a_mended_run_goes_on(work: WorkDir, cluster: Cluster) -> None:
    detached(work)
    submit(work)
    until_first_job_is_done(work, cluster)
    script = work.root / "steps.py"
    script.rename(work.root / "aside.py")
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    wait_for_jobs(cluster)
    stopped = len(work.records("a"))

    (work.root / "aside.py").rename(script)
    submit(work)
    wait_for_jobs(cluster)

    assert stopped == 1
    assert [record.segment for record in work.records("a")] == [1, 2, 3, 4]


def held_open(work: WorkDir, cluster: Cluster) -> list[str]:
    """A chain without a driver whose first task works until the sign; its tasks, in their order."""
    detached(work)
    submit(work)
    until(lambda: list((work.root / "results/a/work").glob("*/save")), PATIENCE_SECONDS)
    return sorted(cluster.jobs(), key=number_of)


@pytest.mark.slow
def test_scancel_of_a_waiting_task_takes_out_that_task_alone(work: WorkDir, cluster: Cluster) -> None:
    _, second, *_ = held_open(work, cluster)

    cluster.run("scancel", second)
    (work.root / "go").touch()
    wait_for_jobs(cluster)

    assert [record.segment for record in work.records("a")] == [1, 2, 3, 4], slurm_logs(work)
    assert second not in {attempt.slurm_job for attempt in work.history("a")}
    assert work.history("a")[-1].kind is EndKind.FINISHED


@pytest.mark.slow
def test_restart_cancels_the_tasks_that_wait(work: WorkDir, cluster: Cluster) -> None:
    first, *waiting = held_open(work, cluster)
    refused = work.unbroken("restart", "a")
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    (work.root / "go").touch()
    cluster.wait_until(lambda: not cluster.jobs("running,completing"))

    done = work.unbroken("restart", "a")

    assert refused.code == 1 and f"Slurm job {first}" in refused.text
    assert done.code == 0, done.text
    (array,) = arrays(waiting)
    assert f"a: canceled the waiting tasks: {array}_[2-6]" in done.text
    assert cluster.jobs() == []
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")


@pytest.mark.slow
def test_accept_names_the_tasks_that_wait_and_they_go_on(work: WorkDir, cluster: Cluster) -> None:
    _, *waiting = held_open(work, cluster)
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    (work.root / "go").touch()
    cluster.wait_until(lambda: not cluster.jobs("running,completing"))
    work.write("steps.py", ONE_STEP + "\n# mended\n")

    done = work.unbroken("accept", "a")
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    wait_for_jobs(cluster)

    assert "its waiting tasks go on from 000001_1-steps_" in done.text
    (array,) = arrays(waiting)
    assert done.text.strip().endswith(f": {array}_[2-6]")
    assert [record.segment for record in work.records("a")] == [1, 2, 3, 4], slurm_logs(work)


def refused(work: WorkDir) -> None:
    """Only sbatch itself says that there is no such reservation."""
    edit_config(work, lambda run: run.update(slurm_extra=["--reservation=nowhere"]))


REFUSED = "sbatch: error: Batch job submission failed: "


@pytest.mark.slow
def test_a_job_that_slurm_refuses_for_good_is_submitted_once(work: WorkDir, cluster: Cluster) -> None:
    refused(work)

    done = work.start(*DRIVEN, "--retries", "3").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert done.text.count("Slurm refuses the job") == 1, done.text
    assert f"a segment 1: Slurm refuses the job ({REFUSED}" in done.text
    assert "); fix the config, then start snakemake again" in done.text
    assert cluster.starts(work.root) == 0


@pytest.mark.slow
def test_next_jobs_that_slurm_refuses_for_good_stop_a_run_without_a_driver(work: WorkDir, cluster: Cluster) -> None:
    """The second job asks when its work begins, and once more at its end, hours later."""
    detached(work)
    submit(work, "--unbroken-ahead", "2")
    until(lambda: list((work.root / "results/a/work").glob("*/save")), PATIENCE_SECONDS)
    # Jobs in the queue still start.
    cluster.run("scontrol", "update", "PartitionName=short", "State=DRAIN")
    (work.root / "go").touch()
    wait_for_jobs(cluster)
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")

    said = slurm_logs(work)
    line = f"the next jobs could not be submitted: {REFUSED}"
    assert f"a: the run stops: {line}" in said
    assert "tried again" not in said
    assert line in work.unbroken("status").text
    assert [record.segment for record in work.records("a")] == [1, 2]
    assert cluster.starts(work.root) == 2


# Python ends at once on the first node: nothing of ours runs there.
BLACK_HOLE = """\
import os
if os.environ.get("SLURMD_NODENAME") == os.environ["BAD_NODE"]:
    os._exit(1)
"""


def with_black_hole(work: WorkDir, cluster: Cluster) -> str:
    """Slurm gives every job the first node as long as it is free; jobs die there in no time, so it always is."""
    bad = cluster.nodes[0]
    work.write("site/sitecustomize.py", BLACK_HOLE)
    work.added_environment |= {"BAD_NODE": bad, "PYTHONPATH": str(work.root / "site")}
    (work.root / "go").touch()
    return bad


@pytest.mark.slow
def test_a_driver_goes_round_a_node_on_which_nothing_of_ours_runs(work: WorkDir, cluster: Cluster) -> None:
    bad = with_black_hole(work, cluster)

    done = work.start(*DRIVEN).wait(PATIENCE_SECONDS)

    history = work.history("a")
    assert done.code == 0, done.text
    assert [attempt.slurm_node for attempt in history[:2]] == [bad, bad]
    assert [attempt.kind for attempt in history[:2]] == [EndKind.NEVER_RAN] * 2
    # Its last task may come to another node, and then submits the next array itself.
    assert f"not on {bad}, where it failed repeatedly" in done.text + slurm_logs(work)
    assert history[-1].kind is EndKind.FINISHED


@pytest.mark.slow
def test_a_chain_that_dies_on_such_a_node_is_told_by_status(work: WorkDir, cluster: Cluster) -> None:
    bad = with_black_hole(work, cluster)
    detached(work)

    submit(work)
    wait_for_jobs(cluster)

    status = work.unbroken("status").text
    assert cluster.starts(work.root) == 6  # all that were submitted, and none that they would have submitted
    assert "a: no job of this run is pending; Slurm job " in status
    assert f"ended as FAILED on {bad} before its work; fix the cause, then type: unbroken run --slurm" in status


@pytest.mark.slow
def test_jobs_on_nodes_without_slurm_s_commands_say_that_nobody_follows(work: WorkDir, cluster: Cluster) -> None:
    without_slurm_on_nodes(work)
    (work.root / "go").touch()
    detached(work)

    submit(work, "--unbroken-ahead", "2")
    wait_for_jobs(cluster)

    said = slurm_logs(work)
    assert [record.segment for record in work.records("a")] == [1, 2], said
    assert said.count("sbatch, squeue, scontrol, scancel: not found on this node, so no job of this run can") == 2
    assert "and when none is left: start snakemake again" in said
