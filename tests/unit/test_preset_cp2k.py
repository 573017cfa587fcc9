"""The preset of CP2K: how its input is found, what it stands for, and what it refuses."""

import shutil
from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.engines.command.edits import edited
from unbroken.engines.files.settings import Edit, When
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

CASE = Path(__file__).parents[1] / "presets/cases/cp2k"
RUN = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: cp2k, input: hydrogen.inp}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(CASE / "hydrogen.inp", tmp_path)
    return tmp_path


def run_of(folder: Path) -> RunSpec:
    run, *_ = read_checked_runs(yaml.safe_load(RUN), folder)
    return run


def change(folder: Path, old: str, new: str) -> None:
    path = folder / "hydrogen.inp"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(("kind", "preset"), [("MD", "cp2k"), ("geo_opt", "cp2k-optimize")])
def test_init_finds_the_input_by_what_it_computes(folder: Path, kind: str, preset: str) -> None:
    change(folder, "RUN_TYPE MD", f"RUN_TYPE {kind}")

    assert choose(folder, []).starter.settings[0].startswith(f"preset: {preset} ")


def test_names_and_the_goal_are_those_of_the_input(folder: Path) -> None:
    (folder / "GTH_POTENTIALS").touch()

    found = run_of(folder).settings

    assert (found["files"], found["goal"]) == (("hydrogen-1.restart",), 80)
    assert found["inputs"] == ("hydrogen.inp", "GTH_POTENTIALS")


def test_a_restart_makes_the_steps_that_remain_and_leaves_comments_as_they_are(folder: Path) -> None:
    text = "# STEPS 7\n  STEPS 80 ! in all\n"
    for each in run_of(folder).settings["edits"]:
        edit = Edit(
            each["file"], each["find"], each["put"].replace("{remaining}", "30"), When(each.get("when", "always"))
        )
        text = edited(text, edit, edit.put) or ""

    restart = "&EXT_RESTART\n  RESTART_FILE_NAME hydrogen-1.restart\n&END EXT_RESTART\n"
    assert text == f"{restart}# STEPS 7\n    STEPS 30 ! in all\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "RUN_TYPE MD",
            "RUN_TYPE GEO_OPT",
            "is no input of cp2k: allowed: a file *.inp in which",
        ),
        ("STEPS 80", "STEPS ${N}", "no line such as `STEPS 1000`"),
        ("STEPS 80", "STEPS 80\n    MAX_STEPS 80", "line 11: found 'MAX_STEPS 80': with it CP2K leaves one step early"),
        ("&MOTION", "&EXT_RESTART\n&END\n&MOTION", "STEPS would count from another restart"),
        ("STEPS 80", "STEPS 80\n    step_start_val 20", "STEPS would count from another restart"),
        ("    &RESTART\n", "    &RESTART OFF\n", "no restart files are written"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    change(folder, old, new)

    with pytest.raises(ConfigError) as error:
        run_of(folder)

    assert said in "\n".join(error.value.mistakes)


def test_no_restart_of_the_scf_is_no_matter(folder: Path) -> None:
    change(folder, "MAX_SCF 50", "&PRINT\n&RESTART OFF\n&END\n&END")

    assert run_of(folder).settings["goal"] == 80


def test_a_search_has_the_names_of_its_input_and_no_goal(folder: Path) -> None:
    change(folder, "RUN_TYPE MD", "RUN_TYPE GEO_OPT")
    run, *_ = read_checked_runs(yaml.safe_load(RUN.replace("cp2k", "cp2k-optimize")), folder)

    assert (run.settings["files"], run.goal) == (("hydrogen-1.restart",), None)
    assert list(run.settings["outputs"]) == ["hydrogen-pos-1.xyz"]
