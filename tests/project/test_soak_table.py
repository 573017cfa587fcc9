"""`tools/soak_table.py` over lines that soaks wrote, and the pages that such tools write into."""

import json
from pathlib import Path

import marked
import pytest
import soak_table

SOAK = {"day": "2026-01-01", "seed": 1, "minutes": 600, "runs": 4, "lost": 0, "wrong": 0}


def test_soaks_are_summed_by_engine_and_driver_and_the_last_day_counts() -> None:
    soaks = [
        {**SOAK, "engine": "toy", "how": "detached", "kills": {"segment": 3}, "others": {}},
        {
            **SOAK,
            "engine": "command",
            "how": "attached",
            "kills": {"segment": 900, "driver": 200},
            "others": {"TERM": 2},
        },
        {**SOAK, "engine": "toy", "how": "detached", "kills": {}, "others": {}, "day": "2026-01-02", "lost": 1},
    ]

    said = soak_table.table([json.dumps(soak) for soak in soaks]).splitlines()

    assert said[2:] == [
        "| command | attached | 600 | 4 | 1,100 | 2 | 0 | 0 | 2026-01-01 |",
        "| toy | detached | 1,200 | 8 | 3 | 0 | 1 | 0 | 2026-01-02 |",
        "| all |  | 1,800 | 12 | 1,103 | 2 | 1 | 0 | 2026-01-02 |",
    ]


def test_a_table_is_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- soak -->\nold\n<!-- /soak -->\nafter\n")

    marked.write_between(page, "soak", "new \\1")

    assert page.read_text() == "before\n<!-- soak -->\nnew \\1\n<!-- /soak -->\nafter\n"


def test_a_page_without_marks_is_said_and_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")

    with pytest.raises(SystemExit, match=r"page\.md: no <!-- soak -->"):
        marked.write_between(page, "soak", "new")
    assert page.read_text() == "nothing\n"
