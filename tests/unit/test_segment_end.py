"""How an attempt ended is said once, and arrives unchanged: from its process at its job, in history, report and record.

What each attempt comes to is in test_judge.py, what follows from it in test_policy.py.
"""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from support.histories import PLAIN
from support.making import ATTEMPT
from support.toyrun import PYTHONPATH, checkpoints, history, program, start_segment, toy_job, toy_run

from unbroken.cli.attempts import attempt_lines
from unbroken.job.end_note import NoteFile, exit_code_for
from unbroken.job.segment_process import PATIENCE, SegmentProcess
from unbroken.report.facts import folder_facts
from unbroken.report.status import NO_SLURM, status_of
from unbroken.slurm.job import EndState
from unbroken.store.history import Attempt, EndCause, EndKind, History, SegmentEnd
from unbroken.store.times import Times

TELLS = """
import json, sys
from unbroken.job import end_note
from unbroken.store.history import SegmentEnd
end = SegmentEnd.parse(json.loads(sys.argv[1]))
end.kind.is_before_work or end_note.tell_begun()
end_note.tell_end(end)
sys.exit(end_note.exit_code_for(end.kind, 0 if end.kind.settles else 1))
"""
WHOLE = SegmentEnd(
    kind=EndKind.FAILED,
    message="it broke: \u201cno\u201d",
    log="logs/demo/001.2.log",
    todo="free room",
    from_checkpoint="000001_1-steps",
    to_checkpoint="000002_2-steps",
    progress_from=1.0,
    progress_to=2.5,
    unit="steps",
    times=Times(job_started=1.5, stop_asked=3.25, ended=4.0, suspensions=((1.0, 2.0),)),
    killed_after_seconds=0.75,
)
ENDS = [
    *(replace(WHOLE, kind=kind) for kind in EndKind),
    *(replace(WHOLE, cause=cause) for cause in EndCause),
    *(replace(WHOLE, job_state=state) for state in EndState),
    SegmentEnd(kind=EndKind.FAILED),
]


def part_of(attempt: Attempt) -> SegmentEnd:
    return SegmentEnd(**{entry.name: getattr(attempt, entry.name) for entry in fields(SegmentEnd)})


@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{end.kind}-{end.why}")
def test_a_line_of_history_says_all_of_an_end(tmp_path: Path, end: SegmentEnd) -> None:
    History(tmp_path / "history.jsonl").append(attempt_that(end))

    (line,) = History(tmp_path / "history.jsonl").attempts()

    assert line == attempt_that(end)
    assert part_of(line) == end


def attempt_that(end: SegmentEnd) -> Attempt:
    job = {entry.name: getattr(ATTEMPT, entry.name) for entry in fields(Attempt)}
    return Attempt.of(end, **{name: value for name, value in job.items() if not hasattr(end, name)})


@pytest.mark.process
@pytest.mark.parametrize("kind", EndKind)
def test_an_end_goes_from_the_process_to_its_job_the_history_and_the_report_unchanged(
    tmp_path: Path, kind: EndKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv(PATIENCE, "0.01")
    end, places = replace(WHOLE, kind=kind), toy_job(tmp_path).places
    words = [sys.executable, "-c", TELLS, json.dumps(end.to_json())]

    code, told = SegmentProcess(places, 1, "17", words).run()

    assert (code, told) == (exit_code_for(kind, 0 if kind.settles else 1), end)
    assert told is not None
    if lines := history(toy_job(tmp_path)):  # by its job, of one that never began its work
        assert kind in (EndKind.REFUSED, EndKind.UNAVAILABLE)
        assert (lines[0].kind, lines[0].line(), lines[0].todo) == (kind, end.line(), end.todo)
        places.history.unlink()
    History(places.history).append(Attempt.of(told, **{name: getattr(PLAIN, name) for name in OF_ITS_JOB}))
    row = status_of("demo", tmp_path, toy_run())
    (run,) = folder_facts([row], {}, tmp_path, NO_SLURM, page=tmp_path / "page.html")["runs"]

    (shown,) = run["attempts"]
    assert (shown["kind"], shown["message"]) == (kind.value, end.line())
    assert any(end.line() in line for line in attempt_lines(places)) is not kind.settles


OF_ITS_JOB = [entry.name for entry in fields(Attempt) if entry.name not in SegmentEnd.__dataclass_fields__]


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "kind", "cause"),
    [
        ([], EndKind.FINISHED, None),  # the toy
        (program("one_step"), EndKind.PAUSED, None),
        (program("crash"), EndKind.FAILED, None),
        (program("hopeless", "1"), EndKind.FAILED, EndCause.DIVERGED),
    ],
)
def test_what_a_segment_says_to_its_job_is_what_stands_in_the_history(
    tmp_path: Path, command: list[str], kind: EndKind, cause: EndCause | None
) -> None:
    with NoteFile() as note:
        start_segment(tmp_path, command=command, environment=note.variable).end()

        (line,) = history(toy_job(tmp_path))
        assert (note.has_begun, note.end) == (True, part_of(line))
        assert (line.kind, line.cause) == (kind, cause)


@pytest.mark.process
def test_an_attempt_that_is_refused_says_so_to_its_job_and_the_history(tmp_path: Path) -> None:
    start_segment(tmp_path, command=program("one_step")).end()
    for checkpoint in checkpoints(toy_job(tmp_path)):
        (checkpoint.folder / next(iter(checkpoint.passport.files))).unlink()
    with NoteFile() as note:
        start_segment(tmp_path, 2, command=program("one_step"), environment=note.variable).end()

        line = history(toy_job(tmp_path))[-1]
        assert (note.has_begun, note.end, line.kind) == (False, part_of(line), EndKind.REFUSED)
