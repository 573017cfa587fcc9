"""The commands of the examples' READMEs, as written, in a clean clone that lies where the READMEs say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import require

from unbroken.config.package_files import root_folder

ROOT = root_folder()
# What each needs, and how often it says that two files are the same.
NEEDS = {
    "lammps": ("lammps",),
    "c": ("gcc", "libc6-dev"),
    "fortran": ("gfortran",),
    "r": ("r-base-core",),
    "matlab": ("octave",),
    "command": (),
}
COMPARED = {"lammps": 2, "c": 3, "fortran": 1, "r": 1, "matlab": 1, "command": 0}


def commands(example):
    text = (ROOT / "examples" / example / "README.md").read_text()
    # Each block begins at the top level, as its reader does.
    return "\n".join(f"(\n{block}\n)" for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL))


@pytest.mark.slow
@pytest.mark.needs("git")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", NEEDS)
def test_the_commands_of_an_examples_readme_work_in_a_clean_clone(tmp_path, example):
    require(*NEEDS[example])
    clone = tmp_path / "unbroken"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    script = "\n".join(["set -euo pipefail", commands(example)])

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:]
    assert done.stdout.splitlines().count("the same") == COMPARED[example]
    assert all((run / "final").is_dir() for run in (clone / "examples" / example / "results").iterdir())
