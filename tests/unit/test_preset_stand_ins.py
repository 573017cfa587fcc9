"""The presets of programs that are tested by stand-ins: what they find in an input, and what they refuse."""

import shutil
from pathlib import Path

import pytest

from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import Edit
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError

CASES = Path(__file__).parents[1] / "presets" / "cases"
INPUTS = {
    "amber": "md.in",
    "gaussian": "chain.gjf",
    "namd": "chain.conf",
    "orca": "chain.inp",
    "vasp-md": "INCAR",
    "vasp-relax": "INCAR",
}


def settings_of(folder, preset, *changes, **settings):
    """Return the settings of a run whose input is that of a case with some lines changed."""
    shutil.copytree(CASES / preset, folder, dirs_exist_ok=True)
    path = folder / INPUTS[preset]
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    asked = {"preset": preset, "input": INPUTS[preset], **settings}
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": asked}
    return read_checked_runs({"runs": {"demo": run}}, folder)[0].settings


def resumed(settings, folder, **values):
    """Return the input as a resumed program sees it."""
    text = (folder / settings["input"]).read_text()
    for edit in settings["edits"]:
        after, is_optional = edit.get("after", ""), edit.get("optional", False)
        each = Edit(edit["file"], edit["find"], edit["put"], after=after, is_optional=is_optional)
        text = edited(text, each, filled(edit["put"], values))
    return text


@pytest.mark.parametrize(
    ("preset", "old", "new", "why"),
    [
        ("amber", "ntxo=1", "ntxo=2", "type ntxo=1"),
        ("amber", "imin=0", "imin=1", "a minimization begins again"),
        ("amber", "irest=0", "irest=1", "type irest=0"),
        ("amber", "ntwr=10", "ntwr=-10", "a positive ntwr"),
        ("amber", "ntpr=10", "nmropt=1, ntpr=10", "what changes with the steps"),
        ("amber", "ntpr=10", "ntt=3, ig=71277, ntpr=10", "type ig=-1"),
        ("gaussian", "%chk=chain.chk", "%nproc=1", "no checkpoint file"),
        ("gaussian", "%mem=1GB", "%oldchk=first.chk", "read it again"),
        ("gaussian", " NoSymm", " Freq", "only an optimization"),
        ("gaussian", " NoSymm", " NoSymm\nSCF=XQC", "several lines"),
        ("namd", "restartsave        yes", "restartsave        no", "restartsave yes"),
        ("namd", "restartfreq        10", "", "no restart files"),
        ("namd", "run                160", "numsteps 160", "run STEPS"),
        ("namd", "outputname         chain", "outputname $name", "a Tcl variable"),
        ("namd", "run                160", "minimize 100\nrun 160", "minimize"),
        ("namd", "timestep           1.0", "langevin on", "the same random numbers"),
        ("namd", "timestep           1.0", "colvars on", "not in the restart files"),
        ("orca", "! HF STO-3G Opt", "! HF STO-3G Opt NumFreq", "a run of their own"),
        ("orca", "* xyz 0 1", "* gzmt 0 1", "only cartesian"),
        ("vasp-md", "TEBEG = 300", "TEEND = 300", "ramp"),
        ("vasp-md", "TEBEG = 300", "RANDOM_SEED = 1 0 0", "the same random numbers"),
        ("vasp-md", "TEBEG = 300", "ML_LMLFF = .TRUE.", "more files"),
        ("vasp-relax", "NSW = 500", "IMAGES = 4", "more files"),
    ],
)
def test_what_cannot_resume_right_is_refused(tmp_path, preset, old, new, why):
    with pytest.raises(ConfigError, match=why):
        settings_of(tmp_path, preset, (old, new))


def test_amber_takes_the_names_of_its_files_from_the_command_line(tmp_path):
    words = ["mpirun", "-np", "4", "pmemd.MPI", "-O", "-i", "md.in", "-p", "prmtop", "-c", "inpcrd", "-r", "run1.rst"]

    settings = settings_of(tmp_path, "amber", start=words)

    assert settings["files"] == ("run1.rst",)
    assert settings["put_back_as"] == {"run1.rst": "inpcrd"}
    assert settings["goal"] == pytest.approx(0.32)
    text = resumed(settings, tmp_path, remaining="0.12")
    assert "irest=1, ntx=5," in text
    assert "nstlim=60, dt=0.002" in text


@pytest.mark.parametrize(
    ("route", "wanted"),
    [
        ("# HF/STO-3G Opt=(Tight,MaxCycles=400) NoSymm", "# Opt=(Tight,MaxCycles=400,Restart)\n\n"),
        ("#p HF/STO-3G opt=tight scf=xqc", "# Opt=(tight,Restart)\n\n"),
        ("# opt HF/STO-3G", "# Opt=Restart\n\n"),
    ],
)
def test_gaussian_resumes_with_the_options_of_opt_alone(tmp_path, route, wanted):
    settings = settings_of(tmp_path, "gaussian", ("# HF/STO-3G Opt=(MaxCycles=400) NoSymm", route))

    assert resumed(settings, tmp_path) == f"%chk=chain.chk\n%mem=1GB\n{wanted}"


def test_namd_reads_all_three_files_of_one_step(tmp_path):
    settings = settings_of(tmp_path, "namd")

    text = resumed(settings, tmp_path, progress="120", remaining="40")

    for line in (
        "bincoordinates chain.restart.120.coor",
        "binvelocities chain.restart.120.vel",
        "extendedSystem chain.restart.120.xsc",
        "firsttimestep 120",
        "run 40",
    ):
        assert f"\n{line}\n" in text
    assert "temperature" not in text
    assert "\ncellBasisVector" not in text


@pytest.mark.parametrize("kind", ["inline", "in a file"])
def test_orca_reads_the_last_geometry(tmp_path, kind):
    changes = []
    if kind == "in a file":
        text = (CASES / "orca" / "chain.inp").read_text()
        changes = [(text[text.index("* xyz") :], "* xyzfile 0 1 start.xyz\n")]
        (tmp_path / "start.xyz").write_text("")
    settings = settings_of(tmp_path, "orca", *changes)

    assert resumed(settings, tmp_path).endswith("end\n* xyzfile 0 1 chain.resume.xyz\n")


def test_vasp_counts_the_steps_of_all_segments(tmp_path):
    settings = settings_of(tmp_path, "vasp-md")

    assert (settings["goal"], settings["progress_adds"]) == (120, True)
    assert "\nNSW = 40\n" in resumed(settings, tmp_path, remaining="40")
    assert sorted(settings["inputs"]) == ["INCAR", "KPOINTS", "POSCAR", "POTCAR"]


def test_amber_gets_settings_that_its_input_lacks(tmp_path):
    settings = settings_of(tmp_path, "amber", ("imin=0, irest=0, ntx=1,", "imin=0, ! irest=0, ntx=1"))

    text = resumed(settings, tmp_path, remaining="0.12")

    assert " &cntrl\nntx=5\nirest=1\n  imin=0, ! irest=0, ntx=1\n" in text


def test_tags_of_vasp_may_share_a_line(tmp_path):
    settings = settings_of(tmp_path, "vasp-md", ("IBRION = 0\nNSW = 120", "IBRION = 0; NSW = 120"))

    assert "IBRION = 0;NSW = 40\n" in resumed(settings, tmp_path, remaining="40")
