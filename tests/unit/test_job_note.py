"""What a segment's process says to its job, and how that tells the ends of segments apart."""

import json
import sys
from pathlib import Path

import pytest
from support.toyrun import history, toy_job

from unbroken.errors import AbsentFileError, ConfigError, IdentityError, LeaseError, NoCheckpointError, StorageError
from unbroken.job import end_note
from unbroken.job.end_note import NoteFile, end_before_work, exit_code_for, said_by_exit_code
from unbroken.job.segment_process import PATIENCE, SegmentProcess
from unbroken.store.attempts import before_work
from unbroken.store.history import EndKind, History, SegmentEnd
from unbroken.system import log


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError(["runs.a.goall: unknown key"]), EndKind.REFUSED),
        (IdentityError("changed"), EndKind.REFUSED),
        (NoCheckpointError("none is left"), EndKind.REFUSED),
        (AbsentFileError(["no script"]), EndKind.UNAVAILABLE),
        (StorageError("full"), EndKind.UNAVAILABLE),
        (LeaseError("held"), EndKind.HELD),
    ],
)
def test_an_error_says_whether_it_may_pass_by_itself(error: end_note.UnbrokenError, kind: EndKind) -> None:
    assert end_before_work(error) == SegmentEnd(kind=kind, message=str(error))


def test_an_error_keeps_apart_what_to_read_and_what_to_do() -> None:
    error = StorageError("results: full", log="logs/a.log", todo="free room")

    end = end_before_work(error)

    assert str(error) == "results: full; read logs/a.log; free room, then start again"
    assert (end.message, end.log, end.todo) == ("results: full", "logs/a.log", "free room")
    assert (end.line(), end.advice()) == ("results: full; read logs/a.log", str(error))


def test_what_is_told_inside_is_read_around_it() -> None:
    with NoteFile() as file:
        assert (file.has_begun, file.end) == (False, None)
        end_note.tell_begun(file.variable)
        assert (file.has_begun, file.end) == (True, None)
        end_note.tell_refused(StorageError("results: full"), file.variable)
        assert (file.has_begun, file.end) == (True, UNAVAILABLE)


def test_of_several_ends_the_first_counts() -> None:
    """The attempt's own; behind it, its script says the same with less."""
    failed = SegmentEnd(kind=EndKind.FAILED, message="it broke", progress_to=3.0)
    with NoteFile() as file:
        end_note.tell_end(failed, file.variable)
        end_note.tell_refused(StorageError("results: full"), file.variable)

        assert file.end == failed


def test_without_anybody_around_nothing_is_told() -> None:
    end_note.tell_begun({})
    end_note.tell_begun({end_note.FILE: "/proc/1/fd/999999"})


@pytest.mark.parametrize("kind", [kind for kind in EndKind if kind.is_before_work and kind is not EndKind.NEVER_RAN])
def test_an_exit_code_says_the_same_where_no_disk_takes_a_line(kind: EndKind) -> None:
    assert said_by_exit_code(exit_code_for(kind, 1)) is kind
    assert (exit_code_for(EndKind.FAILED, 3), said_by_exit_code(3)) == (3, EndKind.NEVER_RAN)


# --- a segment's command in its job ---


UNAVAILABLE = SegmentEnd(kind=EndKind.UNAVAILABLE, message="results: full")
TELLS = "import sys; from unbroken.job import end_note; from unbroken.errors import *; "


def ended(base: Path, words: list[str], told: list[str] | None = None) -> tuple[int, SegmentEnd | None]:
    with log.lines_to((told if told is not None else []).append):
        return SegmentProcess(toy_job(base).places, 1, "17", words).run()


@pytest.mark.process
def test_a_refusal_before_the_work_has_its_line_in_the_history(tmp_path: Path) -> None:
    code = f"{TELLS}end_note.tell_refused(ConfigError(['runs.demo.goall: unknown key', 'b'])); sys.exit(1)"

    found = ended(tmp_path, [sys.executable, "-c", code])

    assert found == (1, SegmentEnd(kind=EndKind.REFUSED, message="runs.demo.goall: unknown key\nb"))
    (line,) = history(toy_job(tmp_path))
    assert (line.kind, line.slurm_job, line.message) == (
        EndKind.REFUSED,
        "17",
        "runs.demo.goall: unknown key (and 1 more)",
    )


@pytest.mark.process
def test_what_is_missing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, "4")
    monkeypatch.setattr("unbroken.job.segment_process.REST_SECONDS", 0.01)
    told: list[str] = []
    code = f"{TELLS}end_note.tell_refused(StorageError('results: full')); sys.exit(1)"

    found = ended(tmp_path, [sys.executable, "-c", code], told)

    assert found == (1, UNAVAILABLE)
    assert told[0].startswith("results: full; tried again for ")
    assert [line.message for line in history(toy_job(tmp_path))] == ["results: full"]


@pytest.mark.process
def test_what_comes_back_in_time_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, "600")
    monkeypatch.setattr("unbroken.job.segment_process.REST_SECONDS", 0.01)
    there = tmp_path / "there"
    record = toy_job(tmp_path).places.record(1)
    code = f"test -e {there} && mkdir -p {record.parent} && touch {record} && exit 0; touch {there}; exit 1"

    assert ended(tmp_path, ["sh", "-c", code]) == (0, None)
    assert history(toy_job(tmp_path)) == []


@pytest.mark.process
def test_a_command_that_ends_well_and_leaves_no_record_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake does so where the record before is missing on its node."""
    monkeypatch.setenv(PATIENCE, "0.01")

    found = ended(tmp_path, ["true"])

    message = "the segment's process did nothing"
    assert found == (0, SegmentEnd(kind=EndKind.UNAVAILABLE, message=message))


@pytest.mark.process
def test_a_command_that_fails_without_a_word_is_told_by_its_last_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "0.01")
    code = "echo 'WorkflowError in line 3:' >&2; echo 'Config file is not valid YAML.' >&2; exit 1"

    found = ended(tmp_path, ["sh", "-c", code])

    expected = "ended with exit code 1: WorkflowError in line 3: Config file is not valid YAML."
    message = f"the segment's process {expected}"
    assert found == (1, SegmentEnd(kind=EndKind.UNAVAILABLE, message=message))


@pytest.mark.process
def test_a_program_that_fails_at_its_work_is_not_waited_for(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = f"{TELLS}end_note.tell_begun(); import os, time\nwhile not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
    words = [sys.executable, "-c", f"{code}sys.exit(3)"]
    command = SegmentProcess(toy_job(tmp_path).places, 1, "17", words)

    assert command.run(seen.touch) == (3, None)
    assert history(toy_job(tmp_path)) == []


@pytest.mark.process
def test_the_history_says_the_same_to_a_job_that_heard_nothing(tmp_path: Path) -> None:
    """As where the program runs in a PID namespace of its own."""
    places = toy_job(tmp_path).places
    line = before_work(None, 1, SegmentEnd(kind=EndKind.REFUSED, message="another computation"), slurm_job="17")
    kept = json.dumps({"format": 2, **line.to_json()})
    script = tmp_path / "says.py"
    script.write_text(
        "import os, sys\n"
        f"os.makedirs({str(places.root)!r}, exist_ok=True)\n"
        f"open({str(places.history)!r}, 'a').write({kept!r} + '\\n')\n"
        "sys.exit(1)\n"
    )

    found = ended(tmp_path, [sys.executable, str(script)])

    assert found == (1, line)
    assert len(History(places.history).attempts()) == 1
