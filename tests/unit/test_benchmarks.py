"""A tiny run of each benchmark, so that none of them rots; no test looks at a time."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.dmtcp_here import STAND_IN  # and starts what the stand-in needs
from support.needs import require

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
TINY = {
    "account_cost": ["--rounds=2"],
    "after_goal": ["--segments=3", "--jobs=3", "--rounds=1"],
    "chain": ["--segments=2", "--toy-seconds=1", "--torch-steps=4", "--rounds=1"],
    "command": ["--segments=1", "--seconds=6", "--rounds=1"],
    "dmtcp": [f"--programs={STAND_IN}/4.1.1", "--megabytes=1", "--rounds=1"],
    "exec_cost": ["--rounds=1"],
    "forecast_cases": ["--runs=3", "--best=1"],
    "gromacs": ["--segments=1", "--seconds=4", "--nanometres=2.5", "--rounds=1"],
    "handoff": ["--rounds=1"],
    "handoff_exec": ["--seconds=2", "--segments=2"],
    "handoff_slurm": ["--seconds=2", "--segments=2", "--live=3", "--waiting-seconds=2"],
    "holes": ["--holes=2", "--most=3", "--minutes=0.2"],
    "killed_saves": ["--points=1", "--programs=by_hand"],
    "loaders": ["--samples=640", "--large=2560", "--rounds=1"],
    "keras_fit": ["--epochs=1", "--segments=2", "--width=20", "--rounds=1"],
    "plan": ["--runs=2", "--segments=2", "--rounds=1", "--large"],
    "queue_wait": ["--nodes=8", "--queued=1", "--fill=1", "--minutes=1", "--segments=1", "--copies=1"],
    "queue_replay": ["--loads=0.7", "--hours=6", "--base=`afterany`, 8 h", "--seeds=1", "--arrivals=1"],
    "report_cost": ["--runs", "2", "--segments=2", "--times=1"],
    "save": ["--megabytes=0.1", "--rounds=1"],
    "output_files": ["--files=300", "--size=10", "--rounds=1", "--seconds=0.5"],
    "save_jax": ["--megabytes=0.1", "--rounds=1"],
    "save_files": ["--files=300", "--size=10", "--rounds=1"],
    "save_ranks": ["--megabytes=0.1", "--ranks=2", "--rounds=1", "--saves=4", "--every=4"],
    "save_beside": ["--megabytes=0.1", "--larger=0", "--rounds=1", "--steps=1"],
}


WITHOUT_TORCH = (
    "account_cost",
    "after_goal",
    "plan",
    "dmtcp",
    "exec_cost",
    "forecast_cases",
    "handoff_exec",
    "keras_fit",
    "holes",
    "output_files",
    "queue_replay",
    "queue_wait",
    "report_cost",
    "save_jax",
)
# These make real chains, or start Snakemake or a training for each cell.
LONG = (
    "after_goal",
    "chain",
    "command",
    "exec_cost",
    "forecast_cases",
    "gromacs",
    "handoff",
    "killed_saves",
    "loaders",
    "output_files",
    "plan",
    "queue_replay",
    "report_cost",
    "save",
    "save_beside",
    "save_files",
    "save_ranks",
)


def marked(script: Path):
    marks = [pytest.mark.slow] if script.stem in LONG else []
    if script.stem == "keras_fit":
        marks = [pytest.mark.tensorflow]
    if script.stem == "save_jax":
        marks = [pytest.mark.frameworks]
    if script.stem in ("handoff_exec", "handoff_slurm", "holes", "queue_wait"):
        marks = [
            pytest.mark.slow,
            pytest.mark.slurm,
            pytest.mark.needs("slurm-wlm", "slurmdbd", "munge", "mariadb-server"),
        ]
    return pytest.param(script, marks=marks, id=script.stem)


def measure(script: Path) -> str:
    command = [sys.executable, script, *TINY[script.stem]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.process
@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_a_benchmark_ends_well_and_fills_every_cell_of_its_tables(script: Path) -> None:
    if script.stem == "gromacs":
        require("gromacs")
    elif script.stem == "command":
        require("lammps", "gcc")
    elif script.stem not in WITHOUT_TORCH:
        pytest.importorskip("torch", reason="missing: torch (pip install '.[torch]')")

    lines = [line for line in measure(script).splitlines() if line.startswith("|")]

    assert lines
    assert [line for line in lines if "| |" in line or "| - |" in line] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_has_its_place_on_the_page(script: Path) -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("benchmarks.md", "evidence.md")]
    assert f"<!-- bench: {script.stem} -->\n" in "".join(pages)
