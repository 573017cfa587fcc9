"""Why a job waits, in Slurm's words: what to do about it, and whether it starts by itself.

The words are those of `squeue --format=%r` in Slurm 22.05 to 24.11 [man squeue: JOB REASON CODES].
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A job keeps what it was submitted with.
_AGAIN = "then type scancel {id} and start snakemake again"


@dataclass(frozen=True)
class _Kind:
    """Reasons that one piece of advice serves; `needs_hand` if the job waits for ever unless somebody does it."""

    words: re.Pattern[str]
    advice: str
    needs_hand: bool = True


def _kind(words: str, advice: str, needs_hand: bool = True) -> _Kind:
    return _Kind(re.compile(words), advice, needs_hand)


# The first that fits counts.
_KINDS = (
    _kind("JobHeldUser", "it is held; type: scontrol release {id}"),
    _kind("JobHeldAdmin", "an administrator holds it; ask them"),
    _kind(".*requeued held|JobHoldMaxRequeue", "it could not be started and is held; type: scontrol release {id}"),
    _kind("DependencyNeverSatisfied", "it waits for a job that ended otherwise; type: scancel {id}"),
    _kind("BadConstraints", f"no node has all that it asks for; change constraint, gpu_type or mem_mb, {_AGAIN}"),
    _kind("InvalidAccount|AccountNotAllowed", f"its account may not be used there; change account, {_AGAIN}"),
    _kind("InvalidQOS|QOSNotAllowed", f"its QOS may not be used there; change qos, {_AGAIN}"),
    _kind("ReservationDeleted", f"its reservation is gone; take --reservation out of slurm_extra or extra, {_AGAIN}"),
    _kind("PartitionTimeLimit", f"it asks for more time than its partition gives; lower segment_minutes, {_AGAIN}"),
    _kind("PartitionNodeLimit", f"it asks for more nodes than its partition gives a job; lower nodes, {_AGAIN}"),
    _kind("DeadLine", f"it cannot end before its deadline; take --deadline out of slurm_extra or extra, {_AGAIN}"),
    _kind(
        "(Assoc|QOS)MaxWallDurationPerJob.*|(QOS|Association)TimeLimit",
        f"it asks for more time than its account or QOS gives a job; lower segment_minutes, {_AGAIN}",
    ),
    _kind(
        "(Assoc|QOS)Max.*Per(Job|Node).*|MaxMemPerLimit",
        f"it asks for more than its account or QOS gives a job (sacctmgr show assoc, qos); ask for less, {_AGAIN}",
    ),
    _kind("QOSMin.*", f"it asks for less than its QOS wants of a job; change qos, or ask for more, {_AGAIN}"),
    # Before those of what is in use at present: a sum over the past, which no end of a job brings back.
    _kind("(Assoc|QOS)Grp.*RunMinutes.*", "the jobs of your account or QOS use all that they may at a time", False),
    _kind(
        "(Assoc|QOS)Grp(.*Minutes.*|WallLimit)",
        "the hours of your account or QOS are used up; look at sshare, and ask for more, or change account",
    ),
    _kind("(Assoc|QOS)Grp.*", "the jobs of your account or QOS use all that they may at a time", False),
    _kind("AssocMaxJobsLimit", "your account runs as many jobs as it may", False),
    _kind("QOSMaxJobsPerUserLimit", "you run as many jobs as you may", False),
    _kind("((Assoc|QOS)Max|Max).*(PerUser|PerAccount|Submit).*", "your jobs use all that they may at a time", False),
    _kind(
        "(QOS|Association)(Job|Resource)Limit", "a limit of your account or QOS; look at: sacctmgr show assoc", False
    ),
    _kind("QOSUsageThreshold", "you have used more than your share lately; look at: sshare", False),
    _kind("ReqNodeNotAvail|NodeDown|FrontEndDown", "a node that it needs is down or drained; look at: sinfo -R", False),
    _kind("Nodes required for job are DOWN", "the nodes that it needs are down or drained; look at: sinfo -R", False),
    _kind("PartitionDown", "its partition is down; look at: sinfo", False),
    _kind("PartitionInactive", "its partition is inactive; look at: sinfo", False),
    _kind("Licenses", "a license that it needs is in use; look at: scontrol show licenses", False),
    _kind("Reservation", "its reservation has not begun; look at: scontrol show reservation", False),
    _kind("JobArrayTaskLimit", "it follows the task of its array before it", False),
    _kind("Dependency", "it follows the job before it", False),
    _kind("BeginTime", "Slurm starts it again shortly", False),
    _kind("Resources", "it is next as soon as there is room", False),
    _kind("Priority", "others come first", False),
)


def advice(reason: str, job_id: str) -> str:
    """What to do about a job that waits, or why nothing need be done; '' where there is nothing to say."""
    kind = _kind_of(reason)
    return kind.advice.format(id=job_id) if kind else ""


def needs_hand(reason: str) -> bool:
    """True if a job that waits for this reason waits for ever unless somebody does something."""
    kind = _kind_of(reason)
    return kind.needs_hand if kind else "held" in reason


def _kind_of(reason: str) -> _Kind | None:
    # "ReqNodeNotAvail, UnavailableNodes:node[2-4]"; newer releases write "launch_failed_requeued_held".
    word = reason.replace("_", " ").partition(",")[0].strip()
    return next((kind for kind in _KINDS if kind.words.fullmatch(word)), None)
