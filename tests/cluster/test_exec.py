"""`unbroken exec` in a rule of somebody else's workflow, with `executor: unbroken`, on a real cluster."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support.workdir import Done, Driver, WorkDir, until

from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import STORES, RunFolder
from unbroken.runs.outcome import Outcome

PATIENCE_SECONDS = 600.0
GOAL = 600
PROGRAM = '''\
import os, signal, sys, time

data, output, goal, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
is_told = False

def told(*_):
    global is_told
    is_told = True

signal.signal(signal.SIGTERM, told)
step, total = 0, int(open(data).read())
if os.path.exists("state/count.txt"):
    step, total = map(int, open("state/count.txt").read().split())
os.makedirs("state", exist_ok=True)

def save():
    with open("state/draft", "w") as file:
        file.write(f"{step} {total}")
    os.replace("state/draft", "state/count.txt")

while step < goal:
    if is_told:
        save()
        sys.exit(0)
    step, total = step + 1, (total * 31 + step) % 1000003
    time.sleep(seconds)
    if step % 20 == 0:
        save()
if os.path.exists("broken"):
    sys.exit("no such luck")
with open(output, "w") as file:
    file.write(f"{step} {total}\\n")
save()
'''
WORKFLOW = """\
rule all:
    input:
        "plot.txt",


rule prepare:
    output:
        "data.txt",
    shell:
        "echo prepared >> prepared.txt; echo 7 > {{output}}"


rule count:
    input:
        "data.txt",
    output:
        "result.txt",
    resources:
        segments={segments},
        runtime={runtime},
    shell:
        "unbroken exec --name deep/count --inputs {{input}} --outputs {{output}} --keep state/count.txt"
        " --saved-by rename --save-minutes 0 {options} -- python count.py {{input}} {{output}} {goal} {seconds}"


rule plot:
    input:
        "result.txt",
    output:
        "plot.txt",
    shell:
        "echo plotted >> plotted.txt; sed s/^/plot:/ {{input}} > {{output}}"
"""


def prepare(work: WorkDir, **changes: object) -> None:
    """A folder as somebody else would have it; `options` are those of `unbroken exec`."""
    values = {"segments": 40, "runtime": 10, "options": "--minutes 0.2", "goal": GOAL, "seconds": 0.05}
    work.write("count.py", PROGRAM)
    work.snakefile = work.write("Snakefile", WORKFLOW.format_map({**values, **changes}))


def start(work: WorkDir, *words: str) -> Driver:
    return work.start("--executor", "unbroken", *words)


def history(work: WorkDir) -> list[Attempt]:
    return History(RunFolder("deep/count", Path(), work.root / STORES / "deep/count").history).attempts()


def outcomes(work: WorkDir) -> list[Outcome]:
    return [attempt.outcome for attempt in history(work)]


def submitted(done: Done) -> int:
    return done.text.count("has been submitted with SLURM jobid")


def jobs_of(work: WorkDir) -> set[str]:
    return {attempt.slurm_job for attempt in history(work)}


def uninterrupted(folder: Path, goal: int = GOAL) -> bytes:
    folder.mkdir()
    (folder / "count.py").write_text(PROGRAM)
    (folder / "data.txt").write_text("7\n")
    subprocess.run([sys.executable, "count.py", "data.txt", "result.txt", str(goal), "0"], cwd=folder, check=True)
    return (folder / "result.txt").read_bytes()


def assert_whole(work: WorkDir, tmp_path: Path, goal: int = GOAL) -> None:
    """As one run without limits, and the other rules ran once."""
    assert (work.root / "result.txt").read_bytes() == uninterrupted(tmp_path / "whole", goal)
    assert (work.root / "prepared.txt").read_text() == "prepared\n"
    assert (work.root / "plotted.txt").read_text() == "plotted\n"


def test_a_rule_of_anybodys_goes_on_over_jobs_without_an_error(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work)

    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert "Error" not in done.text
    assert set(outcomes(slurm_work)[:-1]) == {Outcome.PAUSED}
    assert outcomes(slurm_work)[-1] is Outcome.FINISHED
    assert len(history(slurm_work)) >= 3
    assert submitted(done) == 2 + len(history(slurm_work))
    assert len(done.lines("unbroken: deep/count: segment ")) == len(history(slurm_work)) - 1
