"""The preset of Quantum ESPRESSO: how its input is found, what it stands for, and what it refuses."""

import re
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

CASE = Path(__file__).parents[1] / "presets/cases/espresso"
RUN = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: espresso}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("h2.in", "H.UPF"):
        shutil.copy(CASE / name, tmp_path)
    return tmp_path


def run_of(folder: Path) -> RunSpec:
    run, *_ = read_checked_runs(yaml.safe_load(RUN), folder)
    return run


def change(folder: Path, old: str, new: str) -> None:
    path = folder / "h2.in"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def resumed(folder: Path, text: str) -> str:
    """Return the text of an input as the program reads it after a restart."""
    for each in run_of(folder).settings["edits"]:
        edit = Edit(each["file"], each["find"], each["put"], When(each.get("when", "always")))
        text = edited(text, edit, edit.put.format(seconds=9, remaining=7)) or ""
    return text


def test_init_finds_the_input(folder: Path) -> None:
    assert choose(folder, []).starter.settings[0].startswith("preset: espresso ")


def test_names_and_the_goal_are_those_of_the_input(folder: Path) -> None:
    found = run_of(folder).settings

    assert (found["files"], found["goal"], found["stop_file"]) == (("out/**",), 60, "h2.EXIT")
    assert (found["inputs"], found["progress_file"]) == (("h2.in", "H.UPF"), "out/h2.md")


def test_only_dynamics_count_steps(folder: Path) -> None:
    change(folder, "'md'", "'relax'")
    found = run_of(folder).settings

    assert (found["goal"], found["progress_file"]) == (None, "")


@pytest.mark.parametrize(
    "control",
    [
        "&control\n calculation='md', restart_mode='from_scratch'\n nstep=60\n/\n",
        "&CONTROL\n calculation = 'md' ! don't / stop\n nstep = 60 /\n",
        "&control title=\"a/b\", nstep=60, pseudo_dir='./p/'/\n",
    ],
)
def test_the_last_values_of_the_namelist_are_ours(folder: Path, control: str) -> None:
    found = resumed(folder, f"{control}&system\n nat=2 /\n")

    own = " max_seconds=9\n restart_mode='restart'\n nstep=7\n/\n&system\n nat=2 /\n"
    assert re.sub(r"\n+", "\n", found).endswith(own)
    assert found.startswith(control.rstrip("/\n"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'md'", "'bands'", "type calculation='scf'"),
        ("'md'", "'vc-relax'", "type calculation='scf'"),
        ("outdir='./out', ", "", "type a folder of its own"),
        ("outdir='./out'", "outdir='./'", "type a folder of its own"),
        ("outdir='./out'", "outdir='/scratch/h2'", "type a folder of its own"),
        ("nstep=60, ", "", "type nstep=N"),
        ("nstep=60", "disk_io='nowf', nstep=60", "nothing to restart from is written"),
        ("conv_thr", "scf_must_converge=.false., conv_thr", "is taken for an error"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    change(folder, old, new)

    with pytest.raises(ConfigError) as error:
        run_of(folder)

    assert said in "\n".join(error.value.mistakes)


def test_an_input_on_standard_input_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_checked_runs(yaml.safe_load(RUN.replace("espresso", "espresso, start: [pw.x, -nk, 2]")), folder)

    assert "type `-i FILE` in place of `< FILE`" in error.value.mistakes[0]
