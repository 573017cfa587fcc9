"""A tiny run of each benchmark, so that none of them rots; no test looks at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
TINY = {
    "chain": ["--segments=2", "--toy-seconds=1", "--torch-steps=4", "--rounds=1"],
    "handoff": ["--rounds=1"],
    "plan": ["--runs=2", "--segments=2", "--rounds=1", "--large"],
    "save": ["--megabytes=0.1", "--rounds=1"],
}


# These make real chains of real trainings.
LONG = ("chain", "handoff")


def marked(script: Path):
    return pytest.param(script, marks=pytest.mark.slow if script.stem in LONG else (), id=script.stem)


def measure(script: Path) -> str:
    command = [sys.executable, script, *TINY[script.stem]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_a_benchmark_ends_well_and_fills_every_cell_of_its_tables(script: Path) -> None:
    if script.stem != "plan":
        pytest.importorskip("torch", reason="missing: torch (pip install '.[torch]')")

    lines = [line for line in measure(script).splitlines() if line.startswith("|")]

    assert lines
    assert [line for line in lines if "| |" in line or "| - |" in line] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_has_its_place_on_the_page(script: Path) -> None:
    assert f"<!-- bench: {script.stem} -->\n" in (ROOT / "docs" / "benchmarks.md").read_text()
