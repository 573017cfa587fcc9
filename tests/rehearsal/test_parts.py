"""Parts of a rehearsal: file events, frames of trajectories, the verdict in words."""

import os

import pytest
from support.toyrun import toy_run

from unbroken.plan.driver_lines import unrehearsed
from unbroken.rehearsal.compare import Difference, Kind
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.results import reason_of
from unbroken.store.rehearsal import Rehearsal, Verdict, read_rehearsal
from unbroken.system.file_events import FileEvents, Happened


def test_events_tell_what_was_written_closed_and_renamed(tmp_path):
    with FileEvents(tmp_path) as events:
        (tmp_path / "a.tmp").write_text("x")
        os.rename(tmp_path / "a.tmp", tmp_path / "a")
        happened = events.next(1.0)

    kinds = [(event.what, event.name) for event in happened]
    assert kinds == [
        (Happened.CREATED, "a.tmp"),
        (Happened.WRITTEN, "a.tmp"),
        (Happened.CLOSED, "a.tmp"),
        (Happened.MOVED_FROM, "a.tmp"),
        (Happened.MOVED_TO, "a"),
    ]
    assert happened[3].cookie == happened[4].cookie != 0


def test_events_of_a_folder_that_comes_later_are_told(tmp_path):
    with FileEvents(tmp_path) as events:
        (tmp_path / "new" / "deep").mkdir(parents=True)
        events.next(1.0)
        (tmp_path / "new" / "deep" / "a").write_text("x")

        assert (Happened.WRITTEN, "new/deep/a") in [(event.what, event.name) for event in events.next(1.0)]


def test_events_in_a_folder_that_was_renamed_have_its_new_name(tmp_path):
    (tmp_path / "draft" / "deep").mkdir(parents=True)
    with FileEvents(tmp_path) as events:
        os.rename(tmp_path / "draft", tmp_path / "whole")
        os.rename(tmp_path / "whole", tmp_path / "last")
        (tmp_path / "last" / "deep" / "a").write_text("x")

        names = {event.name for event in events.next(1.0) if event.what is Happened.WRITTEN}

    assert names == {"last/deep/a"}


def test_a_verdict_comes_back_as_it_was_written(tmp_path):
    made = Rehearsal("demo", Verdict.DIFFERS, "x.csv: …", "2026-11-27T13:00:00Z", 12, ("one", "two"), "read", "3af")

    made.write(tmp_path)

    assert read_rehearsal("demo", tmp_path) == made
    assert made.line() == made.line("3af") == "rehearsed: differs (x.csv: …)"
    assert made.line("4bc") == "rehearsed in an earlier version: differs (x.csv: …)"


def test_a_verdict_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "results" / ".rehearsal").mkdir(parents=True)
    (tmp_path / "results" / ".rehearsal" / "demo.json").write_text('{"verdict": "')

    assert read_rehearsal("demo", tmp_path) is None


def test_a_first_start_says_one_line_of_runs_that_were_not_rehearsed(tmp_path):
    runs = [toy_run(name=name) for name in ("a", "b", "good", "bad", "begun")]
    Rehearsal("good", Verdict.IDENTICAL, "", "2026-11-27T13:00:00Z").write(tmp_path)
    Rehearsal("bad", Verdict.DIFFERS, "t.csv: rows", "2026-11-27T13:00:00Z").write(tmp_path)
    (tmp_path / "results" / "begun" / "checkpoints").mkdir(parents=True)

    assert unrehearsed(runs, tmp_path) == [
        "not rehearsed: a, b; `unbroken rehearse a` shows within minutes whether it resumes",
        "bad: rehearsed: differs (t.csv: rows); it starts all the same",
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"position": 3.0}, "it resumed from 2 after a SIGKILL in mid-work, and differs at once: some of the state is"),
        ({"position": 9.0}, "it resumed from 6 after its end, and differs from 9 on: something that is used first"),
        ({"position": 1.0}, "differs from 1 on, before any resume: what the save itself changes"),
        ({"kind": Kind.ROWS}, "rows are lost or written twice at a resume: the number that is saved is off by one"),
    ],
)
def test_where_a_difference_begins_tells_what_a_resume_lacks(found, said):
    difference = Difference("t.csv", **{"kind": Kind.COLUMN, "name": "loss", "where": "column loss", **found})

    reason = reason_of([difference], [(Way.KILL, 2.0), (Way.END, 6.0)], [])

    assert reason.startswith(f"t.csv: column loss; {said}")
