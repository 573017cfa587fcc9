"""Chains and waiting jobs on a real cluster of this machine's own, with every command that the controller gets."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import yaml
from support.marks import read_marks
from support.measure import ROOT, SNAKEMAKE

sys.path.insert(0, str(ROOT / "tests"))

from cluster.lab import Cluster
from cluster.lab_limits import default_scheduling

HERE = Path(__file__).parent
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr", "sdiag", "srun")
# What asks the controller or the accounting; srun comes from inside the jobs and is the same in all variants.
ASKING = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
PATIENCE_SECONDS = 3600.0
_STARTED = re.compile(r"\[(?P<when>[\d:.T-]+)\] .*(?:Allocate|Started) JobId=(?P<job>\d+(?:_\d+)?)")
_LEFT = re.compile(r"\[(?P<when>[\d:.T-]+)\] _job_complete: JobId=(?P<job>\d+(?:_\d+)?)(?:\(\d+\))? W")


@dataclass(frozen=True)
class Call:
    """A command of Slurm that somebody called."""

    when: float
    name: str
    said: str


@dataclass(frozen=True)
class Load:
    """What a driver cost while it waited for jobs, for each minute; `peak_mb` from its start."""

    commands: dict[str, float]
    cpu_seconds: float
    peak_mb: float


class Lab:
    """A cluster whose commands are counted."""

    def __init__(self, cluster: Cluster, base: Path) -> None:
        self.cluster, self._base = cluster, base
        self._log = base / "calls.jsonl"
        self._log.touch()
        bin_folder = base / "bin"
        bin_folder.mkdir()
        behind = f"{cluster.folder / 'bin'}:{os.environ['PATH']}:/usr/sbin"
        for name in COMMANDS:
            real = shutil.which(name, path=behind) or name
            wrapper = bin_folder / name
            wrapper.write_text(_WRAPPER.format(log=self._log, real=real))
            wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        foreign = ("SLURM_", "SNAKEMAKE_", "UNBROKEN_")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.environment = {**clean, **cluster.environment, "PATH": f"{bin_folder}:{behind}"}

    def folder(self, runs: dict[str, object]) -> Path:
        """A working directory with these runs."""
        folder = Path(mkdtemp(dir=self._base))
        (folder / "config").mkdir()
        (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": runs}))
        return folder

    def calls(self, since: float) -> list[Call]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [Call(**line) for line in lines if line["when"] >= since]

    def starts(self) -> dict[str, float]:
        """When the controller gave each job its nodes, by its number, from the controller's log."""
        return self._times(_STARTED)

    def ends(self) -> dict[str, float]:
        """When the controller heard that each job's script had ended."""
        return self._times(_LEFT)

    def _times(self, line: re.Pattern[str]) -> dict[str, float]:
        text = (self.cluster.folder / "log" / "slurmctld.log").read_text(errors="replace")
        return {found["job"]: datetime.fromisoformat(found["when"]).timestamp() for found in line.finditer(text)}

    def wait_for_jobs(self) -> None:
        self.cluster.wait_until(lambda: not self.cluster.jobs(), PATIENCE_SECONDS)


# In a shell, which starts in a millisecond: a job asks squeue before its work begins.
_WRAPPER = """\
#!/bin/sh
when=$(date +%s.%N)
name=${{0##*/}}
if [ "$name" = sbatch ]; then said=$({real} "$@"); code=$?; else said= code=; fi
printf '{{"when": %s, "name": "%s", "said": "%s"}}\\n' "$when" "$name" "$said" >>{log}
[ -n "$code" ] || exec {real} "$@"
[ -z "$said" ] || printf '%s\\n' "$said"
exit "$code"
"""


@contextmanager
def lab(nodes: int = 5, is_default: bool = False) -> Iterator[Lab]:
    """A cluster, with Slurm's own SchedulerParameters if `is_default`; afterwards nothing is left."""
    cluster = Cluster(Path(mkdtemp(prefix="unbroken_bench_")), nodes).start()
    base = Path(mkdtemp(prefix="unbroken_bench_work_"))
    try:
        # Else 26.05 does not write down what backfill starts, and `_STARTED` misses it.
        cluster.run("scontrol", "setdebug", "verbose")
        cluster.run("scontrol", "setdebugflags", "+hetjob")
        with default_scheduling(cluster) if is_default else nullcontext():
            yield Lab(cluster, base)
    finally:
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)


# --- hand-off ---


def by_hand(here: Lab, seconds: float, segments: int, is_array: bool) -> list[dict[str, float]]:
    """The payload as users chain it: `--array=1-N%1`, or jobs behind each other."""
    folder = here.folder({})
    script = f"{sys.executable} -IS {HERE / 'payload.py'} {folder / 'payload.jsonl'} {seconds}"
    words = ["sbatch", "--parsable", "--output=/dev/null", f"--chdir={folder}", "--wrap", script]
    if is_array:
        _call(here, [*words, f"--array=1-{segments}%1"])
    else:
        job = ""
        for _ in range(segments):
            job = _call(here, [*words, f"--dependency=afterok:{job}"] if job else words)
    here.wait_for_jobs()
    marks = [json.loads(line) for line in (folder / "payload.jsonl").read_text().splitlines()]
    return [{"scheduler, process start": after["start"] - before["end"]} for before, after in pairwise(marks)]


def chain(here: Lab, seconds: float, segments: int, profile: str, *words: str) -> list[dict[str, float]]:
    """The same payload as a run of unbroken, and where the seconds between its segments went."""
    folder = here.folder({"bench": _counting(seconds, segments)})
    began = time.time()
    command = [
        *SNAKEMAKE,
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--profile",
        str(ROOT / "profiles" / profile),
        *words,
    ]
    with (folder / "driver.txt").open("wb") as output:
        done = subprocess.run(command, cwd=folder, env=here.environment, stdout=output, stderr=output)
    if done.returncode:
        sys.exit(f"{folder}: {(folder / 'driver.txt').read_text()[-2000:]}")
    here.wait_for_jobs()
    marks = read_marks(folder)
    history = (folder / "results" / "bench" / "history.jsonl").read_text().splitlines()
    jobs = [json.loads(line)["slurm_job"] for line in history]
    submitted = {call.said: call.when for call in here.calls(began) if call.name == "sbatch"}
    starts, ends = here.starts(), here.ends()
    records = sorted((folder / "results" / "bench" / "segments").glob("*.json"))
    for mark, record in zip(marks, records, strict=True):
        mark["record"] = record.stat().st_mtime
    return [
        _parts(before, after, submitted.get(job.partition("_")[0], began), ends[job_before], starts[job])
        for (before, after), (job_before, job) in zip(pairwise(marks), pairwise(jobs), strict=True)
    ]


def called(here: Lab, seconds: float, segments: int, executor: str) -> list[dict[str, float]]:
    """The same as a rule of somebody's own with `unbroken exec` in it; one segment more, which is done at once."""
    folder = here.folder({})
    again = f"    resources: segments={segments + 1}\n" if executor == "unbroken" else ""
    exec_words = f"--minutes {seconds / 60:.4f} --keep state --saved-by rename --save-minutes 0 --outputs done"
    program = f"{sys.executable} -IS {HERE / 'called.py'} {folder / 'payload.jsonl'} {segments + 1}"
    line = f"{sys.executable} -m unbroken exec --name bench {exec_words} -- {program}"
    (folder / "Snakefile").write_text(f'rule bench:\n    output: "done"\n{again}    shell: "{line}"\n')
    retries = ["--retries", "0" if executor == "unbroken" else str(segments)]
    command = [*SNAKEMAKE, "--profile", str(ROOT / "profiles" / "slurm"), "--executor", executor, *retries]
    with (folder / "driver.txt").open("wb") as output:
        done = subprocess.run(command, cwd=folder, env=here.environment, stdout=output, stderr=output)
    if done.returncode:
        sys.exit(f"{folder}: {(folder / 'driver.txt').read_text()[-2000:]}")
    here.wait_for_jobs()
    marks = [json.loads(line) for line in (folder / "payload.jsonl").read_text().splitlines()]
    return [{"all of it": after["start"] - before["end"]} for before, after in pairwise(marks)]


def _counting(seconds: float, segments: int) -> dict[str, object]:
    return {
        "engine": "toy",
        "segments": segments,
        "segment_minutes": seconds / 60,
        "enter": [sys.executable, str(HERE / "marked_toy.py")],
        "settings": {"goal": 10**9, "step_seconds": 0.02},
    }


def _parts(
    before: dict[str, float], after: dict[str, float], submitted: float, left: float, started: float
) -> dict[str, float]:
    """A job that was submitted before the record of the one before waits until that one has left, else for nobody.

    The time of a record is that at which a driver, which has seen it, touched it; without a driver, its own.
    """
    record = before["record"]
    is_queued = submitted <= record
    free = left if is_queued else submitted
    return {
        "program: notices its end, saves": before["program_end"] - before["last_step"],
        "segment: publish, record; driver: sees it": record - before["program_end"],
        "driver: submits": 0.0 if is_queued else submitted - record,
        "job before: leaves": left - record if is_queued else 0.0,
        "Slurm: gives the next job its node": started - free,
        "next job: to its script (plain plugin: two Snakemakes)": after["script_start"] - started,
        "segment: imports, lease, select, verify": after["program_start"] - after["script_start"],
        "program: start, resume": after["first_step"] - after["program_start"],
    }


# --- waiting ---


def waiting(here: Lab, runs: int, seconds: float, executor: str) -> Load:
    """What a driver costs while so many jobs wait in the queue, whose nodes somebody else has."""
    blocker = here.cluster.sbatch("sleep 36000", "--nodes=4", "--exclusive", "--partition=short", "--time=10")
    here.cluster.wait_until(lambda: here.cluster.state(blocker) == "RUNNING")
    # An administrator may go beyond the partition's limit, which a thousand submissions reach.
    here.cluster.run("scontrol", "update", f"jobid={blocker}", "timelimit=600")
    return _driving(here, runs, seconds, executor, "pending")


def working(here: Lab, runs: int, seconds: float) -> Load:
    """What a driver and its jobs cost the controller while so many segments are at work, none of them near its end."""
    return _driving(here, runs, seconds, "unbroken", "running")


def _driving(here: Lab, runs: int, seconds: float, executor: str, state: str) -> Load:
    slow = {
        "engine": "toy",
        "segments": 3,
        "segment_minutes": 9,
        "mem_mb": 500,
        "settings": {"goal": 10**9, "step_seconds": 1},
    }
    folder = here.folder({f"run{number:04d}": slow for number in range(runs)})
    words = ["--profile", str(ROOT / "profiles" / "slurm"), "--executor", executor, "--jobs", str(runs)]
    with (folder / "driver.txt").open("wb") as output:
        command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), *words]
        driver = subprocess.Popen(command, cwd=folder, env=here.environment, stdout=output, stderr=output)
    try:
        here.cluster.wait_until(lambda: len(_arrays(here.cluster.jobs(state))) == runs, PATIENCE_SECONDS)
        if state == "running":
            here.cluster.wait_until(lambda: len(list(folder.glob("results/*/work/*/progress.json"))) == runs)
        began, cpu = time.time(), _cpu_seconds(driver.pid)
        time.sleep(seconds)
        counts = Counter(call.name for call in here.calls(began))
        minutes = (time.time() - began) / 60
        used = (_cpu_seconds(driver.pid) - cpu) / minutes
        peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{driver.pid}/status").read_text())[1]) / 1024
        return Load({name: counts[name] / minutes for name in ASKING}, used, peak)
    finally:
        driver.kill()
        driver.wait()
        here.cluster.run("scancel", "--user", here.cluster.plan.user)
        with suppress(Exception):
            here.wait_for_jobs()


def _arrays(jobs: Sequence[str]) -> set[str]:
    """Return the numbers of jobs, and of the arrays of tasks, once each."""
    return {job.partition("_")[0] for job in jobs}


def _cpu_seconds(pid: int) -> float:
    """Of the process and its children that have ended: proc(5) stat, fields 14 to 17."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _call(here: Lab, words: Sequence[str]) -> str:
    return subprocess.run(words, env=here.environment, capture_output=True, text=True, check=True).stdout.strip()
