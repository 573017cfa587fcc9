"""The examples of all engines, rehearsed as their users would: they really resume, so nothing is found."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from support.needs import require, skip_or_fail

from unbroken.config.package_files import root_folder
from unbroken.engines.found import known_schemas

EXAMPLES = root_folder() / "examples"
UNBROKEN = Path(sys.executable).with_name("unbroken")
CONTRACT = r"the program itself says it \(progress\.json\)"


@dataclass(frozen=True)
class Example:
    """A run of a folder of examples, with the words of the command, and by what its progress is read."""

    folder: str
    run: str
    words: tuple[str, ...] = ()
    reads: str = CONTRACT
    needs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    made: list[str] = field(default_factory=list)  # what makes its files
    reason: str = ""  # what the verdict excepts
    lost: str = ""  # what its engine does not keep, so that it is not called identical

    @property
    def id(self) -> str:
        return f"{self.folder}-{self.run}"


COMPILED = ["sh", "-c", "cc -O2 -o ising ising.c && cc -O2 -o pi pi.c"]
C = ("gcc", "libc6-dev")
CASES = [
    Example("toy", "count", ("--goal", "600")),
    Example("command", "factors", reads="progress_pattern .+ matched once in .+, '.+' at line .+"),
    Example("c", "ising", ("--goal", "20000"), ".+", C, made=COMPILED),
    Example("c", "pi", ("--goal", "2000"), ".+", C, made=COMPILED),
    Example(
        "fortran",
        "plate",
        ("--goal", "100000"),
        ".+",
        ("gfortran",),
        made=["gfortran", "-O2", "-o", "heat", "unbroken.f90", "heat.f90"],
    ),
    Example("r", "banana", (), ".+", ("r-base-core",)),
    Example("matlab", "banana", (), ".+", ("octave",)),
    Example(
        "lammps",
        "melt",
        ("--goal", "4000"),
        "the names of `files` have 4000 in them",
        ("lammps",),
        reason="but for what each piece writes for itself: log.lammps",
    ),
    Example(
        "gromacs",
        "dipeptide",
        ("--goal", "4000"),
        r"the step in md\.cpt",
        ("gromacs",),
        made=["./build.sh"],
        reason="but for what each piece writes for itself: md.edr, md.log, segments.tsv",
    ),
    Example("dmtcp", "orbit", (), "the seconds that it worked; the program is not asked"),
    Example("torch", "digits", ("--goal", "2"), modules=("torch",)),
    Example("torch_ddp", "digits", ("--goal", "2"), modules=("torch",)),
    Example("torch_tutorial", "tutorial", ("--goal", "2"), modules=("torch",)),
    Example("torch_lightning", "digits", ("--goal", "2"), modules=("torch", "pytorch_lightning")),
    Example("torch_accelerate", "digits", ("--goal", "2"), modules=("torch", "accelerate")),
    Example("torch_transformers", "sums", ("--goal", "26"), modules=("torch", "transformers")),
    pytest.param(Example("jax", "digits", ("--goal", "60")), marks=pytest.mark.frameworks, id="jax"),
    pytest.param(Example("tensorflow", "digits", ("--goal", "2")), marks=pytest.mark.tensorflow, id="tensorflow"),
]


def test_no_engine_is_left_out():
    listed = [getattr(case, "values", (case,))[0] for case in CASES]
    configs = [yaml.safe_load((EXAMPLES / each.folder / "config" / "config.yaml").read_text()) for each in listed]

    assert {run["engine"] for config in configs for run in config["runs"].values()} == set(known_schemas().engines)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("example", CASES, ids=lambda example: example.id)
def test_an_example_is_identical_or_says_what_it_loses(tmp_path, example):
    from support.dmtcp_here import PROGRAMS  # starts what the stand-in needs

    require(*example.needs)
    for module in example.modules:
        if importlib.util.find_spec(module) is None:
            skip_or_fail(f"missing: {module}")
    folder = tmp_path / example.folder
    shutil.copytree(EXAMPLES / example.folder, folder, ignore=shutil.ignore_patterns("results", "logs", ".snakemake"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNBROKEN_")}
    environment |= {"HF_HUB_OFFLINE": "1", "PATH": f"{PROGRAMS}{os.pathsep}{environment['PATH']}"}
    if example.made:
        subprocess.run(example.made, cwd=folder, check=True)

    command = [UNBROKEN, "rehearse", example.run, *example.words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)

    noted = json.loads((folder / "results" / ".rehearsal" / f"{example.run}.json").read_text())
    said = done.stdout + done.stderr
    if example.lost:
        assert (done.returncode, noted["verdict"]) == (1, "loses output"), said
        assert noted["reason"].startswith(f"{example.lost}: written by the program, and is not in final/"), said
    else:
        assert (done.returncode, noted["verdict"], noted["reason"]) == (0, "identical", example.reason), said
        assert re.search(rf"^{example.run}: control: with a wrong \S.* it was found in \d+ s: .+$", said, re.M), said
    read = rf"progress was read: {example.reads}; it grew from \S+ to \S+ .+"
    assert re.fullmatch(read, noted["progress_read"]), noted["progress_read"]
