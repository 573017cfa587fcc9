"""A program that works in stages, and resumes only from the end of one."""

from pathlib import Path

import pytest
from support.command_jobs import command_segment
from support.stages import RESULT, STAGES

from unbroken.errors import SegmentError, StorageError
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process


SETTINGS = {
    "start": ["sh", "stages.sh"],
    "inputs": ["stages.sh"],
    "files": ["out/**", "!out/log"],
    "saved_by": "stage",
    "saved_marker": "out/stage_*",
    "path_files": ["out/where"],
}


def test_a_program_of_stages_resumes_from_the_last_one_that_was_complete(tmp_path: Path) -> None:
    (tmp_path / "stages.sh").write_text(STAGES)

    records = [command_segment(tmp_path, SETTINGS, 1, segment_minutes=0.03)]
    while records[-1].kind is EndKind.PAUSED and len(records) < 9:
        records.append(command_segment(tmp_path, SETTINGS, len(records) + 1, segment_minutes=0.03))

    final = tmp_path / "results" / "demo" / "final"
    assert records[-1].kind is EndKind.FINISHED
    assert len(records) > 1
    assert (final / "result").read_text() == RESULT
    assert not (final / "out" / "half").exists()


def test_where_no_event_is_seen_no_stage_is_saved_and_a_line_says_why(tmp_path, monkeypatch, capsys) -> None:
    def no_watch(*_: object, **__: object) -> None:
        raise StorageError("no watch left")

    monkeypatch.setattr("unbroken.engines.files.observer.FileEvents", no_watch)
    monkeypatch.setattr("unbroken.engines.files.place.LONGEST_WAIT_SECONDS", 0.0)
    (tmp_path / "stages.sh").write_text(STAGES)

    with pytest.raises(SegmentError, match="left no newer checkpoint"):
        command_segment(tmp_path, SETTINGS, 1, segment_minutes=0.05)

    assert "the end of a stage is not seen: no watch left" in capsys.readouterr().err
