"""A program that works in stages, and resumes only from the end of one."""

from pathlib import Path

import pytest
from support.command_jobs import command_segment
from support.stages import RESULT, STAGES

from unbroken.store.history import EndKind

pytestmark = pytest.mark.process


def test_a_program_of_stages_resumes_from_the_last_one_that_was_complete(tmp_path: Path) -> None:
    (tmp_path / "stages.sh").write_text(STAGES)
    settings = {
        "start": ["sh", "stages.sh"],
        "inputs": ["stages.sh"],
        "files": ["out/**", "!out/log"],
        "saved_by": "stage",
        "saved_marker": "out/stage_*",
        "path_files": ["out/where"],
    }

    records = [command_segment(tmp_path, settings, 1, segment_minutes=0.03)]
    while records[-1].kind is EndKind.PAUSED and len(records) < 9:
        records.append(command_segment(tmp_path, settings, len(records) + 1, segment_minutes=0.03))

    final = tmp_path / "results" / "demo" / "final"
    assert records[-1].kind is EndKind.FINISHED
    assert len(records) > 1
    assert (final / "result").read_text() == RESULT
    assert not (final / "out" / "half").exists()
