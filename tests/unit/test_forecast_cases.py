"""How often the forecast holds, on a small fixed set of what benchmarks/forecast_cases.py measures on a large one."""

import subprocess
import sys
from pathlib import Path

import pytest

# One process, which measures once.
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("forecast_cases")]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "forecast_cases.py"
COLUMNS = ("cases", "held", "early", "before_median", "before_p90", "segments_p90")


@pytest.fixture(scope="module")
def tables() -> list[list[list[str]]]:
    """The cells of both tables; the seeds are fixed, so the numbers are the same wherever it runs."""
    command = [sys.executable, str(SCRIPT), "--runs=12", "--best=0", "--recorded=quiet"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [[line for line in part.splitlines() if line.startswith("|")][2:] for part in text.split("\n\n")]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in part] for part in found if part]


@pytest.fixture(scope="module")
def rows(tables: list[list[list[str]]]) -> dict[str, dict[str, float]]:
    """The first one, in percent."""
    figures = [[float(cell.removesuffix(" %").replace(",", "")) for cell in row[1:7]] for row in tables[0]]
    return {row[0]: dict(zip(COLUMNS, found, strict=True)) for row, found in zip(tables[0], figures, strict=True)}


def test_the_line_about_segments_comes_where_they_do_not_reach_and_hardly_where_they_do(
    tables: list[list[list[str]]],
) -> None:
    said = {float(allowed.removesuffix("%")): float(there.removesuffix(" %")) for allowed, there in tables[1]}

    assert said[75] > 85
    assert said[100] < 20
    assert max(said[110], said[150]) < 8


def test_nine_of_ten_runs_end_within_the_bounds_and_half_before_the_median(rows: dict[str, dict[str, float]]) -> None:
    whole, quiet = rows["all"], rows["recorded, quiet"]

    assert whole["cases"] > 800
    assert 85 <= whole["held"] <= 95
    assert 45 <= whole["before_median"] <= 60
    assert 85 <= quiet["held"] <= 97
    assert 45 <= quiet["before_median"] <= 65


def test_no_kind_of_run_is_far_off(rows: dict[str, dict[str, float]]) -> None:
    assert {name for name, row in rows.items() if row["held"] < 70} == set()
    assert {name for name, row in rows.items() if not 25 <= row["before_median"] <= 85} == set()
    assert {name for name, row in rows.items() if row["segments_p90"] < 85} == set()
