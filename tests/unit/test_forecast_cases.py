"""How often the forecast holds, on a small fixed set of what benchmarks/forecast_cases.py measures on a large one."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "forecast_cases.py"
COLUMNS = ("cases", "held", "early", "before_median", "before_p90", "segments_p90")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, float]]:
    """The table, in percent; the seeds are fixed, so the numbers are the same wherever it runs."""
    command = [sys.executable, str(SCRIPT), "--runs=12", "--best=0", "--recorded=quiet"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]
    figures = [[float(cell.removesuffix(" %").replace(",", "")) for cell in row[1:7]] for row in cells]
    return {row[0]: dict(zip(COLUMNS, found, strict=True)) for row, found in zip(cells, figures, strict=True)}


def test_nine_of_ten_runs_end_within_the_bounds_and_half_before_the_median(rows: dict[str, dict[str, float]]) -> None:
    whole, quiet = rows["all"], rows["recorded, quiet"]

    assert whole["cases"] > 800
    assert 85 <= whole["held"] <= 95
    assert 45 <= whole["before_median"] <= 60
    assert 85 <= quiet["held"] <= 95
    assert 45 <= quiet["before_median"] <= 60


def test_no_kind_of_run_is_far_off(rows: dict[str, dict[str, float]]) -> None:
    assert {name for name, row in rows.items() if row["held"] < 75} == set()
    assert {name for name, row in rows.items() if not 30 <= row["before_median"] <= 85} == set()
    assert {name for name, row in rows.items() if row["segments_p90"] < 85} == set()
