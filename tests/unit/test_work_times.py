"""When records of jobs on Slurm were worked at, in Snakemake's own notes."""

import json
import os
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.toyrun import toy_run

from unbroken.plan.work_times import METADATA, give_true_times
from unbroken.runs import submissions
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import Progress
from unbroken.runs.record import Record
from unbroken.runs.segment_end import EndKind
from unbroken.runs.times import Times
from unbroken.system.clock import unix_seconds

SUBMITTED = 1_000_000_000.0


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Snakemake's note about the record of a job on Slurm, from when it was submitted."""
    monkeypatch.chdir(tmp_path)
    submission = submissions.take("demo", None)
    assert submission is not None
    submissions.fill(submission, "17")
    places = RunFolder("demo")
    record = Record("demo", 1, EndKind.PAUSED, True, "c", Progress(10), "2026-11-21T00:01:00Z")
    record.write(places.record(1))
    note = METADATA / urlsafe_b64encode(str(places.record(1)).encode()).decode()
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"rule": "toy_segment", "starttime": SUBMITTED, "endtime": SUBMITTED}))
    os.utime(note, (SUBMITTED, SUBMITTED))
    return note


def test_the_time_of_work_takes_the_place_of_that_of_submission(noted: Path) -> None:
    places = RunFolder("demo")
    History(places.history).append(ATTEMPT)
    ended = places.record(1).stat().st_mtime

    give_true_times([toy_run()], Path())

    began = unix_seconds(ATTEMPT.started_utc)
    assert json.loads(noted.read_text()) == {
        "rule": "toy_segment",
        "starttime": min(began, ended),
        "endtime": ended,
    }
    before = noted.stat().st_mtime_ns
    give_true_times([toy_run()], Path())
    assert noted.stat().st_mtime_ns == before


def test_slurms_own_start_of_the_job_counts_where_it_is_known(noted: Path) -> None:
    History(RunFolder("demo").history).append(replace(ATTEMPT, times=Times(job_started=SUBMITTED + 5)))
    give_true_times([toy_run()], Path())
    assert json.loads(noted.read_text())["starttime"] == SUBMITTED + 5


def test_a_record_whose_job_a_job_has_submitted_gets_a_note_like_that_of_an_earlier_one(noted: Path) -> None:
    data = {"rule": "toy_segment", "job_hash": 7, "input": [], "log": ["logs/demo/001.log"], "code": "c"}
    noted.write_text(json.dumps({**data, "starttime": SUBMITTED, "endtime": SUBMITTED}))
    places = RunFolder("demo")
    Record("demo", 2, EndKind.PAUSED, True, "d", Progress(20), "2026-11-21T00:02:00Z").write(places.record(2))
    for segment in (1, 2):
        line = replace(ATTEMPT, token=segment, segment=segment, times=Times(job_started=SUBMITTED + 10 * segment))
        History(places.history).append(line)

    give_true_times([toy_run()], Path())

    second = METADATA / urlsafe_b64encode(str(places.record(2)).encode()).decode()
    told = json.loads(second.read_text())
    assert json.loads(noted.read_text())["job_hash"] != told.pop("job_hash")
    assert told == {
        "rule": "toy_segment",
        "code": "c",
        "input": [str(places.record(1))],
        "log": [str(places.log(2))],
        "external_jobid": None,
        "input_checksums": {},
        "starttime": SUBMITTED + 20,
        "endtime": places.record(2).stat().st_mtime,
    }


@pytest.mark.parametrize("spoilt", ["note", "history", "not on Slurm"])
def test_what_cannot_be_known_is_left_as_it_is(noted: Path, spoilt: str) -> None:
    places = RunFolder("demo")
    if spoilt == "note":
        History(places.history).append(ATTEMPT)
        noted.write_text("{torn")
        os.utime(noted, (SUBMITTED, SUBMITTED))
    if spoilt == "not on Slurm":
        History(places.history).append(ATTEMPT)
        submission = submissions.newest("demo")
        assert submission is not None
        submissions.give_back(submission)
    before = noted.read_bytes()
    give_true_times([toy_run()], Path())
    assert noted.read_bytes() == before
