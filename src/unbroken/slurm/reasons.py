"""Why a job waits, in Slurm's words: what to do about it, and whether it starts by itself.

The words are those of `squeue --format=%r` in Slurm 22.05 to 24.11 [man squeue: JOB REASON CODES].
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# A job keeps what it was submitted with.
_AGAIN = "then type scancel {id} and start snakemake again"
# Reasons for which a job waits for ever unless the user does something; in both tables the first that fits counts.
_NEEDS_HAND = {
    "JobHeldUser": "it is held; type: scontrol release {id}",
    "JobHeldAdmin": "an administrator holds it; ask them",
    ".*requeued held|JobHoldMaxRequeue": "it could not be started and is held; type: scontrol release {id}",
    "DependencyNeverSatisfied": "it waits for a job that ended otherwise; type: scancel {id}",
    "BadConstraints": f"no node has all that it asks for; change constraint, gpu_type or mem_mb, {_AGAIN}",
    "InvalidAccount|AccountNotAllowed": f"its account may not be used there; change account, {_AGAIN}",
    "InvalidQOS|QOSNotAllowed": f"its QOS may not be used there; change qos, {_AGAIN}",
    "ReservationDeleted": f"its reservation is gone; take --reservation out of slurm_extra or extra, {_AGAIN}",
    "PartitionTimeLimit": f"it asks for more time than its partition gives; lower segment_minutes, {_AGAIN}",
    "PartitionNodeLimit": f"it asks for more nodes than its partition gives a job; lower nodes, {_AGAIN}",
    "DeadLine": f"it cannot end before its deadline; take --deadline out of slurm_extra or extra, {_AGAIN}",
    "(Assoc|QOS)MaxWallDurationPerJob.*|(QOS|Association)TimeLimit": (
        f"it asks for more time than its account or QOS gives a job; lower segment_minutes, {_AGAIN}"
    ),
    "(Assoc|QOS)Max.*Per(Job|Node).*|MaxMemPerLimit": (
        f"it asks for more than its account or QOS gives a job (sacctmgr show assoc, qos); ask for less, {_AGAIN}"
    ),
    "QOSMin.*": f"it asks for less than its QOS wants of a job; change qos, or ask for more, {_AGAIN}",
    # A sum over the past, which no end of a job brings back; `RunMinutes` are of what is in use at present.
    "(Assoc|QOS)Grp((?!.*RunMinutes).*Minutes.*|WallLimit)": (
        "the hours of your account or QOS are used up; look at sshare, and ask for more, or change account"
    ),
}
_STARTS_BY_ITSELF = {
    "(Assoc|QOS)Grp.*": "the jobs of your account or QOS use all that they may at a time",
    "AssocMaxJobsLimit|((Assoc|QOS)Max|Max).*(PerUser|PerAccount|Submit).*": (
        "your jobs use all that they may at a time"
    ),
    "(QOS|Association)(Job|Resource)Limit": "a limit of your account or QOS; look at: sacctmgr show assoc",
    "QOSUsageThreshold": "you have used more than your share lately; look at: sshare",
    "ReqNodeNotAvail|NodeDown|FrontEndDown|Nodes required for job are DOWN": (
        "a node that it needs is down or drained; look at: sinfo -R"
    ),
    "PartitionDown|PartitionInactive": "its partition is down; look at: sinfo",
    "Licenses|Reservation": "it waits for that; look at: scontrol show licenses, scontrol show reservation",
    "JobArrayTaskLimit|Dependency": "it follows the task or job before it",
    "BeginTime": "Slurm starts it again shortly",
    "Resources": "it is next as soon as there is room",
    "Priority": "others come first",
}


def advice(reason: str, job_id: str) -> str:
    """Return what to do about a job that waits, or why nothing need be done; empty where there is nothing to say."""
    return (_found(_NEEDS_HAND, reason) or _found(_STARTS_BY_ITSELF, reason)).format(id=job_id)


def needs_hand(reason: str) -> bool:
    """Return True if a job that waits for this reason waits for ever unless the user does something."""
    return bool(_found(_NEEDS_HAND, reason)) or ("held" in reason and not _found(_STARTS_BY_ITSELF, reason))


def _found(table: Mapping[str, str], reason: str) -> str:
    # "ReqNodeNotAvail, UnavailableNodes:node[2-4]"; newer releases write "launch_failed_requeued_held".
    word = reason.replace("_", " ").partition(",")[0].strip()
    return next((text for pattern, text in table.items() if re.fullmatch(pattern, word)), "")
