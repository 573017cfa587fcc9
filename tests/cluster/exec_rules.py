"""A workflow as somebody else would have it, one of whose rules calls `unbroken exec`, and what its jobs leave."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from support.workdir import Done, Driver, WorkDir, until

from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import STORES, RunFolder

PATIENCE_SECONDS = 600.0
GOAL = 600
PROGRAM = """\
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
"""
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
{how_often}
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
    """A folder as somebody else would have it; `options` are those of `unbroken exec`.

    `retries` takes the place of `segments`, for executors that know no `segments`.
    """
    values = {"segments": 40, "runtime": 10, "options": "--minutes 0.2", "goal": GOAL, "seconds": 0.05, **changes}
    resources = "    resources:\n        segments={segments},"
    if "retries" in values:
        resources = "    retries: {retries}\n    resources:"
    values["how_often"] = resources.format_map(values)
    work.write("count.py", PROGRAM)
    work.snakefile = work.write("Snakefile", WORKFLOW.format_map(values))


def start(work: WorkDir, *words: str) -> Driver:
    # Plain rules are asked about at the parent's pace, which begins with these seconds.
    return work.start("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "3", *words)


def history(work: WorkDir) -> list[Attempt]:
    return History(RunFolder("deep/count", Path(), work.root / STORES / "deep/count").history).attempts()


def checkpoints(work: WorkDir) -> list[str]:
    return Store(RunFolder("deep/count", Path(), work.root / STORES / "deep/count").checkpoints).names()


def outcomes(work: WorkDir) -> list[EndKind]:
    return [attempt.kind for attempt in history(work)]


def program(work: WorkDir) -> list[int]:
    """The program alone; what started it has the same words behind its own."""
    return [pid for pid in work.processes("count.py data.txt") if _words(pid)[1:2] == ["count.py"]]


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until_saved_after(work: WorkDir, known: object) -> None:
    until(lambda: checkpoints(work) and checkpoints(work)[-1] != known, PATIENCE_SECONDS)


def until_noted(work: WorkDir, died: int) -> None:
    """The line of a killed attempt is written by the next one."""
    until(lambda: outcomes(work).count(EndKind.DIED) >= died, PATIENCE_SECONDS)


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def plain_jobs(done: Done) -> int:
    return done.text.count("has been submitted with SLURM jobid")


def submissions(done: Done) -> list[str]:
    """The lines on arrays, and single jobs, of chains that a driver submitted."""
    return [line for line in done.text.splitlines() if line.startswith("unbroken: ") and ": submitted " in line]


def started(work: WorkDir) -> int:
    """How many tasks and jobs of chains have begun: each has a log."""
    return len(list(work.root.glob("logs/rules/*/slurm-*.log")))


def chain_logs(work: WorkDir) -> str:
    """What Slurm kept of the words of all tasks."""
    return "".join(path.read_text(errors="replace") for path in sorted(work.root.glob("logs/rules/*/slurm-*.log")))


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
