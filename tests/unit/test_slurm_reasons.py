"""Why a job waits: each reason that needs a hand says what to type, the others why nothing need be done."""

import re

import pytest

from unbroken.config.package_files import root_folder
from unbroken.slurm.job import ListedJob
from unbroken.slurm.reasons import advice, needs_hand

# strings libslurmfull.so, Slurm 22.05: what a limit of one job is called.
OF_ONE_JOB = """
AssocMaxBBPerJob AssocMaxBillingMinutesPerJob AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode
AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxNodePerJobLimit MaxMemPerLimit
QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxGRESPerJob QOSMaxMemoryPerJob
QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit AssocMaxWallDurationPerJobLimit QOSTimeLimit AssociationTimeLimit
QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory QOSMinNode PartitionTimeLimit PartitionNodeLimit BadConstraints
InvalidAccount AccountNotAllowed InvalidQOS QOSNotAllowed ReservationDeleted DeadLine
"""
# What is in use by others of yours, or will come back: such a job starts by itself.
OF_ALL_JOBS = """
AssocGrpBilling AssocGrpCPURunMinutesLimit AssocGrpCpuLimit AssocGrpGRES AssocGrpJobsLimit AssocGrpMemLimit
AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocMaxJobsLimit AssocMaxSubmitJobLimit QOSGrpCpuLimit QOSGrpGRES
QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpMemoryRunMinutes QOSMaxCpuPerUserLimit QOSMaxGRESPerUser
QOSMaxJobsPerUserLimit QOSMaxMemoryPerUser QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit MaxCpuPerAccount
MaxGRESPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount AssociationJobLimit QOSResourceLimit QOSUsageThreshold
Licenses NodeDown PartitionDown PartitionInactive Reservation BeginTime JobArrayTaskLimit Dependency
Resources Priority
"""
USED_UP = ["AssocGrpCPUMinutesLimit", "AssocGrpGRESMinutes", "QOSGrpBillingMinutes", "QOSGrpWallLimit"]


@pytest.mark.parametrize("reason", OF_ONE_JOB.split())
def test_a_job_that_asks_for_what_it_may_not_have_is_to_be_submitted_anew(reason: str) -> None:
    assert needs_hand(reason)
    assert advice(reason, "17").endswith("then type scancel 17 and start snakemake again")


@pytest.mark.parametrize("reason", OF_ALL_JOBS.split())
def test_a_job_that_starts_by_itself_says_what_it_waits_for(reason: str) -> None:
    assert not needs_hand(reason)
    assert advice(reason, "17") != "" and "17" not in advice(reason, "17")


@pytest.mark.parametrize("reason", USED_UP)
def test_used_up_hours_come_back_by_nobodys_end(reason: str) -> None:
    assert needs_hand(reason)
    assert advice(reason, "17").startswith("the hours of your account or QOS are used up; look at sshare")


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("JobHeldUser", "it is held; type: scontrol release 17"),
        ("JobHeldAdmin", "an administrator holds it; ask them"),
        ("JobHoldMaxRequeue", "it could not be started and is held; type: scontrol release 17"),
        ("launch failed requeued held", "it could not be started and is held; type: scontrol release 17"),
        ("launch_failed_requeued_held", "it could not be started and is held; type: scontrol release 17"),
        ("user env retrieval failed requeued held", "it could not be started and is held; type: scontrol release 17"),
        ("DependencyNeverSatisfied", "it waits for a job that ended otherwise; type: scancel 17"),
    ],
)
def test_a_job_that_is_held_says_how_to_release_it(reason: str, todo: str) -> None:
    assert (needs_hand(reason), advice(reason, "17")) == (True, todo)


@pytest.mark.parametrize(
    "reason",
    [
        "ReqNodeNotAvail, UnavailableNodes:node[2-4]",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
    ],
)
def test_nodes_that_are_away_are_looked_up(reason: str) -> None:
    assert not needs_hand(reason)
    assert advice(reason, "17").endswith("down or drained; look at: sinfo -R")


def test_status_and_driver_say_the_same() -> None:
    reason = "AssocMaxWallDurationPerJobLimit"

    out = ListedJob("17", "PENDING", reason, "rule_toy_segment_wildcards_demo_003").describe()
    mine = ListedJob("17", "PENDING", reason)

    todo = (
        "it asks for more time than its account or QOS gives a job; lower segment_minutes, then type scancel 17 and "
        "start snakemake again"
    )
    assert out == f"Slurm job 17 for segment 3 is PENDING ({reason}): {todo}"
    assert mine.is_stuck and not ListedJob("17", "RUNNING", reason).is_stuck


def test_a_reason_that_nobody_knows_is_shown_alone() -> None:
    assert ListedJob("17", "PENDING", "Moonphase").describe().endswith("is PENDING (Moonphase)")
    assert not needs_hand("Moonphase")


def test_the_page_names_no_reason_that_has_no_advice() -> None:
    page = (root_folder() / "docs/troubleshooting.md").read_text().partition("why a job waits")[2]
    reasons = re.findall(r"`([A-Z][A-Za-z]+)`", "".join(line for line in page.splitlines() if line.startswith("| `")))

    assert len(reasons) > 20
    assert [reason for reason in reasons if not advice(reason, "17")] == []
