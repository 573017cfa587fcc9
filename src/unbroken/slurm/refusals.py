"""What sbatch means when it takes no job: come back later, or never."""

from __future__ import annotations

import re

# Slurm's own words, slurm_errno.c; the same from 20.11 to 25.05.
_TRANSIENT = (
    "Unable to contact slurm controller",
    "Unable to contact slurmctld",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Slurm temporarily unable to accept job",
    "Resource temporarily unavailable",
    "Transport endpoint is not connected",
)
# One text for several limits; the number of jobs is the one that time heals [slurm_errno.c].
QUEUE_IS_FULL = ("job submit limit", "AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit", "AssocGrpSubmitJobsLimit")
# At the start of a line, or quoted by the plugin.  A site's own check (job_submit) says why in earlier lines.
_SAID = re.compile(r"(?:^|')(sbatch: (?:error|fatal): .+)", re.MULTILINE)


def is_transient(text: str) -> bool:
    """True if the same command may succeed later."""
    return any(words in text for words in _TRANSIENT) or is_queue_full(text)


def is_no_array(said: str) -> bool:
    """True if the site takes no array of that size, or none at all (MaxArraySize)."""
    return "Invalid job array specification" in said


def is_queue_full(text: str) -> bool:
    """True if the site allows no more jobs in the queue now."""
    return any(words in text for words in QUEUE_IS_FULL)


def refusal(text: str) -> str:
    """sbatch's own words in a text, if it will never take this job as it is; else nothing."""
    if is_transient(text):
        return ""
    return "; ".join(dict.fromkeys(line.strip().rstrip("'.") for line in _SAID.findall(text)))
