"""Answers of sbatch that say nothing about the job: the controller is away, or there is no room in the queue now."""

from __future__ import annotations

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


def is_transient(text: str) -> bool:
    """True if the same command may succeed later."""
    return any(words in text for words in _TRANSIENT) or is_queue_full(text)


def is_queue_full(text: str) -> bool:
    """True if the site allows no more jobs in the queue now."""
    return any(words in text for words in QUEUE_IS_FULL)
