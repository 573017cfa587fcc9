"""The presets of NWChem: what they find in an input, and what they refuse."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from unbroken.cli.init_command import init
from unbroken.engines.command.edits import edited
from unbroken.engines.command.folder import last_name
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import Edit, Program
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError

VALUES = {"progress": "3", "last": "ethanol-0-012.xyz"}
CASES = Path(__file__).parents[1] / "presets" / "cases"


def settings_of(folder, preset, case, *changes):
    """Return the settings of a run whose input is that of a case with some lines changed."""
    for path in (CASES / case).glob("*"):
        shutil.copy(path, folder)
    (path,) = folder.glob("*.nw")
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": {"preset": preset}}
    return read_checked_runs({"runs": {"demo": run}}, folder)[0].settings


def test_a_trajectory_takes_names_and_goal_from_its_input(tmp_path):
    settings = settings_of(tmp_path, "nwchem-qmd", "nwchem-qmd", ("start md", "start Water.2"))

    assert settings["files"] == ("Water.2.qmdrst",)
    assert settings["goal"] == 70
    assert settings["start"] == ("nwchem", "md.nw")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("start md", "title nothing", "without `start NAME`"),
        ("start md", "restart md", "a kill tears it"),
        ("start md", "start md\npermanent_dir /data", "would lie elsewhere"),
        ("task scf qmd", "task scf optimize\ntask scf qmd", "one task in a run"),
        ("thermostat none", "thermostat SVR 200.0", "the same random numbers"),
        ("thermostat none", "thermostat langevin 0.1", "the same random numbers"),
        ("  thermostat none", "  namd", "surface hopping"),
    ],
)
def test_a_trajectory_that_cannot_resume_right_is_refused(tmp_path, old, new, why):
    with pytest.raises(ConfigError, match=why):
        settings_of(tmp_path, "nwchem-qmd", "nwchem-qmd", (old, new))


@pytest.mark.parametrize(
    "changes",
    [
        [("thermostat none", "thermostat berendsen 100.0")],
        [("thermostat none", "thermostat svr 9"), ("rand_seed 7", "")],
    ],
)
def test_a_thermostat_that_can_resume_is_none(tmp_path, changes):
    assert settings_of(tmp_path, "nwchem-qmd", "nwchem-qmd", *changes)["goal"] == 70


@pytest.mark.process
def test_init_finds_the_input(tmp_path, capsys):
    shutil.copy(CASES / "nwchem-qmd" / "md.nw", tmp_path)

    init([], tmp_path)

    (run,) = yaml.safe_load((tmp_path / "config/config.yaml").read_text())["runs"].values()
    assert run["settings"] == {"preset": "nwchem-qmd", "input": "md.nw"}


# --- optimizations ---


def test_an_optimization_resumes_from_the_last_geometry(tmp_path):
    settings = settings_of(tmp_path, "nwchem-optimize", "nwchem-optimize")
    text = (tmp_path / "ethanol.nw").read_text()
    for edit in settings["edits"]:
        if edit["when"] == "resume":
            text = edited(text, Edit(edit["file"], edit["find"], edit["put"]), filled(edit["put"], VALUES))

    assert settings["files"] == ("ethanol-*-*.xyz",)
    assert text.count("C   ") == 0
    assert "geometry units angstroms noautosym\n  load format xyz ethanol-0-012.xyz\nend\nbasis" in text
    assert text.endswith("driver\n  xyz ethanol-3\nend\ntask scf optimize\n")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("start ethanol", "restart ethanol", "a kill tears it"),
        ("units angstroms", "units au", "in angstroms"),
        ("geometry units angstroms noautosym\n", "geometry\n  symmetry c2v\n", "only its atoms"),
        ("geometry units angstroms noautosym\n", "geometry\n  system crystal\n", "only its atoms"),
        ("task scf optimize", "task scf optimize\ntask scf freq", "one task in a run"),
        ("basis\n", "geometry second\n  H 0 0 0\nend\nbasis\n", "only one geometry"),
    ],
)
def test_an_optimization_that_cannot_resume_right_is_refused(tmp_path, old, new, why):
    with pytest.raises(ConfigError, match=why):
        settings_of(tmp_path, "nwchem-optimize", "nwchem-optimize", (old, new))


def test_the_last_restart_file_is_the_one_with_the_highest_numbers():
    names = ["water-2-009.xyz", "water-10-001.xyz", "water-2-010.xyz", "parts/x", "unbroken-output/list"]
    checkpoint = SimpleNamespace(passport=SimpleNamespace(files=names))

    assert last_name(checkpoint, Program(start=("nwchem",))) == "water-10-001.xyz"
    assert last_name(checkpoint, Program(start=("x",), put_back_as={"water-10-001.xyz": "in.xyz"})) == "in.xyz"
    assert last_name(None, Program(start=("nwchem",))) == ""
