"""What sbatch means when it takes no job: come back later, ask for less, or never."""

from __future__ import annotations

import re
from enum import Enum

# Slurm's own words, slurm_errno.c; the same from 20.11 to 26.05, as far as a release has them.
_TRANSIENT = (
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
# One text for several limits; the number of jobs is the one that time heals [slurm_errno.c].
QUEUE_IS_FULL = ("job submit limit", "AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit", "AssocGrpSubmitJobsLimit")
# MaxJobCount of the whole site: sbatch itself has tried again for two minutes [measured, 22.05]; the second text from
# 26.05 on.
SITE_IS_FULL = ("Resource temporarily unavailable", "MaxJobCount limit reached")
# At the start of a line, or quoted by the plugin.  A site's own check (job_submit) says why in earlier lines.
_SAID = re.compile(r"(?:^|')(sbatch: (?:error|fatal): .+)", re.MULTILINE)


class Refusal(Enum):
    """What a refusal asks for."""

    NO_ARRAY = "an array of that size, or any at all, is not taken (MaxArraySize)"
    FULL = "the queue takes no more jobs of this user now"
    SITE_FULL = "the queue takes no more jobs of anybody now (MaxJobCount)"
    LATER = "the same may be taken later"
    NEVER = "the job is never taken as it is"


def kind_of(said: str) -> Refusal:
    """Return what to do after sbatch has said this."""
    if "Invalid job array specification" in said:
        return Refusal.NO_ARRAY
    if is_queue_full(said):
        return Refusal.FULL
    if any(words in said for words in SITE_IS_FULL):
        return Refusal.SITE_FULL
    return Refusal.NEVER if refusal(said) else Refusal.LATER


def is_transient(text: str) -> bool:
    """Return True if the same command may succeed later."""
    return any(words in text for words in (*_TRANSIENT, *SITE_IS_FULL)) or is_queue_full(text)


def is_queue_full(text: str) -> bool:
    """Return True if the site allows no more jobs of this user in the queue now."""
    return any(words in text for words in QUEUE_IS_FULL)


def refusal(text: str) -> str:
    """Return sbatch's own words in a text, if it will never take this job as it is; else nothing."""
    if is_transient(text):
        return ""
    return "; ".join(dict.fromkeys(line.strip().rstrip("'.") for line in _SAID.findall(text)))
