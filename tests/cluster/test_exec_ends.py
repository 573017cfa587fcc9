"""How the chain of a user's own rule ends when the rule itself is what fails, on a real cluster."""

from pathlib import Path

import pytest
from cluster.detached import wait_for_jobs
from cluster.exec_rules import (
    PATIENCE_SECONDS,
    assert_whole,
    chain_logs,
    history,
    plain_jobs,
    prepare,
    start,
    started,
    submissions,
)
from cluster.lab import Cluster
from support.workdir import WorkDir

from unbroken.store.history import EndKind, History
from unbroken.store.layout import STORES

# Two jobs whose wildcards read the same when they are put together; each says what it sees of Slurm's array.
PAIRS = """\
rule all:
    input:
        "out/a_b.c.txt",
        "out/a.b_c.txt",


rule pair:
    output:
        "out/{x}.{y}.txt",
    resources:
        segments=5,
        runtime=10,
    shell:
        "echo {wildcards.x}.{wildcards.y} >> rules.txt; unbroken exec --name {wildcards.x}.{wildcards.y}"
        " --outputs {output} --inputs pair.py -- python pair.py {output}"
"""
PAIR = """\
import os, sys

names = [name for name in os.environ if name.startswith("SLURM_ARRAY_")]
open(sys.argv[1], "w").write(f"{os.environ['SLURM_JOB_NAME']} {names}")
"""
# Neither `unbroken exec` nor a training in it.
PLAIN = """\
rule all:
    input:
        "result.txt",


rule count:
    output:
        "result.txt",
    resources:
        segments=5,
        runtime={runtime},
    shell:
        "echo begun >> begun.txt; {command}"
"""
HUNGRY = """\
rule all:
    input:
        "eaten.txt",


rule eat:
    output:
        "eaten.txt",
    resources:
        segments=5,
        runtime=10,
        mem_mb=lambda wildcards, attempt: 900 * attempt,
    shell:
        "unbroken exec --name eat --outputs {output} --inputs eat.py -- python eat.py {output}"
"""
EAT = """\
import sys

block = b"x" * (1200 << 20)
open(sys.argv[1], "w").write("eaten")
"""


def test_jobs_of_a_rule_are_chains_of_their_own_and_a_removed_output_is_put_back(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    slurm_work.write("pair.py", PAIR)
    slurm_work.snakefile = slurm_work.write("Snakefile", PAIRS)

    first = start(slurm_work).wait(PATIENCE_SECONDS)
    (slurm_work.root / "out" / "a.b_c.txt").unlink()
    second = start(slurm_work).wait(PATIENCE_SECONDS)

    assert first.code == 0, first.text
    assert len(submissions(first)) == 2
    assert second.code == 0, second.text
    assert len(submissions(second)) == 1
    assert (slurm_work.root / "rules.txt").read_text().split().count("a_b.c") == 1
    for name in ("a_b.c", "a.b_c"):
        assert (slurm_work.root / "out" / f"{name}.txt").read_text() == "pair-segments []"
        (only,) = History(slurm_work.root / STORES / name / "history.jsonl").attempts()
        assert only.kind is EndKind.FINISHED, "what was done was computed again"
    assert cluster.wait_until(lambda: not cluster.jobs())


@pytest.mark.slow
def test_the_rest_of_a_rule_that_fails_is_a_failure_of_snakemake(slurm_work: WorkDir, cluster: Cluster) -> None:
    prepare(slurm_work, options="", goal=20, seconds="0 && false")

    done = start(slurm_work, "--retries", "1").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert (
        "this run stops: rule count failed 2 times: the rest of the rule failed although its program was done"
        in done.text
    )
    assert started(slurm_work) == 2
    assert [attempt.kind for attempt in history(slurm_work)] == [EndKind.FINISHED]
    assert not (slurm_work.root / "result.txt").exists()
    assert cluster.jobs() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "runtime", "state"), [("false", 10, "FAILED"), ("sleep 600", 1, "TIMEOUT")], ids=["fails", "sleeps"]
)
def test_a_rule_in_which_no_segment_begins_has_failed(
    slurm_work: WorkDir, cluster: Cluster, command: str, runtime: int, state: str
) -> None:
    slurm_work.snakefile = slurm_work.write("Snakefile", PLAIN.format(command=command, runtime=runtime))

    done = start(slurm_work, "--retries", "0").wait(PATIENCE_SECONDS)

    assert done.code == 1
    # While Slurm ends a task at its limit, the next one starts: it does nothing.
    assert "; this run stops: rule count failed: no segment of `unbroken exec`, or of a training, began" in done.text
    assert (slurm_work.root / "begun.txt").read_text() == "begun\n"
    assert started(slurm_work) == 1 or state == "TIMEOUT"
    assert cluster.jobs() == []


@pytest.mark.slow
def test_a_rule_that_begins_again_each_time_is_stopped(slurm_work: WorkDir, cluster: Cluster) -> None:
    prepare(slurm_work, options="--minutes 0.1 --anew", goal=4000)

    done = start(slurm_work, "--retries", "0").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert "no more segments than before are done; has the rule --anew in it?" in done.text
    assert started(slurm_work) == 2
    assert cluster.jobs() == []


@pytest.mark.slow
def test_what_exec_refuses_stops_the_rule_with_that_line_and_no_retry(slurm_work: WorkDir, cluster: Cluster) -> None:
    prepare(slurm_work, options="", goal=20, seconds=0)
    first = start(slurm_work).wait(PATIENCE_SECONDS)
    (slurm_work.root / "result.txt").unlink()
    prepare(slurm_work, options="", goal=40, seconds=0)

    done = start(slurm_work, "--retries", "3", "result.txt").wait(PATIENCE_SECONDS)

    assert first.code == 0, first.text
    assert done.code == 1
    assert "this run stops: deep/count: the command line is another one; " in done.text
    assert "type: unbroken accept deep/count" in done.text
    assert started(slurm_work) == 2, chain_logs(slurm_work)
    assert cluster.jobs() == []


@pytest.mark.slow
def test_a_rule_out_of_memory_gets_what_it_asks_for_at_its_next_attempt(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    cgroup_work.write("eat.py", EAT)
    cgroup_work.snakefile = cgroup_work.write("Snakefile", HUNGRY)

    stopped = start(cgroup_work, "--retries", "0").wait(PATIENCE_SECONDS)
    tasks = started(cgroup_work)
    done = start(cgroup_work, "--retries", "1").wait(PATIENCE_SECONDS)

    assert stopped.code == 1
    assert "rule eat ran out of memory (900 MB); raise its mem_mb, then start snakemake again" in stopped.text
    assert tasks == 1
    assert done.code == 0, done.text
    assert "ran out of memory (900 MB); tried again with 1800 MB" in chain_logs(cgroup_work)
    attempts = History(cgroup_work.root / STORES / "eat" / "history.jsonl").attempts()
    assert [attempt.kind for attempt in attempts] == [EndKind.FAILED, EndKind.FAILED, EndKind.FINISHED]
    assert [cgroup_cluster.asked_memory(attempt.slurm_job) for attempt in attempts] == ["900M", "900M", "1800M"]
    assert plain_jobs(done) == 0


@pytest.mark.slow
def test_without_a_driver_a_line_says_that_a_rule_behind_it_does_not_wait(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, options="--minutes 0.5", goal=2000)
    slurm_work.write("data.txt", "7\n")
    slurm_work.write("prepared.txt", "prepared\n")

    submitted = start(slurm_work, "--immediate-submit", "--notemp", "--latency-wait", "5").wait(PATIENCE_SECONDS)
    wait_for_jobs(cluster, PATIENCE_SECONDS)
    early = (slurm_work.root / "plot.txt").exists()
    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert submitted.code == 0, submitted.text
    (line,) = submitted.lines("unbroken: plot: needs files of rule count; without a driver its job starts now")
    assert line.endswith("; then: the same command again")
    assert not early
    assert done.code == 0, done.text
    assert submissions(done) == [], "the rule's result was there"
    assert_whole(slurm_work, tmp_path, 2000)
