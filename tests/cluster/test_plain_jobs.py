"""Jobs that are no chain, on a real cluster, through the Slurm plugin's own executor held by another one."""

import re
import signal
import time
from pathlib import Path

import pytest
from cluster.detached import closed
from cluster.lab import Cluster
from support.workdir import ROOT, Done, Driver, WorkDir, until

from unbroken.cli.run_command import DETACHED

EXECUTOR = ROOT / "tests" / "support" / "plain_executor"
WORDS = ("--executor", "plainjobs", "--plainjobs-init-seconds-before-status-checks", "2", "--latency-wait", "5")
RESOURCES = ("--default-resources", "mem_mb=100", "runtime=5", "slurm_partition='short'")
# The plugin alone ends after 25 to 180 s; on a busy machine a second of ours may be some.
SHUTDOWN_SECONDS = 15.0


def start(work: WorkDir, snakefile: str, *words: str, jobs: int = 20) -> Driver:
    """Start a driver as a user does: the executor is found by PYTHONPATH, which a forked one would not look at."""
    work.profile, work.snakefile = None, work.write("Snakefile", snakefile)
    work.added_environment["PYTHONPATH"] = str(EXECUTOR)
    return work.start(*WORDS, "--jobs", str(jobs), *words, *RESOURCES, before=["env"])


def ended(driver: Driver, seconds: float = 300.0) -> Done:
    """Wait for a driver and check that its end took no sleep of the plugin's."""
    done = driver.wait(seconds)
    took = re.findall(r"shutdown took ([\d.]+) s", done.text)
    assert took and float(took[-1]) < SHUTDOWN_SECONDS, done.text
    return done


def rules(**shells: str) -> str:
    """Return a Snakefile with a rule for each name, which makes a file of that name."""
    targets = ", ".join(repr(name) for name in shells)
    made = (f"rule {name}:\n    output: {name!r}\n    shell: {shell!r}\n" for name, shell in shells.items())
    return f"rule all:\n    input: {targets}\n" + "".join(made)


def logs(work: WorkDir) -> list[Path]:
    return sorted((work.root / ".snakemake/slurm_logs").rglob("*.log"))


def test_a_plain_job_that_succeeds_leaves_its_output_and_no_log(slurm_work: WorkDir) -> None:
    done = ended(start(slurm_work, rules(one="hostname > {output}", two="hostname > {output}")))

    assert done.code == 0, done.text
    assert (slurm_work.root / "one").exists() and (slurm_work.root / "two").exists()
    assert logs(slurm_work) == []
    assert done.text.count("SLURM run ID") == 1


def test_a_plain_job_that_fails_fails_the_driver_and_keeps_its_log(slurm_work: WorkDir) -> None:
    done = ended(start(slurm_work, rules(bad="echo half > {output}; exit 3", good="touch {output}"), "--keep-going"))

    assert done.code == 1
    assert "SLURM status is: 'FAILED'" in done.text
    assert not (slurm_work.root / "bad").exists()
    assert (slurm_work.root / "good").exists()
    assert len(logs(slurm_work)) == 1


def test_a_plain_job_that_fails_is_tried_again_as_often_as_retries_says(slurm_work: WorkDir) -> None:
    again = "test -e tried || {{ touch tried; exit 1; }}; touch {output}"

    done = ended(start(slurm_work, rules(one=again), "--retries", "1"))

    assert done.code == 0, done.text
    assert done.text.count("SLURM status is: 'FAILED'") == 1


def test_a_driver_without_plain_jobs_never_makes_the_plugins_executor(slurm_work: WorkDir) -> None:
    done = ended(start(slurm_work, "localrules: here\n" + rules(here="touch {output}")))

    assert done.code == 0, done.text
    assert "SLURM run ID" not in done.text


def test_jobs_that_are_handed_over_one_by_one_run_too(slurm_work: WorkDir) -> None:
    slurm_work.added_environment["PLAINJOBS_ONE_BY_ONE"] = "1"

    done = ended(start(slurm_work, rules(one="touch {output}", two="touch {output}")))

    assert done.code == 0, done.text
    # Each is announced once.
    assert done.text.count("\nrule one:") == done.text.count("\nrule two:") == 1


@pytest.mark.parametrize("asked", ["sacct", "squeue"])
def test_a_plain_job_that_is_cancelled_fails_in_the_driver(slurm_work: WorkDir, cluster: Cluster, asked: str) -> None:
    """The plugin alone waits for ever for a job that accounting calls "CANCELLED by 1000"."""
    words = ("--plainjobs-status-command", asked)
    driver = start(slurm_work, rules(one="touch begun; sleep 600; touch {output}"), *words)
    until((slurm_work.root / "begun").exists)
    cluster.run("scancel", *cluster.jobs())

    done = ended(driver)
    assert done.code == 1
    assert "CANCELLED" in done.text


def test_a_plain_job_that_is_preempted_and_not_requeued_fails_in_the_driver(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    """The plugin alone waits for it for ever."""
    snakefile = rules(one="trap : TERM; touch begun; while true; do sleep 1 || true; done").replace(
        "    shell:", "    resources: slurm_partition='preempt', slurm_extra='--exclusive'\n    shell:"
    )
    driver = start(slurm_work, snakefile, "--plainjobs-no-requeue")
    until((slurm_work.root / "begun").exists)
    cluster.sbatch("sleep 5", "--partition=urgent", "--exclusive", "--time=1")

    done = ended(driver)
    assert done.code == 1
    assert "PREEMPTED" in done.text


def test_without_accounting_a_plain_job_ends_by_what_the_controller_says(silent_work: WorkDir) -> None:
    """By sacct, its default, the plugin alone waits for ever where accounting is off."""
    words = ("--plainjobs-status-command", "sacct", "--keep-going")
    done = ended(start(silent_work, rules(good="touch {output}", bad="exit 3"), *words))

    assert done.code == 1, done.text
    assert (silent_work.root / "good").exists()
    assert "ended: FAILED" in done.text


GROUP = """
rule all:
    input: "b"
rule a:
    output: "a"
    group: "both"
    resources: runtime=2{more}
    shell: "touch {output}"
rule b:
    input: "a"
    output: "b"
    group: "both"
    resources: runtime=2{more}
    shell: "cp {input} {output}"
"""


def test_a_group_is_one_job(slurm_work: WorkDir) -> None:
    done = ended(start(slurm_work, GROUP.replace("{more}", "")))

    assert done.code == 0, done.text
    assert (slurm_work.root / "b").exists()
    assert done.text.count("has been submitted with SLURM jobid") == 1


def test_a_group_that_cannot_be_submitted_fails_in_the_driver(slurm_work: WorkDir) -> None:
    """The plugin alone never reports it: its handler asks the group for its rule, and the driver waits for ever."""
    done = ended(start(slurm_work, GROUP.replace("{more}", ", slurm_extra='--job-name=mine'")))

    assert done.code == 1
    assert "job-name" in done.text


def test_ranks_are_started_by_srun(slurm_work: WorkDir) -> None:
    snakefile = rules(one="{resources.mpi} -n 2 sh -c 'echo $SLURM_PROCID' > {output}").replace(
        "    shell:", "    resources: mpi='srun', tasks=2\n    shell:"
    )

    done = ended(start(slurm_work, snakefile))

    assert done.code == 0, done.text
    assert sorted((slurm_work.root / "one").read_text().split()) == ["0", "1"]


def test_a_refused_job_fails_with_the_words_of_sbatch(slurm_work: WorkDir) -> None:
    snakefile = rules(one="touch {output}").replace("    shell:", "    resources: mem_mb=9000000\n    shell:")

    done = ended(start(slurm_work, snakefile))

    assert done.code == 1
    assert "sbatch: error" in done.text


MANY = """
rule all:
    input: expand("{{n}}.txt", n=range({count}))
rule one:
    output: "{{n}}.txt"
    shell: "{shell}"
"""


def test_jobs_of_an_array_that_never_fills_are_submitted(slurm_work: WorkDir) -> None:
    """With fewer `--jobs` than are ready the plugin alone waits for more, which Snakemake does not hand over."""
    done = ended(
        start(slurm_work, MANY.format(count=5, shell="touch {output}"), "--plainjobs-array-jobs", "all", jobs=2),
        300.0,
    )

    assert done.code == 0, done.text
    assert all((slurm_work.root / f"{n}.txt").exists() for n in range(5))
    assert done.text.count("\nrule one:") == 5


def test_without_a_driver_too_jobs_of_an_array_that_never_fills_are_submitted(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    slurm_work.profile = None
    slurm_work.snakefile = slurm_work.write("Snakefile", MANY.format(count=5, shell="touch {output}"))
    words = ("--executor", "unbroken", "--unbroken-array-jobs", "all", *DETACHED, "--jobs", "2")
    files = [f"{n}.txt" for n in range(5)]
    with closed(cluster):  # jobs that start after the driver's end find the folder of their logs
        done = slurm_work.start(*files, *words, *RESOURCES).wait(300.0)

    assert done.code == 0, done.text
    cluster.wait_until(lambda: all((slurm_work.root / name).exists() for name in files))


def test_ctrl_c_cancels_all_jobs_also_those_that_are_being_submitted(slurm_work: WorkDir, cluster: Cluster) -> None:
    driver = start(slurm_work, MANY.format(count=30, shell="sleep 600"), jobs=30)
    until(lambda: "has been submitted" in driver.text)
    driver.interrupt()

    done = ended(driver)
    assert done.code != 0
    assert cluster.jobs() == []
    assert done.text.count("has been submitted") < 30, "all were out before the Ctrl-C: nothing was tried"


def test_term_waits_for_plain_jobs_as_snakemake_does_and_a_ctrl_c_cancels_them(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    shells = rules(
        first="touch begun; until test -e go; do sleep 0.2; done; touch {output}", second="touch {output}"
    ).replace("rule second:\n", "rule second:\n    resources: slurm_extra='--hold'\n")
    driver = start(slurm_work, shells)
    until((slurm_work.root / "begun").exists)
    until(lambda: driver.text.count("has been submitted") == 2)
    driver.process.send_signal(signal.SIGTERM)
    (slurm_work.root / "go").touch()

    until((slurm_work.root / "first").exists)
    until(lambda: len(cluster.jobs()) == 1)  # the one that is held
    time.sleep(2.0)
    assert driver.process.poll() is None
    driver.interrupt()
    ended(driver)
    assert cluster.jobs() == []


ALONE = """
rule all:
    input: "plain", "after"
rule plain:
    output: "plain"
    shell: "hostname > {output}"
rule own:
    output: "own"
    resources: alone=1, slurm_extra="--nice=5"
    shell: "echo $SLURM_JOB_ID > {output}; sleep 1"
rule after:
    input: "own"
    output: "after"
    resources: alone=1
    shell: "cp {input} {output}"
"""


def test_a_job_by_our_words_and_command_runs_in_its_batch_step_beside_plain_ones(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    done = ended(start(slurm_work, ALONE))

    assert done.code == 0, done.text
    # A second Snakemake in a step of its own would have made its step 0.
    (job,) = (slurm_work.root / "after").read_text().split()
    assert f"{job}.0" not in cluster.run("sacct", "--jobs", job, "--noheader", "--format=JobID%20").split()
    assert "Name=alone" in cluster.run("scontrol", "show", "job", job)
    assert list((slurm_work.root / ".snakemake/alone_logs").glob(f"{job}.log"))
    assert (slurm_work.root / "plain").exists()


def test_a_job_by_our_command_waits_for_no_folder_of_its_driver(slurm_work: WorkDir, cluster: Cluster) -> None:
    """A job of the plugin that starts after the end of its driver fails, since the driver has removed its folder."""
    with closed(cluster):
        driver = start(slurm_work, ALONE.replace('"plain", "after"', '"own"'))
        until(lambda: len(cluster.jobs()) == 1)
        driver.interrupt()
        ended(driver)
        assert len(cluster.jobs()) == 1
    until((slurm_work.root / "own").exists)
