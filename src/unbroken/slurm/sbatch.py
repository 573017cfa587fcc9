"""Submit a job by sbatch, find what it means when it takes none, and check the options that a user adds."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from unbroken.slurm.client import ask, setting

# sbatch itself tries for a while to reach a controller that is away.  Less than others wait for the process that
# submits (unbroken.job.submissions).
PATIENCE_SECONDS = 150.0
# The end of the line after which it does so at MaxJobCount: "Slurm temporarily unable to accept job, ..." or, from
# 26.05 on, "Slurm job queue full, ..." [sbatch.c].
SLEEPS = "sleeping and retrying"
_JOB = re.compile(r"^(\d+)(?:;\S*)?\s*$", re.MULTILINE)
# From this release on backfill gives a job of `--time-min` all the time that is free.  With 4 minutes free and
# `--time=10 --time-min=1` 26.05.3 gives it the 4 minutes, 22.05.8 exactly the least [measured].
ALL_TIME = (25, 5, 3)


# MaxJobCount of the whole site: sbatch itself has tried again for two minutes [measured, 22.05]; the second text from
# 26.05 on.
SITE_IS_FULL = ("Resource temporarily unavailable", "MaxJobCount limit reached")


class Refusal(Enum):
    """Name what to do after sbatch has taken no job, by Slurm's own words; the first that fits counts.

    They are the same from 20.11 to 26.05 as far as a release has them [slurm_errno.c].
    """

    # An array of that size, or any at all, is not taken (MaxArraySize).
    NO_ARRAY = ("Invalid job array specification",)
    # The queue takes no more jobs of this user now.  One text for several limits: time heals the number of jobs.
    FULL = (
        "job submit limit",
        "AssocMaxSubmitJobLimit",
        "QOSMaxSubmitJobPerUserLimit",
        "AssocGrpSubmitJobsLimit",
    )
    # The queue takes no more jobs of anybody now.
    SITE_FULL = SITE_IS_FULL
    # The same may be taken later.
    LATER = (
        "Unable to contact slurm controller",
        "Unable to contact slurmctld",
        "Socket timed out",
        "Connection refused",
        "Connection timed out",
        "Zero Bytes were transmitted or received",
        "Slurm backup controller in standby mode",
        "Controller is in standby mode",
        "Rate limit exceeded",
        "Slurm temporarily unable to accept job",
        "Transport endpoint is not connected",
    )
    # The job is never taken as it is.
    NEVER = ("sbatch: error: ", "sbatch: fatal: ")


def kind_of(said: str) -> Refusal:
    """Return what to do after sbatch has said this."""
    return next((kind for kind in Refusal if any(word in said for word in kind.value)), Refusal.LATER)


@dataclass(frozen=True)
class SbatchAnswer:
    """Hold the answer of sbatch: the number of the job that it took; else its words, and if a TERM ended it."""

    job_id: str
    said: str = ""
    is_ended: bool = False


def sbatch(words: Sequence[str]) -> SbatchAnswer:
    """Submit a job; `words` hold --parsable."""
    try:
        done = _run(words)
    except OSError as error:
        return SbatchAnswer("", f"sbatch: {error}")
    found = _JOB.search(done.stdout) if done.returncode == 0 else None
    return SbatchAnswer(found[1]) if found else SbatchAnswer("", _said(done), done.returncode == -signal.SIGTERM)


def gives_all_time() -> bool:
    """Return True if the controller's release gives a job all the time that is free; False if it does not answer."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", setting("SLURM_VERSION"))
    return found is not None and tuple(map(int, found.groups())) >= ALL_TIME


def time_min_words(least_minutes: float | None) -> list[str]:
    """Return the words for a job that may start with less than its time limit, where the queue has no more."""
    return [f"--time-min={math.ceil(least_minutes)}"] if least_minutes else []


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip() or done.stdout.strip() or f"sbatch: exit code {done.returncode}"


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run sbatch, but end it where it would try again for two minutes because the site's queue is full.

    It says so at once, and sleeps for a second first; ended then, it leaves nothing in the queue [measured, 22.05].
    """
    child = subprocess.Popen(
        ("sbatch", *words),
        env=_outside(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(PATIENCE_SECONDS, child.kill)
    late.start()
    said = []
    with child:
        for line in child.stderr or ():
            said.append(line)
            if SLEEPS in line:
                child.kill()
                said.append(f"sbatch: error: {SITE_IS_FULL[0]}\n")
        stdout = child.stdout.read() if child.stdout else ""
    late.cancel()
    return subprocess.CompletedProcess(words, child.returncode, stdout, "".join(said))


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as outside of the job, whose variables would bend what sbatch does."""
    return {
        key: value
        for key, value in environment.items()
        if key == "SLURM_CONF" or not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }


# --- options ---

# The options that a key says, by that key.
_KEYS = {
    "partition": ("--partition", "-p"),
    "account": ("--account", "-A"),
    "qos": ("--qos", "-q"),
    "constraint": ("--constraint", "-C"),
    "segment_minutes": ("--time", "-t", "--time-min"),
    "mem_mb": ("--mem", "--mem-per-cpu", "--mem-per-gpu"),
    "threads": ("--cpus-per-task", "-c", "--cpus-per-gpu"),
    "tasks": ("--ntasks", "-n", "--ntasks-per-gpu"),
    "nodes": ("--nodes", "-N"),
    "gpus": ("--gpus", "-G", "--gres", "--gpus-per-node", "--gpus-per-task"),
    "warn_seconds": ("--signal",),
}
# The options without which a chain of segments is none.
_OWN = (
    *("--job-name", "-J", "--output", "-o", "--error", "-e", "--parsable", "--export", "--comment", "--workdir"),
    *("--chdir", "-D", "--clusters", "-M", "--wrap", "--array", "-a", "--dependency", "-d", "--requeue"),
    *("--no-requeue", "--wait", "-W", "--test-only"),
)
# Slurm looks at its jobs from time to time and may signal this much sooner than asked [man sbatch, --signal].
EARLY_SECONDS = 60
_OWNERS = {option: key for key, options in _KEYS.items() for option in options} | dict.fromkeys(_OWN, "")


def wrong_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield for each word that sbatch must not be given its place, counted from 1, and what is wrong with it."""
    found = ((number + 1, _wrong(words, number)) for number in range(len(words)))
    yield from ((number, text) for number, text in found if text)


def _wrong(words: Sequence[str], number: int) -> str:
    """Return what is wrong with a word; empty if nothing is."""
    before, word, following = ["", *words, ""][number : number + 3]
    key = _OWNERS.get(_option(word))
    if key is not None:
        return f"found '{word}', which unbroken sets itself; " + (f"type `{key}:` instead" if key else "leave it out")
    if not word.startswith("-") and (not before.startswith("-") or "=" in before):
        return f"found '{word}', allowed: options of sbatch, such as --exclude=node7"
    nodes = _excluded_by(word, following)
    # Nodes on which a run fails are added to these, which a file, or nothing, leaves no place for.
    if nodes is None or (nodes and not nodes.startswith("-") and "/" not in nodes):
        return ""
    found = f"{word} {nodes}" if nodes == following and nodes else word
    return f"found '{found}', allowed: the names of nodes, such as --exclude=node7,node8"


def _option(word: str) -> str:
    """Return `--mem` of `--mem=4G` and of `--mem 4G`, `-p` of `-pgpu`."""
    return word[:2] if re.match(r"-[A-Za-z]", word) else re.split(r"[=\s]", word)[0]


def warning_words(job_minutes: float, warn_seconds: int) -> list[str]:
    """Return the words by which Slurm warns a job; none if it would do so in the first half, and so end its work."""
    latest = job_minutes * 60 / 2 - EARLY_SECONDS
    return [f"--signal=URG@{warn_seconds}"] if 0 < warn_seconds <= latest else []


def without_exclude(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the other words, and the nodes that they exclude."""
    rest, nodes = [], list[str]()
    left = iter(words)
    for word in left:
        excluded = _excluded_by(word, "")
        if excluded is None:
            rest.append(word)
        else:
            nodes.append(excluded or next(left, ""))
    return rest, nodes


def more_to_exclude(already: Sequence[str], avoid: Sequence[str], spare: int) -> list[str]:
    """Return those of `avoid` to exclude in addition to lists such as `node[1-3],big7`: in all at most `spare`.

    A job that no node is left for waits for ever (BadConstraints), or is refused.  None where Slurm does not say which
    nodes these lists name.
    """
    lists = ",".join(filter(None, already))
    said = ask("scontrol", "show", "hostnames", lists) if "[" in lists else lists.replace(",", " ")
    if said is None:
        return []
    excluded = set(said.split())
    return [node for node in avoid if node not in excluded][: max(0, spare - len(excluded))]


def _excluded_by(word: str, following: str) -> str | None:
    """Return what `--exclude=a`, `--exclude a`, `-x a` and `-xa` name, with the word after; None for other words."""
    option = re.match(r"(?:--exclude(?:=|$)|-x)(.*)", word)
    return None if option is None else option[1] or ("" if "=" in word else following)
