"""The preset of ABINIT: what it finds in an input, and what it refuses."""

import shutil
from pathlib import Path

import pytest

from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import Edit
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError

CASE = Path(__file__).parents[1] / "presets" / "cases" / "abinit"


def settings_of(folder, *changes):
    """Return the settings of a run whose input is that of the case with some lines changed."""
    shutil.copy(CASE / "h.pspgth", folder)
    text = (CASE / "h2.abi").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "h2.abi").write_text(text)
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": {"preset": "abinit"}}
    return read_checked_runs({"runs": {"demo": run}}, folder)[0].settings


def test_molecular_dynamics_takes_names_and_goal_from_its_input(tmp_path):
    settings = settings_of(tmp_path)

    assert settings["files"] == ("h2o_HIST.nc",)
    assert settings["goal"] == 40
    assert sorted(settings["inputs"]) == ["h.pspgth", "h2.abi"]


def test_several_pseudopotentials_are_found(tmp_path):
    (tmp_path / "o.psp8").write_text("")

    settings = settings_of(tmp_path, ('pseudos "h.pspgth"', 'pseudos "o.psp8, h.pspgth"'))

    assert sorted(settings["inputs"]) == ["h.pspgth", "h2.abi", "o.psp8"]


def test_a_relaxation_has_no_goal_because_it_ends_when_it_has_converged(tmp_path):
    assert settings_of(tmp_path, ("ionmov 12", "ionmov 2"))["goal"] is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ionmov 12", "ionmov 15", "15 resumes wrong"),
        ("ionmov 12", "ionmov 9", "not tested"),
        ("ionmov 12", "ionmov 12\nchkexit 1", "chkexit 0"),
        ("ionmov 12", "ionmov 2\noptcell 2", "changing cell"),
        ("natom 4", "natom 4\nndtset 3", "one data set"),
        ("natom 4", 'natom 4\noutdata_prefix "x"', "names of the files"),
        ("ntime 40", "", "no ntime"),
    ],
)
def test_what_cannot_resume_right_is_refused(tmp_path, old, new, why):
    with pytest.raises(ConfigError, match=why):
        settings_of(tmp_path, (old, new))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ([], "restartxf -1\n"),
        ([("ntime 40", "ntime 40  # restartxf 0")], "restartxf -1\n"),
        ([("ntime 40", "ntime 40 restartxf 0")], "ntime 12 restartxf -1\n"),
    ],
)
def test_a_line_in_a_comment_is_not_taken_for_the_setting(tmp_path, changes, wanted):
    settings = settings_of(tmp_path, *changes)
    text = (tmp_path / "h2.abi").read_text()
    for each in settings["edits"]:
        put = filled(each["put"], {"remaining": "12", "progress": "28"})
        text = edited(text, Edit(each["file"], each["find"], each["put"], after=each.get("after", "")), put)

    assert wanted in [f"{line}\n" for line in text.splitlines()]
    assert 'output_file "h2-28.abo"\n' in text
    assert "ntime 12" in text
    assert "\\" not in text
