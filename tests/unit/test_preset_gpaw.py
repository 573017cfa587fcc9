"""Which scripts of GPAW are recognized, and which are refused."""

from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

SCRIPT = (Path(__file__).parents[1] / "presets/cases/gpaw/scf.py").read_text()
SAVES = 'calc.attach(calc.write, 3, "scf.gpw", "all")'


def run_of(folder: Path, script: str) -> RunSpec:
    (folder / "scf.py").write_text(script)
    text = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: gpaw}}}"
    run, *_ = read_checked_runs(yaml.safe_load(text), folder)
    return run


def test_a_script_is_found_and_what_it_resumes_from_is_read_from_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, SCRIPT)

    assert (run.settings["start"], run.settings["files"]) == (("gpaw", "python", "scf.py"), ("scf.gpw",))
    assert choose(tmp_path, []).starter.settings[0].startswith("preset: gpaw ")


def test_a_relaxation_with_gpaw_is_one_of_ase(tmp_path: Path) -> None:
    (tmp_path / "relax.py").write_text("from ase.optimize import BFGS\nfrom gpaw import GPAW\n")

    assert choose(tmp_path, []).starter.settings[0].startswith("preset: ase ")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (SAVES, 'calc.write("scf.gpw")', "it saves nothing from which it could resume"),
        ('GPAW("scf.gpw", txt="scf.txt")', "GPAW(mode=PW(250))", "it reads no saved state"),
        (SAVES, f"{SAVES}\nTDDFT(calc)", "it is not known to resume from a .gpw file"),
    ],
)
def test_what_would_not_resume_right_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in SCRIPT

    with pytest.raises(ConfigError) as error:
        run_of(tmp_path, SCRIPT.replace(old, new))

    assert why in " ".join(error.value.mistakes)
