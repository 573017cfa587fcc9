"""Asking Slurm's commands; nothing else in unbroken starts them."""

from __future__ import annotations

import os
import shutil
import subprocess

# A controller under load answers late; a segment or a user must not hang on it for longer.
PATIENCE_SECONDS = 30.0
# Variables with which users bend the output that they like to read [man squeue, sinfo, sacct: ENVIRONMENT VARIABLES].
_BENDING = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_")
# strftime(3): seconds since 1970, so no time zone has to be guessed [man squeue: SLURM_TIME_FORMAT].
_UNIX_TIME = {"SLURM_TIME_FORMAT": "%s"}
# All tasks of an array that wait, not the first 64 letters of them [man squeue: SLURM_BITSTR_LEN].
_WHOLE_ARRAYS = {"SLURM_BITSTR_LEN": "0"}


def has_command(name: str) -> bool:
    """True if the command is installed here."""
    return shutil.which(name) is not None


def ask(*words: str, patience_seconds: float = PATIENCE_SECONDS) -> str | None:
    """What a command of Slurm prints, times as Unix seconds; None if it is missing, refuses or does not answer."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_BENDING)}
    try:
        done = subprocess.run(
            words,
            env={**kept, **_UNIX_TIME, **_WHOLE_ARRAYS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
