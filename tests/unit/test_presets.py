"""What a preset stands for, how it is found, and what is refused before anything starts."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.cli.presets_command import presets as command
from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled, strange
from unbroken.engines.files.settings import Edit
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.exec.presets import preset_of
from unbroken.presets.preset import installed, presets, read_preset
from unbroken.presets.runs import smaller_goal
from unbroken.store.run import RunSpec

ROOT = Path(__file__).parents[2]
COUNT = """
title: countit, a count
programs: [countit, "countit.*"]
input: {files: ["*.cnt", case/setup], content: '^steps +\\d'}
comment: '#.*$'
reads: ['^read +(\\S+)']
reads_after: ["-d", "--data", ""]
inputs: ["*.par"]
variables:
  steps: {find: '^steps +(\\S+)'}
  name: {find: '^name +(\\S+)', default: run}
  absent: {find: '^absent +(\\S+)'}
  windows: {find: '^mean +(\\d+)', take: lcm, default: 1}
  every: {find: '^steps +(\\d+)', divided_by: 50, multiple_of: windows}
settings:
  start: [countit, -i, "${input}", --every, "${every}", "${absent}"]
  resume: ["${program}", --again, "{file}", "${start}"]
  edits:
    - {file: "${input}", find: '^steps .*', put: "steps {remaining}"}
    - {file: "${input}", find: '^again .*', put: "again yes", after: '^steps', when: resume}
    - {file: "${input}", find: 'x', put: "${absent}"}
  files: ["${name}.chk"]
  progress_file: "${name}.chk"
  progress_pattern: '(\\d+)'
  goal: ${steps}
refuse:
  - {find: '^shake', why: "it is not in the restart file; remove it"}
  - {lacks: '^name', unless: '^noname', why: "type a line `name X`"}
equal: bytes
"""
INPUT = "# steps 3\nname wave\nsteps 1e3\nmean 4\nmean 6\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config/presets").mkdir(parents=True)
    (tmp_path / "config/presets/countit.yaml").write_text(COUNT)
    (tmp_path / "wave.cnt").write_text(INPUT)
    return tmp_path


def run_of(folder: Path, settings: str = "preset: countit", defaults: str = "") -> RunSpec:
    text = f"runs:\n  a:\n    engine: command\n    segments: 2\n    segment_minutes: 1\n    settings: {{{settings}}}\n"
    config = yaml.safe_load(text) | ({"defaults": yaml.safe_load(defaults)} if defaults else {})
    run, *_ = read_checked_runs(config, folder)
    return run


def refused(folder: Path, settings: str = "preset: countit") -> list[str]:
    with pytest.raises(ConfigError) as error:
        run_of(folder, settings)
    return error.value.mistakes


def with_line(folder: Path, line: str) -> None:
    (folder / "wave.cnt").write_text(f"{INPUT}{line}\n")


# --- what it stands for ---


def test_a_preset_stands_for_each_setting_that_is_not_typed(folder: Path) -> None:
    found = run_of(folder).settings

    assert found["start"] == ("countit", "-i", "wave.cnt", "--every", "12")
    assert found["resume"] == ("countit", "--again", "{file}", *found["start"])
    assert (found["files"], found["goal"], found["inputs"]) == (("wave.chk",), 1000, ("wave.cnt",))
    assert [edit["put"] for edit in found["edits"]] == ["steps {remaining}", "again yes"]


def test_what_is_typed_stands_in_the_run_and_in_the_defaults(folder: Path) -> None:
    (folder / "more.txt").touch()
    found = run_of(folder, "goal: 7, inputs: [more.txt]", "settings: {preset: countit, files: [other.chk]}").settings

    assert (found["goal"], found["files"], found["inputs"]) == (7, ("other.chk",), ("wave.cnt", "more.txt"))


def test_a_command_line_of_ones_own_has_its_inputs_under_their_last_names(folder: Path) -> None:
    (folder / "sims").mkdir()
    (folder / "wave.cnt").rename(folder / "sims/wave.cnt")
    (folder / "sims/grid.dat").touch()
    line = "start: [mpirun, -np, 4, countit.x, -i, sims/wave.cnt, -d, sims/grid.dat, --data=sims/grid.dat,"
    line += " -o, sims/grid.dat]"
    found = run_of(folder, f"preset: countit, {line}").settings

    assert found["start"][4:] == ("-i", "wave.cnt", "-d", "grid.dat", "--data=grid.dat", "-o", "sims/grid.dat")
    assert found["resume"][:4] == ("mpirun", "-np", "4", "countit.x")
    assert found["inputs"] == ("sims/wave.cnt", "sims/grid.dat")


def test_what_an_input_reads_is_an_input_too_and_so_what_that_reads(folder: Path) -> None:
    with_line(folder, "read first.txt\nread data/second.txt\nread absent.txt")
    (folder / "first.txt").write_text("read third.txt\n")
    (folder / "data").mkdir()
    for name in ("data/second.txt", "third.txt", "force.par", "other.txt"):
        (folder / name).write_text("x\n")

    assert sorted(run_of(folder).settings["inputs"]) == ["data", "first.txt", "force.par", "third.txt", "wave.cnt"]


def test_what_a_run_before_has_left_here_is_no_input(folder: Path) -> None:
    """Else the program would write into it, and a finished run begin anew because an input has changed."""
    with_line(folder, "read wave.chk")
    before = run_of(folder).settings["inputs"]
    (folder / "wave.chk").write_text("1000\n")

    assert run_of(folder).settings["inputs"] == before == ("wave.cnt",)


def test_an_input_in_a_folder_of_its_case_keeps_that_folder(folder: Path) -> None:
    (folder / "wave.cnt").unlink()
    (folder / "flow/case").mkdir(parents=True)
    (folder / "flow/case/setup").write_text(INPUT)

    found = run_of(folder, "preset: countit, input: flow/case/setup").settings

    assert (found["start"][2], found["edits"][0]["file"]) == ("case/setup", "case/setup")


# --- which one ---


def test_of_two_inputs_one_is_to_be_named(folder: Path) -> None:
    (folder / "other.cnt").write_text(INPUT)

    assert refused(folder) == ["runs.a.settings.input: found other.cnt, wave.cnt; type which: `input: other.cnt`"]
    assert run_of(folder, "preset: countit, input: other.cnt").settings["start"][2] == "other.cnt"
    assert run_of(folder, "preset: countit, start: [countit, other.cnt]").settings["edits"][0]["file"] == "other.cnt"


def test_without_an_input_the_line_says_what_one_looks_like(folder: Path) -> None:
    (folder / "wave.cnt").write_text("# steps 5\n")

    assert refused(folder) == [
        "runs.a.settings.input: found no input of countit; allowed: a file *.cnt or case/setup in which a line matches "
        "^steps +\\d"
    ]


def test_an_unknown_preset_is_told_with_the_one_that_was_meant(folder: Path) -> None:
    (line,) = refused(folder, "preset: cuntit")

    assert re.match(r"runs\.a\.settings\.preset: found 'cuntit', allowed: .*\bcountit, ", line)
    assert line.endswith("; did you mean `countit`?")


def test_a_preset_that_is_wrong_is_told_with_its_file_and_key(folder: Path) -> None:
    path = folder / "config/presets/countit.yaml"
    path.write_text(COUNT.replace("reads_after", "reads_behind").replace("'^read +(\\S+)'", "'^read +(\\S+'"))

    mistakes = " ".join(refused(folder))

    assert f"{path}: a preset: Additional properties are not allowed ('reads_behind' was unexpected)" in mistakes
    assert f"{path}: reads.0: " in mistakes


def test_a_variable_that_a_preset_does_not_have_is_told(folder: Path) -> None:
    path = folder / "config/presets/countit.yaml"
    path.write_text(COUNT.replace("${name}.chk", "${nam}.chk"))

    assert refused(folder)[0].startswith(f"{path}: found ${{nam}}, allowed: input, stem, steps, name")


def test_ones_own_preset_stands_for_one_of_ours(folder: Path) -> None:
    (folder / "config/presets/lammps.yaml").write_text(COUNT)

    assert presets(folder)["lammps"].title == "countit, a count"
    assert presets(folder / "config")["lammps"].title.startswith("LAMMPS")


def package(folder: Path, name: str) -> None:
    """Make an installed package that brings a preset by its entry point."""
    (folder / name).mkdir()
    (folder / name / "countit.yaml").write_text(COUNT)
    (folder / f"{name}-1.dist-info").mkdir()
    (folder / f"{name}-1.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (folder / f"{name}-1.dist-info/entry_points.txt").write_text(f"[unbroken.presets]\n{name} = {name}\n")


def test_another_package_brings_its_own_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "counters")
    monkeypatch.syspath_prepend(tmp_path)

    assert installed.__wrapped__()["countit"].path == tmp_path / "counters/countit.yaml"

    package(tmp_path, "tallies")
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match=r"preset countit: both .*counters.* and .*tallies.* are one; uninstall one"):
        installed.__wrapped__()


# --- what is refused ---


def test_what_cannot_be_resumed_right_is_refused_with_its_line_and_the_reason(folder: Path) -> None:
    with_line(folder, "shake  H")

    assert refused(folder) == [
        "runs.a.settings.input: wave.cnt line 6: found 'shake': it is not in the restart file; remove it"
    ]


def test_what_is_lacking_is_refused_unless_something_else_is_there(folder: Path) -> None:
    (folder / "wave.cnt").write_text("steps 5\n")
    assert refused(folder) == ["runs.a.settings.input: wave.cnt: type a line `name X`"]

    (folder / "wave.cnt").write_text("steps 5\nnoname\n")
    assert run_of(folder).settings["files"] == ("run.chk",)


def test_an_input_that_leads_out_of_its_folder_is_refused(folder: Path) -> None:
    with_line(folder, "read ../shared.txt")

    (line,) = refused(folder)
    assert line == (
        "runs.a.settings.input: wave.cnt: found '../shared.txt', which is not below its folder; type its absolute path"
    )


# --- edits, and numbers in them ---


@pytest.mark.parametrize(
    ("find", "put", "after", "is_optional", "expected"),
    [
        (r"^n (\d+)", r"n {\1}", "", False, "a\nn {5}\nb"),
        ("^n .*", "n C:\\temp", "", False, "a\nn C:\\temp\nb"),
        ("^m .*", "m 1", "^n", False, "a\nn 5\nm 1\nb"),
        ("^m .*", "m 1", "^b", False, "a\nn 5\nb\nm 1"),
        ("^m .*", "m 1", "", True, "a\nn 5\nb"),
        ("^m .*", "m 1", "^x", False, None),
    ],
)
def test_an_edit_changes_each_match_or_adds_a_line(find, put, after, is_optional, expected) -> None:
    assert edited("a\nn 5\nb", Edit("in", find, put, after=after, is_optional=is_optional), put) == expected


def test_a_file_in_which_unless_matches_stays_as_it_is() -> None:
    edit = Edit("in", "n .*", "n 6", unless="^again")

    assert edited("n 5\n# again\n", edit, "n 6") == "n 6\n# again\n"
    assert edited("n 5\nagain\n", edit, "n 6") == "n 5\nagain\n"
    assert edited("again\n", edit, "n 6") == "again\n"


def test_an_edit_without_a_place_is_refused_before_anything_is_queued(folder: Path) -> None:
    found = refused(folder, "preset: countit, edits: [{file: wave.cnt, find: '^none', put: x}]")

    assert found == ["runs.a.settings.edits: found '^none', which matches nothing in wave.cnt"]


def test_an_edit_of_a_file_that_is_no_input_is_refused(folder: Path) -> None:
    (line,) = refused(folder, "preset: countit, edits: [{file: other.txt, find: x, put: y}]")

    assert line.startswith("runs.a.settings.edits: found 'other.txt', which cannot be read as text: ")


def test_a_number_is_divided_into_steps() -> None:
    assert filled("nstlim={remaining/0.002} {{x}}", {"remaining": "1.5"}) == "nstlim=750 {x}"
    assert list(strange("{run/2} {goal/0} {goal/2} {{}}", ["run", "goal"])) == ["{run/2}", "{goal/0}"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["lmp", "-in", "a"], "lammps"),
        (["/opt/bin/lmp_mpi"], "lammps"),
        (["python3", "a.py"], ""),
        (["octave-cli"], ""),
    ],
)
def test_exec_knows_the_programs_that_have_a_preset(words: list[str], name: str) -> None:
    assert preset_of(words) == name


# --- a smaller goal for a rehearsal ---


@pytest.mark.parametrize(("settings", "goal"), [("preset: countit", 20), ("preset: countit, goal: 10", None)])
def test_a_rehearsal_has_the_goal_of_the_preset_if_that_is_smaller(folder: Path, settings: str, goal: int) -> None:
    (folder / "config/presets/countit.yaml").write_text(COUNT + "rehearse: {goal: 20}\n")

    assert smaller_goal(run_of(folder, settings), folder) == goal


# --- commands and pages ---


def test_init_finds_an_input_and_a_command_line(folder: Path) -> None:
    (folder / "wave.cnt").rename(folder / "deep.cnt")

    by_file, by_line = choose(folder, []), choose(folder, ["countit", "-i", "deep.cnt"])

    assert (by_file.engine, by_file.starter.run) == ("command", "deep")
    assert by_file.starter.settings == ("preset: countit  # countit, a count", "input: deep.cnt")
    assert by_line.starter.settings[1] == "start: [countit, -i, deep.cnt]"


def test_where_two_presets_match_init_says_what_to_type_for_each(folder: Path) -> None:
    (folder / "config/presets/tally.yaml").write_text(COUNT)

    with pytest.raises(ConfigError) as error:
        choose(folder, [])

    typed = [line.split("unbroken ")[1] for line in error.value.mistakes[1:]]
    assert typed == ["init command countit wave.cnt", "init command tally wave.cnt"]
    for line in typed:
        assert choose(folder, line.split()[1:]).starter.settings[0].startswith(f"preset: {line.split()[2]} ")


def test_the_list_names_each_and_show_prints_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(directory=folder)
    assert re.search(r"(?m)^countit +countit, a count$", capsys.readouterr().out)

    command(["show", "countit"], directory=folder)
    assert COUNT.strip() in capsys.readouterr().out


def test_each_preset_has_a_case_and_pages_that_are_its_own() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    from preset_pages import page

    cases = {yaml.safe_load(path.read_text())["preset"] for path in (ROOT / "tests/presets/cases").glob("*/case.yaml")}
    for path in sorted((ROOT / "src/unbroken/presets/programs").glob("*.yaml")):
        found = read_preset(path)
        assert (ROOT / f"docs/presets/{found.name}.md").read_text() == page(found), "type `make docs-keys`"
        assert found.name in cases, "no folder tests/presets/cases has this preset"
