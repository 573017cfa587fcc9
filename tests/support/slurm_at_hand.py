"""Slurm's commands as scripts for a real Snakemake: sbatch keeps what it is told, and does the tasks before it answers.

So a test knows what was done when Snakemake goes on: all tasks of an array run ahead of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from support.workdir import ROOT, Done, WorkDir

NEVER = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
_KEEP = """
n=101
until mkdir "$AT_HAND/number.$n" 2> /dev/null; do n=$((n + 1)); done
for word; do printf "%s\\0" "$word"; done > "$AT_HAND/told.$n"
"""
_SIZE = """
size=1
for word; do
    case $word in
        --array=1-*) size=${word#--array=1-}; size=${size%\\%1};;
        --comment=*) comment=${word#--comment=};;
        --wrap=*) wrap=${word#--wrap=};;
    esac
done
shows() { echo "me|$3|$1|$2|None|N/A|N/A|N/A|$comment|$(pwd -P)"; }
"""
# While a task works, squeue shows those behind it.
_TASKS = """
export SLURM_ARRAY_JOB_ID=$n
for task in $(seq $([ $size -lt {most} ] && echo $size || echo {most})); do
    shows ${n}_$task RUNNING node1 > "$AT_HAND/queue"
    [ $task -eq $size ] || shows "${n}_[$((task + 1))-$size%1]" PENDING "" >> "$AT_HAND/queue"
    SLURM_JOB_ID=$((n * 10 + task)) SLURM_ARRAY_TASK_ID=$task sh -c "$wrap" >> "$AT_HAND/tasks.log" 2>&1 < /dev/null
done
: > "$AT_HAND/queue"
"""


class SlurmAtHand:
    """The commands, for a working directory in which Snakemake runs with `executor: unbroken`."""

    def __init__(self, work: WorkDir, folder: Path) -> None:
        self.work, self.folder = work, folder
        (folder / "bin").mkdir(parents=True)
        self.answer("squeue", f"cat {folder}/queue")
        self.answer("sinfo", "echo 'short*|infinite|4|64|256000|gpu:8'")
        self.answer("scontrol", "printf 'SLURM_VERSION = 25.05.3\\nMaxArraySize = 1001\\n'")
        self.answer("sacct", "exit 1")
        self.answer("scancel", "exit 0")
        (folder / "queue").touch()
        work.added_environment |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "AT_HAND": str(folder)}
        work.words = ("--executor", "unbroken", "--jobs", "20", "--latency-wait", "5", "--rerun-triggers", "mtime")
        work.words += ("--rerun-incomplete", "--keep-going", "--nolock")

    def configure(self, runs: dict[str, object]) -> None:
        """Write a config that has the cluster's own part, as the profile `slurm` would add it."""
        self.work.configure(runs)
        path = self.work.root / "config" / "config.yaml"
        path.write_text(path.read_text() + (ROOT / "profiles" / "slurm" / "site.yaml").read_text())

    def answer(self, command: str, text: str) -> None:
        path = self.folder / "bin" / command
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def refuses(self) -> None:
        """Keep what sbatch is told, and refuse it."""
        self.answer("sbatch", f"{_KEEP}\necho '{NEVER}' >&2; exit 1")

    def does_the_tasks(self, then: str = "echo $n", most: int = 100) -> None:
        """Do the first tasks one after the other, and answer with the number of the array."""
        self.answer("sbatch", f"{_KEEP}\n{_SIZE}\n{_TASKS.replace('{most}', str(most))}\n{then}")

    @property
    def told(self) -> list[list[str]]:
        """What sbatch was told, submission by submission."""
        return [path.read_text().rstrip("\0").split("\0") for path in sorted(self.folder.glob("told.*"))]

    @property
    def arrays(self) -> dict[str, str]:
        """The array of each run that was submitted; empty for a single job."""
        found = {}
        for words in self.told:
            (comment,) = [word for word in words if word.startswith("--comment=")]
            array = [word.partition("=")[2] for word in words if word.startswith("--array=")]
            found[comment.rpartition(" ")[2]] = array[0] if array else ""
        return found


def single_jobs(done: Done) -> dict[str, str]:
    """Why the segments of runs are single jobs, by the lines that a driver prints."""
    return dict(re.findall(r"unbroken: (\S+): single jobs instead of one array: (.*)", done.text))
