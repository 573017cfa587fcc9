"""Whether a segment still needs a job; a record for which no work stands is removed, but only by the lease's owner."""

import json
from pathlib import Path

import pytest
from support.toyrun import toy, toy_run

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError
from unbroken.runs import lease
from unbroken.runs.record import read_record

pytestmark = pytest.mark.process


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Segment:
    """The second segment of a run, of which one is done; it has the record of a goal that was lower."""
    monkeypatch.chdir(tmp_path)
    toy(tmp_path, 1, goal=10**6, segment_minutes=0.01)
    found = Segment(toy_run(goal=10**6), 2, "toy_segment", ("demo", "002"))
    first = json.loads(found.folder.record(1).read_text())
    found.record.write_text(json.dumps({**first, "segment": 2, "kind": "finished"}))
    assert found.has_record()
    return found


def owned_by_another() -> lease.Lease:
    return lease.take(Segment(toy_run(), 2, "", ()).folder.lease, 2, 0.0, print, environment={"SLURM_JOB_ID": "40"})


def test_a_record_for_which_no_work_stands_is_removed(second: Segment) -> None:
    """A task would take the segment for done, and pass it over."""
    assert not second.is_done(print)

    assert not second.record.exists()
    assert Segment(second.run, 1, second.rule, ("demo", "001")).is_done(print)


def test_while_a_job_owns_the_run_no_record_is_removed(second: Segment) -> None:
    """It may publish one in this moment."""
    before = second.record.read_bytes()
    with owned_by_another():
        assert not second.is_done(print)

        assert second.record.read_bytes() == before

    assert not second.is_done(print)
    assert not second.record.exists()


def test_the_lease_is_not_taken_where_there_is_no_record(second: Segment) -> None:
    second.record.unlink()
    before = sorted(second.folder.lease.iterdir())

    assert not second.is_done(print)

    assert sorted(second.folder.lease.iterdir()) == before


def test_a_record_that_stands_ends_the_segment_although_a_job_owns_the_run(second: Segment) -> None:
    """That job may have gone on to a later segment long ago."""
    first = Segment(second.run, 1, second.rule, ("demo", "001"))
    record = read_record(first.record)
    with owned_by_another():
        assert first.is_done(print)
        assert read_record(first.record) == record
        first.record.unlink()
        with pytest.raises(LeaseError):
            first.is_done(print)

    assert first.is_done(print)
    assert first.has_record()
