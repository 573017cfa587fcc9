"""A run's venv: the program starts in it, the passport holds what it was, and a change is told or refused."""

import sys

import pytest
from support.venvs import install, make_venv
from support.workdir import WorkDir

# Leaves after each step, and says what it runs in.
PROGRAM = """
import os, pathlib, sys
import fruit

done = int(pathlib.Path("state").read_text()) + 1 if pathlib.Path("state").exists() else 1
pathlib.Path("state").write_text(f"{done}\\n")
with open("seen.txt", "a") as seen:
    print(done, fruit.__version__, os.environ.get("VIRTUAL_ENV"), sys.prefix, file=seen)
sys.exit(0 if done >= 3 else 85)
"""


def configure(work: WorkDir, segments: int = 3, **keys: object) -> None:
    settings = {
        "start": ["python", "{base}/program.py"],
        "files": ["state"],
        "progress_file": "state",
        "progress_pattern": r"(\d+)",
        "goal": 3,
        "goal_unit": "steps",
        "exit_paused": [85],
        "final_files": ["seen.txt"],
    }
    run = {"engine": "command", "segments": segments, "segment_minutes": 0.5, "settings": settings}
    work.configure({"demo": {**run, "venv": "env", **keys}})


@pytest.fixture
def made(work: WorkDir) -> WorkDir:
    """A run in a venv that has done one step of three."""
    work.write("program.py", PROGRAM)
    make_venv(work.root / "env", "1.0")
    configure(work, segments=1)
    done = work.snakemake()
    assert "1 of 3" in done.text, done.text
    return work


def test_the_program_starts_in_the_venv_and_the_passport_holds_its_packages(made: WorkDir) -> None:
    folder = made.root / "env"

    found = made.passports("demo")[-1].environment

    assert found == {"venv": {"path": str(folder), "python": sys.version.split()[0], "packages": {"fruit": "1.0"}}}
    assert f"environment: venv {folder}, python {sys.version.split()[0]}, 1 packages" in made.log("demo", 1)
    configure(made)
    made.snakemake()
    assert made.final("demo")["seen.txt"].decode() == f"3 1.0 {folder} {folder}\n"


def test_a_change_is_told_and_nothing_is_done_again(made: WorkDir) -> None:
    install(made.root / "env", "2.0")
    configure(made)

    done = made.snakemake()

    assert done.code == 0, done.text
    assert "segment 2: venv changed since checkpoint 1: fruit 1.0 -> 2.0\n" in made.log("demo", 2)
    assert "changed since" not in made.log("demo", 3)
    assert [attempt.progress_to for attempt in made.history("demo")] == [1, 2, 3]


def test_a_strict_run_is_refused_before_anything_is_queued_and_goes_on_once_it_is_put_back(made: WorkDir) -> None:
    install(made.root / "env", "2.0")
    configure(made, environment="strict")

    done = made.snakemake()

    assert done.code == 1
    assert done.lines("unbroken:") == [
        "unbroken: runs.demo.environment: strict, and venv changed since checkpoint 1: fruit 1.0 -> 2.0; put it back, "
        "or type environment: tell below the run to go on from the same checkpoint with the change"
    ]
    assert len(made.history("demo")) == 1
    install(made.root / "env", "1.0")
    assert made.snakemake().code == 0
    assert [attempt.progress_to for attempt in made.history("demo")] == [1, 2, 3]


def test_a_venv_that_is_not_there_is_named_before_anything_is_queued(work: WorkDir) -> None:
    configure(work, venv="envs/none")

    done = work.snakemake()

    assert done.code == 1
    assert done.lines("unbroken:") == [
        "unbroken: runs.demo.venv: found 'envs/none', but there is no such file as envs/none/pyvenv.cfg; allowed: the "
        "folder of a Python environment; type: python3 -m venv envs/none"
    ]
    assert not (work.root / "results").exists()
