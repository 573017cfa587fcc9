"""The preset of OpenFOAM: how a case is found, what stands for it, and what is refused before anything starts."""

import re
import shutil
from pathlib import Path

import pytest

from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import Edit
from unbroken.engines.files.states import glob_of, matches
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.presets.preset import presets
from unbroken.store.run import RunSpec

CASE = Path(__file__).parents[1] / "presets/cases/openfoam"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    shutil.copytree(CASE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run_of(case: Path) -> RunSpec:
    text = {"preset": "openfoam", "start": ["icoFoam"]}
    runs = {"a": {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": text}}
    run, *_ = read_checked_runs({"runs": runs}, case)
    return run


def with_control(case: Path, line: str) -> None:
    """Put a line into controlDict in place of the one with the same key; a key alone takes it out."""
    path, key = case / "system/controlDict", line.split()[0].rstrip(";")
    text = re.sub(rf"^{key}\s.*\n", f"{line}\n" if line != key else "", path.read_text(), flags=re.MULTILINE)
    path.write_text(text)


def control_of(run: RunSpec, case: Path, goal: str = "0.5") -> str:
    text = (case / "system/controlDict").read_text()
    for edit in run.settings["edits"]:
        made = edited(text, Edit(edit["file"], edit["find"], edit["put"]), filled(edit["put"], {"goal": goal}))
        assert made is not None
        text = made
    return text


def test_a_case_is_found_with_its_folders_and_its_goal(case: Path) -> None:
    for rank in ("processor0", "processor1"):
        (case / rank).mkdir()
    found = run_of(case)

    assert presets(case)["openfoam"].inputs_below(case) == ["system/controlDict"]
    assert set(found.settings["inputs"]) == {"system", "constant", "0", "processor0", "processor1"}
    assert (found.goal, found.settings["goal_unit"]) == (0.5, "s")


def test_a_start_from_another_time_has_its_folder(case: Path) -> None:
    (case / "0").rename(case / "0.25")
    with_control(case, "startTime 0.25;")

    assert "0.25" in run_of(case).settings["inputs"]


def test_time_folders_are_states_and_what_functions_write_is_none(case: Path) -> None:
    files = run_of(case).settings["files"]

    assert glob_of("0.05/uniform/time", files)[1] == glob_of("processor12/0.05/U", files)[1] == "0.05"
    assert glob_of("1e-05/lagrangian/cloud/d", files)[1] == "1e-05"
    for name in ("postProcessing/probes/0.05/U", "constant/1/x", "processor0/constant/2/x", "VTK/3/x", "log.icoFoam"):
        assert not matches(files, name)


@pytest.mark.parametrize(
    ("control", "action"),
    [("timeStep", "writeNow"), ("clockTime", "writeNow"), ("runTime", "nextWrite"), ("adjustable", "nextWrite")],
)
def test_a_solver_is_asked_to_leave_where_its_times_of_writing_stay_the_same(
    case: Path, control: str, action: str
) -> None:
    """Times of writing are counted from the restart with runTime: 0.0335, 0.0585, ..., and the end is never written."""
    with_control(case, f"writeControl    {control};")
    text = control_of(run_of(case), case)

    assert text.count("type abort;") == 1 and f"action {action};" in text
    assert 'file "unbroken-stop"' in text and run_of(case).settings["stop_file"] == "unbroken-stop"


def test_it_resumes_from_the_latest_time_whatever_the_case_says_and_ends_at_the_goal(case: Path) -> None:
    with_control(case, "startFrom       startTime;")
    text = control_of(run_of(case), case, goal="0.75")

    assert re.search(r"^startFrom +latestTime;", text, re.MULTILINE)
    assert re.search(r"^endTime +0\.75;", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("stopAt writeNow;", "found 'stopAt writeNow': it ends before endTime; type stopAt endTime"),
        ("startFrom", "it has no startFrom"),
        ("writeControl", "it has no writeControl that is known"),
        ("startTime -360;", "found 'startTime -': folders of negative times are not known"),
        ("endTime 0.33333333;", "the names of time folders have 6 digits, so the end is not seen"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_the_reason(case: Path, line: str, why: str) -> None:
    with_control(case, line)

    with pytest.raises(ConfigError) as error:
        run_of(case)

    assert "system/controlDict" in error.value.mistakes[0] and why in error.value.mistakes[0]


def test_a_long_end_is_taken_with_names_that_are_as_long(case: Path) -> None:
    with_control(case, "endTime 0.33333333;")
    with_control(case, "timePrecision 9;")

    assert run_of(case).goal == 0.33333333


def test_a_fatal_error_is_known_with_its_reason() -> None:
    text = '\n\n--> FOAM FATAL ERROR: \ncannot find file "/case/0/p"\n\n    From function virtual\n'
    pattern = presets(Path())["openfoam"].settings["error_pattern"]

    assert (found := re.search(pattern, text, re.MULTILINE)) and 'cannot find file "/case/0/p"' in found[0]
