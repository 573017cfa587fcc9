"""The preset of VASP: how its input is found, what it stands for, and what it refuses."""

import shutil
from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

CASE = Path(__file__).parents[1] / "presets/cases/vasp"
RUN = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: vasp}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("INCAR", "POSCAR", "POTCAR", "KPOINTS"):
        shutil.copy(CASE / name, tmp_path)
    return tmp_path


def run_of(folder: Path) -> RunSpec:
    run, *_ = read_checked_runs(yaml.safe_load(RUN), folder)
    return run


def test_init_finds_the_input(folder: Path) -> None:
    assert choose(folder, []).starter.settings[0].startswith("preset: vasp ")


def test_files_under_fixed_names_are_inputs(folder: Path) -> None:
    assert run_of(folder).settings["inputs"] == ("INCAR", "POSCAR", "POTCAR", "KPOINTS")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("IBRION = 3", "IBRION = 0", "CONTCAR does not say which step it is"),
        ("IBRION = 3", "IBRION = 6", "phonons (5 to 8) have no restart"),
        ("NSW = 600", "NSW = 0", "without steps there is nothing to resume from"),
        ("SYSTEM", "IMAGES = 4\nSYSTEM", "each image has a CONTCAR of its own"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    path = folder / "INCAR"
    path.write_text(path.read_text().replace(old, new))

    with pytest.raises(ConfigError) as error:
        run_of(folder)

    assert said in "\n".join(error.value.mistakes)
