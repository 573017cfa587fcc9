"""What a run names for its program: it starts there, the passport holds what it was, a change is told or refused."""

import json
import sys
from collections.abc import Sequence

import pytest
from support.conda_environments import ACTIVATE, install_packages, make_package
from support.venvs import install, make_venv
from support.workdir import WorkDir

PYTHON, SHELL = ("python", "{base}/program.py"), ("sh", "{base}/program.sh", "two words")
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


TRAINING = """
import json, os, pathlib, sys
import fruit

save = pathlib.Path(os.environ["UNBROKEN_SAVE"])
(save / "found.txt").write_text(f"{fruit.__version__} {sys.prefix}")
(save / "progress.json").write_text(json.dumps({"done": 1}))
"""
# The same for any machine with a shell; `fruit` is a program of the environment.
SCRIPT = """
done=$(( $(cat state 2>/dev/null || echo 0) + 1 ))
echo $done > state
echo $done $(fruit) "$@" >> seen.txt
[ $done -ge 3 ] || exit 85
"""


def configure(work: WorkDir, segments: int = 3, start: Sequence[str] = PYTHON, **keys: object) -> None:
    settings = {
        "start": list(start),
        "files": ["state"],
        "progress_file": "state",
        "progress_pattern": r"(\d+)",
        "goal": 3,
        "goal_unit": "steps",
        "exit_paused": [85],
    }
    run = {"engine": "command", "segments": segments, "segment_minutes": 0.5, "settings": settings}
    work.configure({"demo": {**run, **(keys or {"venv": "env"})}})


@pytest.fixture
def made(work: WorkDir) -> WorkDir:
    """A run in a venv that has done one step of three."""
    work.write("program.py", PROGRAM)
    make_venv(work.root / "env", "1.0")
    configure(work, segments=1)
    done = work.snakemake()
    assert "1 of 3" in done.text, done.text
    return work


# --- venv ----------------------------------------------------------------------------------------------------------


def test_the_program_starts_in_the_venv_and_the_passport_holds_its_packages(made: WorkDir) -> None:
    folder = made.root / "env"

    found = made.passports("demo")[-1].environment

    assert found == {"venv": {"path": str(folder), "python": sys.version.split()[0], "packages": {"fruit": "1.0"}}}
    assert f"environment: venv {folder}, python {sys.version.split()[0]}, 1 packages" in made.log("demo", 1)
    configure(made)
    made.snakemake()
    seen = made.final("demo")["seen.txt"].decode()
    assert seen == "".join(f"{step} 1.0 {folder} {folder}\n" for step in (1, 2, 3))


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
    configure(made, venv="env", environment="strict")

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
        "unbroken: runs.demo.venv: found 'envs/none', but there is no such file as envs/none/pyvenv.cfg, allowed: the "
        "folder of a Python environment; type: python3 -m venv envs/none"
    ]
    assert not (work.root / "results").exists()


# --- conda ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def basket(work: WorkDir) -> WorkDir:
    """A run in a conda environment that has done one step of three."""
    fruit = {"bin/fruit": "#!/bin/sh\necho apple 1.0 $COLOR $SIZE\n", ACTIVATE: "export COLOR=green\n"}
    make_package(work.root / "channel", "1.0", fruit)
    install_packages(work.root / "channel", work.root / "envs/basket", "fruit=1.0")
    kept = work.root / "envs/basket/conda-meta/state"
    kept.write_text(json.dumps({"version": 1, "env_vars": {"SIZE": "very large"}}))  # conda env config vars set
    work.write("program.sh", SCRIPT)
    configure(work, segments=1, start=SHELL, conda="envs/basket")
    done = work.snakemake()
    assert "1 of 3" in done.text, done.text
    return work


def test_the_program_starts_in_the_conda_environment_as_if_activated(basket: WorkDir) -> None:
    found = basket.passports("demo")[-1].environment
    configure(basket, start=SHELL, conda="basket")
    basket.added_environment["CONDA_ENVS_PATH"] = str(basket.root / "envs")

    done = basket.snakemake()

    assert done.code == 0, done.text
    assert found == {"conda": {"path": str(basket.root / "envs/basket"), "packages": {"fruit": "1.0 h1_0"}}}
    assert basket.final("demo")["seen.txt"].splitlines()[-1] == b"3 apple 1.0 green very large two words"


def test_a_package_that_was_updated_in_the_conda_environment_is_told(basket: WorkDir) -> None:
    make_package(basket.root / "channel", "2.0", {"bin/fruit": "#!/bin/sh\necho apple 2.0\n"})
    install_packages(basket.root / "channel", basket.root / "envs/basket", "fruit=2.0")
    configure(basket, start=SHELL, conda="envs/basket")

    assert basket.snakemake().code == 0

    assert "segment 2: conda changed since checkpoint 1: fruit 1.0 h1_0 -> 2.0 h1_0\n" in basket.log("demo", 2)
    assert [attempt.progress_to for attempt in basket.history("demo")] == [1, 2, 3]


def test_a_conda_environment_that_is_nowhere_is_named_with_where_it_was_looked_for(work: WorkDir) -> None:
    (work.root / "envs").mkdir()
    work.added_environment |= {"CONDA_ENVS_PATH": str(work.root / "envs"), "HOME": str(work.root)}
    configure(work, conda="basket")

    done = work.snakemake()

    assert done.code == 1
    assert done.lines("unbroken:") == [
        f"unbroken: runs.demo.conda: found 'basket', but there is no such file: no environment of that name in "
        f"{work.root}/envs; type its folder"
    ]


# --- modules -------------------------------------------------------------------------------------------------------


@pytest.mark.needs("environment-modules")
def test_the_passport_has_all_modules_that_are_loaded_and_another_version_is_told(work: WorkDir) -> None:
    fruit = "#!/bin/sh\necho $FRUIT $SEED\n"
    work.write("bin/fruit", fruit).chmod(0o755)
    for version in ("1.0", "2.0"):
        work.write(f"modulefiles/seed/{version}", f"#%Module\nsetenv SEED {version}\n")
    path = f"prepend-path PATH {work.root}/bin\n"
    work.write("modulefiles/tree/fruit/3", f"#%Module\nmodule load seed/1.0\nsetenv FRUIT pear\n{path}")
    work.write("program.sh", SCRIPT)
    work.added_environment["MODULEPATH"] = str(work.root / "modulefiles")
    configure(work, segments=1, start=SHELL, modules=["tree/fruit"])
    work.snakemake()
    work.write("modulefiles/tree/fruit/3", f"#%Module\nmodule load seed/2.0\nsetenv FRUIT pear\n{path}")
    configure(work, start=SHELL, modules=["tree/fruit"])

    done = work.snakemake()

    assert done.code == 0, done.text
    found = [passport.environment["modules"] for passport in work.passports("demo")]
    assert found[-1] == {"loaded": {"seed": "2.0", "tree/fruit": "3"}}
    assert "segment 2: modules changed since checkpoint 1: seed 1.0 -> 2.0\n" in work.log("demo", 2)
    assert work.final("demo")["seen.txt"].splitlines()[-1] == b"3 pear 2.0 two words"


# --- trainings -----------------------------------------------------------------------------------------------------


def test_a_training_is_started_by_the_python_of_its_venv(work: WorkDir) -> None:
    make_venv(work.root / "env", "1.0")
    work.write("train.py", TRAINING)
    settings = {"script": "train.py", "goal": 1}
    run = {"engine": "torch", "segments": 1, "segment_minutes": 0.5, "settings": settings}
    work.configure({"demo": {**run, "venv": "env"}})

    done = work.snakemake()

    assert done.code == 0, done.text
    assert work.final("demo")["found.txt"].decode() == f"1.0 {work.root / 'env'}"
