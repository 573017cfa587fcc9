"""Whether a segment still needs a job; a record for which no work stands is removed, but only by the lease's owner."""

import json
from pathlib import Path

import pytest
from support.toyrun import toy, toy_run

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError
from unbroken.job.settled import is_done, settle_rest, settled_record
from unbroken.store import lease
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.lease import take
from unbroken.store.record import read_record

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
    return lease.take(Segment(toy_run(), 2, "", ()).folder.lease, 2, 0.0, environment={"SLURM_JOB_ID": "40"})


def test_a_record_for_which_no_work_stands_is_removed(second: Segment) -> None:
    """A task would take the segment for done, and pass it over."""
    assert not second.is_done()

    assert not second.record.exists()
    assert Segment(second.run, 1, second.rule, ("demo", "001")).is_done()


def test_while_a_job_owns_the_run_no_record_is_removed(second: Segment) -> None:
    """It may publish one in this moment."""
    before = second.record.read_bytes()
    with owned_by_another():
        assert not second.is_done()

        assert second.record.read_bytes() == before

    assert not second.is_done()
    assert not second.record.exists()


def test_the_lease_is_not_taken_where_there_is_no_record(second: Segment) -> None:
    second.record.unlink()
    before = sorted(second.folder.lease.iterdir())

    assert not second.is_done()

    assert sorted(second.folder.lease.iterdir()) == before


def test_a_record_that_stands_ends_the_segment_although_a_job_owns_the_run(second: Segment) -> None:
    """That job may have gone on to a later segment long ago."""
    first = Segment(second.run, 1, second.rule, ("demo", "001"))
    record = read_record(first.record)
    with owned_by_another():
        assert first.is_done()
        assert read_record(first.record) == record
        first.record.unlink()
        with pytest.raises(LeaseError):
            first.is_done()

    assert first.is_done()
    assert first.has_record()


# --- segments without a job ---


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_segments_behind_a_finish_are_settled_without_a_job(here: Path) -> None:
    toy(here, goal=5)
    run = toy_run(goal=5)

    are_done = [is_done(run, number) for number in (1, 2, 3)]

    records = [read_record(RunFolder("demo").record(number)) for number in (1, 2, 3)]
    assert are_done == [True] * 3
    assert [record and (record.kind, record.has_worked) for record in records] == [
        (EndKind.FINISHED, True),
        (EndKind.FINISHED, False),
        (EndKind.FINISHED, False),
    ]


def test_all_segments_behind_a_finish_are_settled_at_once(here: Path) -> None:
    toy(here, goal=5)
    places = RunFolder("demo")

    with take(places.lease, 1, 0.0), pytest.raises(LeaseError):
        settle_rest(toy_run(goal=5), range(2, 5))
    held = [read_record(places.record(number)) for number in (2, 3, 4)]
    is_settled = settle_rest(toy_run(goal=5), range(2, 5))

    records = [read_record(places.record(number)) for number in (2, 3, 4)]
    assert held == [None] * 3
    assert is_settled
    assert [record and record.segment for record in records] == [2, 3, 4]
    assert {record and (record.kind, record.has_worked) for record in records} == {(EndKind.FINISHED, False)}


def test_segments_that_have_work_to_do_are_not_settled_at_once(here: Path) -> None:
    toy(here, goal=5)

    assert not settle_rest(toy_run(goal=9), range(2, 5))  # the goal was raised
    assert not RunFolder("demo").record(2).exists()


def test_a_lost_record_is_made_anew_without_a_job(here: Path) -> None:
    made = toy(here, goal=10**6, segment_minutes=0.01)
    path = RunFolder("demo").record(1)
    path.unlink()

    assert is_done(toy_run(goal=10**6), 1)

    again = read_record(path)
    assert again is not None
    assert (again.kind, again.checkpoint, again.progress) == (EndKind.PAUSED, made.checkpoint, made.progress)


def test_what_is_not_done_needs_a_job(here: Path) -> None:
    run = toy_run(goal=10**6)
    assert not is_done(run, 1)
    toy(here, goal=10**6, segment_minutes=0.01)

    assert not is_done(run, 2)


def test_a_finish_whose_results_are_missing_needs_a_job(here: Path) -> None:
    toy(here, goal=5)
    (here / "results/demo/final/summary.json").unlink()

    assert not is_done(toy_run(goal=5), 2)


def test_nothing_is_written_while_another_job_holds_the_run(here: Path) -> None:
    toy(here, goal=5)
    places = RunFolder("demo")

    with take(places.lease, 1, 0.0), pytest.raises(LeaseError, match="held, segment 1 by process"):
        is_done(toy_run(goal=5), 2)

    assert settled_record(toy_run(goal=5), 2, places) is not None
    assert not places.record(2).exists()


def test_settling_leaves_the_history_alone(here: Path) -> None:
    toy(here, goal=5)
    before = History(RunFolder("demo").history).path.read_text()

    is_done(toy_run(goal=5), 2)

    assert History(RunFolder("demo").history).path.read_text() == before
    assert json.loads(before.splitlines()[0])["kind"] == "finished"
