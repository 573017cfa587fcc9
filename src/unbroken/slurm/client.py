"""The client of Slurm's commands: how they are asked, for how long, and how their answers fall into fields.

Lists are asked for by `--format` with a separator: `--json` of Slurm 22.05 ignores the filters and fetches the whole
queue.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence

# A controller under load answers late; a driver must not hang on it for longer.
PATIENCE_SECONDS = 30.0
# Inside a segment, whose time is the user's, and where the user waits for `unbroken status`.
SHORT_PATIENCE_SECONDS = 10.0
SEPARATOR = "|"
# Variables with which users bend the output that they like to read [man squeue, sinfo, sacct: ENVIRONMENT VARIABLES].
_BENDING = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_")
# Seconds since 1970, so no time zone has to be guessed [man squeue: SLURM_TIME_FORMAT; strftime(3)]; and all tasks of
# an array that wait, not the first 64 letters of them [man squeue: SLURM_BITSTR_LEN].
_ANSWERS = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


def has_command(name: str) -> bool:
    """Return True if the command is installed here."""
    return shutil.which(name) is not None


def ask(*words: str, patience_seconds: float = PATIENCE_SECONDS) -> str | None:
    """Return what a command of Slurm prints; None if it is missing, refuses or does not answer."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_BENDING)}
    try:
        done = subprocess.run(
            words,
            env={**kept, **_ANSWERS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def table(
    *words: str, columns: Sequence[str], patience_seconds: float = PATIENCE_SECONDS
) -> list[tuple[str, ...]] | None:
    """Return what squeue, sinfo, sacct or sacctmgr list in these columns, in their own names; None if no answer.

    Only the last column may hold a separator.
    """
    text = ask(*words, *_layout(words[0], columns), patience_seconds=patience_seconds)
    return None if text is None else rows_in(text, len(columns))


def rows_in(text: str, count: int) -> list[tuple[str, ...]]:
    """Return the lines of a text that have at least so many fields, without the space around each."""
    rows = (tuple(field.strip() for field in line.split(SEPARATOR, count - 1)) for line in text.splitlines())
    return [row for row in rows if len(row) == count]


def job_record(job_id: str) -> dict[str, str]:
    """Return what `scontrol show job` prints of a job, by Slurm's names; nothing if it does not know it, or answer."""
    line = (ask("scontrol", "--oneliner", "show", "job", job_id) or "").partition("\n")[0]
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def number_in(text: str) -> float | None:
    """Return a number, such as Unix seconds; None for `N/A`, `Unknown`, ..."""
    return float(text) if text.isdecimal() else None


def setting(name: str, patience_seconds: float = PATIENCE_SECONDS) -> str:
    """Return a value of the controller's configuration; empty if it does not answer, or has none of that name."""
    text = ask("scontrol", "show", "config", patience_seconds=patience_seconds) or ""
    found = (line.partition("=") for line in text.splitlines())
    return next((value.strip() for key, _, value in found if key.strip() == name), "")


def may_ask_here(cluster: str) -> bool:
    """Return True unless the commands of this machine speak for another cluster than the one named; '' is not known.

    The number of a job means something on its own cluster alone.  `--clusters` would reach the other one only where
    both share an accounting database, and fail elsewhere.
    """
    own = own_cluster() if cluster else ""
    return not own or own.casefold() == cluster.casefold()


def own_cluster() -> str:
    """Return the name of this machine's cluster, by the job around this process or by the controller; '' if unknown."""
    try:
        return os.environ.get("SLURM_CLUSTER_NAME") or _cluster_of_controller()
    except LookupError:
        return ""


@functools.cache
def _cluster_of_controller() -> str:
    """Raise LookupError, which is not kept, if there is no answer."""
    if not (name := setting("ClusterName", SHORT_PATIENCE_SECONDS)):
        raise LookupError("scontrol")
    return name


def _layout(command: str, columns: Sequence[str]) -> list[str]:
    """Return the options for a layout [man squeue, sinfo: --format; man sacct, sacctmgr: --parsable2]."""
    if command in ("squeue", "sinfo"):
        return ["--noheader", f"--format={SEPARATOR.join(columns)}"]
    names = ",".join(columns)
    return ["--noheader", "--parsable2", f"format={names}" if command == "sacctmgr" else f"--format={names}"]
