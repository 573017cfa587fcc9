"""`tools/mutants_table.py` over what mutmut leaves."""

import json
import sys
from pathlib import Path

import mutants_table
import pytest

PAGE = "# Evidence\n\n<!-- mutants -->\nold\n<!-- /mutants -->\nend\n"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    runs = tmp_path / "mutants/src/unbroken/runs"
    runs.mkdir(parents=True)
    store = {"store.x_a__mutmut_1": 1, "store.x_a__mutmut_2": 0, "store.x_b__mutmut_1": 33, "store.x_b__mutmut_2": None}
    (runs / "store.py.meta").write_text(json.dumps({"exit_code_by_key": store}))
    (runs / "lease.py.meta").write_text(json.dumps({"exit_code_by_key": {"lease.x_a__mutmut_1": 36}}))
    (runs / "record.py.meta").write_text(json.dumps({"exit_code_by_key": {}}))
    return tmp_path / "mutants"


def test_mutants_are_counted_by_module_and_those_that_no_test_sees_are_named(
    left: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = left.parent / "page.md"
    page.write_text(PAGE)
    monkeypatch.setattr(sys, "argv", ["mutants_table.py", str(left), "--write", str(page)])

    mutants_table.main()

    table = [
        "| module | mutants | killed | timed out | survived | no test |",
        "|---|---|---|---|---|---|",
        "| `unbroken/runs/lease.py` | 1 | 0 | 1 | 0 | 0 |",
        "| `unbroken/runs/store.py` | 4 | 1 | 0 | 1 | 1 |",
        "| all | 5 | 1 | 1 | 1 | 1 |",
        "",
        "1 did not run.",
    ]
    names = ["store.x_a__mutmut_2: survived", "store.x_b__mutmut_1: no test"]
    assert capsys.readouterr().out.splitlines() == [*names, *table]
    text = page.read_text()
    assert "\n".join(table) in text and "old" not in text and text.endswith("<!-- /mutants -->\nend\n")


def test_where_nothing_was_measured_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mutants_table.py", str(tmp_path)])

    with pytest.raises(SystemExit, match="no mutants here; type: make mutants"):
        mutants_table.main()
