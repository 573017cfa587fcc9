"""Ten programs of users that do not work: the line that explains it is among the last ten on the screen."""

import re
import shutil

import pytest
from support import gmx_systems
from support.terminal import Terminal
from support.workdir import BIN, WorkDir

COMMAND = {
    "a program that is not installed": ("no-such-md -in in.lammps\n", r"no-such-md: (command )?not found"),
    "LAMMPS": ("echo 'ERROR: Unknown pair style reax/c (src/force.cpp:274)'; exit 1\n", r"Unknown pair style reax/c"),
    "a segmentation fault": ("echo step 1; kill -SEGV $$\n", r"SIGSEGV|exit code 139"),
    "a library that is missing": (
        "echo 'sim: error while loading shared libraries: libfftw3.so.3: cannot open' >&2; exit 127\n",
        r"libfftw3.so.3",
    ),
    "control sequences in its error": (
        r"printf '\033[2J\033]0;owned\007\033[31mError: quota\033[8m exceeded\033[0m\a\n' >&2; exit 1" "\n",
        r"Error: quota exceeded",
    ),
}
TORCH = {
    "a module that is missing": ("import no_such_module\n", r"ModuleNotFoundError: No module named 'no_such_module'"),
    "a file that is missing": (
        "import torch\ntorch.load('data.pt')\n",
        r"FileNotFoundError: .*data.pt",
    ),
    "shapes that do not fit": (
        "import torch\ntorch.nn.Linear(3, 2)(torch.zeros(4, 5))\n",
        r"RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
}


def last_lines(work: WorkDir, engine: str, settings: dict[str, object]) -> tuple[str, bytes]:
    """The last ten lines of the screen after a chain of two segments, as one text, and all that was sent to it."""
    work.added_environment["UNBROKEN_CONSOLE"] = ""
    work.configure({"demo": {"engine": engine, "segments": 2, "segment_minutes": 5, "settings": settings}})
    command = [str(BIN / "snakemake"), "--snakefile", str(work.snakefile)]
    with Terminal(command, work.root, work.environment()) as screen:
        assert screen.wait() == 1
        # A line that is wider than the screen goes on in the next one.
        return "".join(line.ljust(80) for line in screen.text[-10:]), screen.raw


def shows(text: str, pattern: str) -> bool:
    return re.search(pattern, text) is not None or re.search(pattern, re.sub(r" {2,}", " ", text)) is not None


@pytest.mark.parametrize("kind", COMMAND)
def test_a_program_of_any_kind_that_fails_is_explained_on_the_screen(work: WorkDir, kind: str) -> None:
    script, pattern = COMMAND[kind]
    path = work.write("run.sh", script)

    text, raw = last_lines(work, "command", {"start": ["bash", str(path)], "files": ["state"]})

    assert shows(text, pattern), text
    assert b"owned" not in raw
    assert b"\x1b[2J" not in raw
    assert b"\x1b[8m" not in raw


@pytest.mark.slow
@pytest.mark.parametrize("kind", TORCH)
def test_a_training_that_fails_is_explained_on_the_screen(work: WorkDir, kind: str) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install '.[torch]')")
    script, pattern = TORCH[kind]
    work.write("train.py", script)

    text, _ = last_lines(work, "torch", {"script": "train.py", "goal": 5})

    assert shows(text, pattern), text


@pytest.mark.slow
@pytest.mark.needs("gromacs")
@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"nsteps": "many"}, r"many"),
        ({"rcoulomb": 9, "rvdw": 9}, r"cut-off length is longer than half the shortest box vector"),
    ],
    ids=["an input with a mistake", "a box that is too small"],
)
def test_a_simulation_that_fails_is_explained_on_the_screen(
    work: WorkDir, changes: dict[str, object], pattern: str
) -> None:
    for name in ("conf.gro", "topol.top"):
        shutil.copy(gmx_systems.water() / name, work.root)
    gmx_systems.write_mdp(work.root / "md.mdp", {**gmx_systems.NVT, **changes})

    text, _ = last_lines(work, "gromacs", {"mdp": "md.mdp", "structure": "conf.gro", "topology": "topol.top"})

    assert shows(text, pattern), text
