"""The examples of all engines, rehearsed as their users would: they really resume, so nothing is found."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import require

from unbroken.config.package_files import root_folder

EXAMPLES = root_folder() / "examples"
UNBROKEN = Path(sys.executable).with_name("unbroken")
COMPILED = ["sh", "-c", "cc -O2 -o ising ising.c && cc -O2 -o pi pi.c"]
# Folder, run, the words of the command, what it needs, and what makes its files.
CASES = [
    ("toy", "count", ("--goal", "600"), (), ()),
    ("command", "factors", (), (), ()),
    ("c", "ising", ("--goal", "20000"), ("gcc", "libc6-dev"), COMPILED),
    ("c", "pi", ("--goal", "2000"), ("gcc", "libc6-dev"), COMPILED),
    ("r", "banana", (), ("r-base-core",), ()),
    ("matlab", "banana", (), ("octave",), ()),
    ("lammps", "melt", ("--goal", "4000"), ("lammps",), ()),
    ("gromacs", "dipeptide", ("--goal", "4000"), ("gromacs",), ["./build.sh"]),
    ("torch", "digits", ("--goal", "2"), (), ()),
    pytest.param("tensorflow", "digits", ("--goal", "2"), (), (), marks=pytest.mark.tensorflow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("example", "run", "words", "needs", "made"), CASES)
def test_an_example_is_identical(tmp_path, example, run, words, needs, made):
    require(*needs)
    folder = tmp_path / example
    shutil.copytree(EXAMPLES / example, folder, ignore=shutil.ignore_patterns("results", "logs", ".snakemake"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNBROKEN_")}
    if made:
        subprocess.run(made, cwd=folder, check=True)

    done = subprocess.run(
        [UNBROKEN, "rehearse", run, *words], cwd=folder, capture_output=True, text=True, env=environment
    )

    noted = json.loads((folder / "results" / ".rehearsal" / f"{run}.json").read_text())
    assert (done.returncode, noted["verdict"], noted["reason"]) == (0, "identical", ""), done.stdout + done.stderr
