"""When a job that finds its run held leaves its node, and when it waits there."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.toyrun import toy_job

from unbroken.errors import LeaseError
from unbroken.job.attempt import JOB_NOTE
from unbroken.job.deadline import leaves_to
from unbroken.store import lease
from unbroken.store.claim import Claim

OURS = {"SLURM_JOB_ID": "18", JOB_NOTE: "/proc/1/fd/3"}


def claim(slurm_job: str = "17", segment: int = 1) -> Claim:
    return Claim(1, segment, "elsewhere", 1, "", "", "", slurm_job, "somebody", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("held", "environment", "leaves"),
    [
        (claim(), OURS, True),
        (claim(""), OURS, False),  # a holder outside Slurm: nobody can queue behind it
        (claim("18"), OURS, False),  # our own earlier start
        (claim(), {JOB_NOTE: OURS[JOB_NOTE]}, False),  # we are outside Slurm
        (claim(), {"SLURM_JOB_ID": "18"}, False),  # nobody around us would queue again
    ],
)
def test_a_job_leaves_to_another_job_if_somebody_starts_the_segment_after_it(
    held: Claim, environment: Mapping[str, str], leaves: bool, tmp_path: Path
) -> None:
    assert leaves_to(toy_job(tmp_path, 2), held, environment) is leaves


def test_a_holder_whose_record_is_there_is_waited_for(tmp_path: Path) -> None:
    record = toy_job(tmp_path).places.record(1)
    record.parent.mkdir(parents=True)
    record.touch()

    assert not leaves_to(toy_job(tmp_path, 2), claim(), OURS)


def test_it_leaves_once_the_holder_s_heart_was_seen_to_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is silent nobody knows yet whether it lives."""
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    folder, asked = tmp_path / "lease", threading.Event()

    def leaves(held: Claim) -> bool:
        asked.set()
        return True

    with (
        lease.take(folder, 1, 0.0),
        pytest.raises(LeaseError, match="which is at work"),
    ):
        lease.take(folder, 1, 600.0, leaves_to=leaves)
    assert asked.is_set()

    asked.clear()
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 1000.0)
    with lease.take(folder, 1, 0.0):
        monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
        with pytest.raises(LeaseError, match="but sends no heartbeat"):
            lease.take(folder, 1, 1.0, leaves_to=leaves)
    assert not asked.is_set()
