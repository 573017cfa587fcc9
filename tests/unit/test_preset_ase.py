"""Which scripts of ASE are recognized, what is read of them, and which are refused."""

from pathlib import Path

import pytest
import yaml

from unbroken.cli.init_command import choose
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

CASES = Path(__file__).parents[1] / "presets/cases"
OPTIMIZES = (CASES / "ase/opt.py").read_text()
MOVES = (CASES / "ase-md/md.py").read_text()
NAMED = 'trajectory="opt.traj", append_trajectory=True'
DYNAMICS = "VelocityVerlet(atoms, 2 * units.fs)"


def run_of(folder: Path, script: str) -> RunSpec:
    (folder / "script.py").write_text(script)
    (folder / "opt.traj").write_bytes(b"- of UlmASE-Trajectory  ")
    text = "runs: {a: {engine: command, segments: 2, segment_minutes: 1, settings: {preset: ase}}}"
    run, *_ = read_checked_runs(yaml.safe_load(text), folder)
    return run


@pytest.mark.parametrize(("script", "files"), [(OPTIMIZES, ("opt.traj", "opt.json")), (MOVES, ("md.traj",))])
def test_a_script_is_found_and_what_it_resumes_from_is_read_from_it(tmp_path: Path, script: str, files: tuple) -> None:
    run = run_of(tmp_path, script)

    assert run.settings["files"] == files
    assert run.settings["inputs"] == ("script.py",)  # not the trajectory, which it writes
    assert choose(tmp_path, []).starter.settings[0].startswith("preset: ase ")


@pytest.mark.parametrize(
    ("script", "old", "new", "why"),
    [
        (OPTIMIZES, NAMED, "", "it writes no trajectory from which it could resume"),
        (OPTIMIZES, "read(", "restored(", "it reads no trajectory"),
        (OPTIMIZES, "append_trajectory=True, ", "", "each segment would remove the trajectory of the one before"),
        (OPTIMIZES, NAMED, 'trajectory=Trajectory("opt.traj", "a", atoms)', "it stays open while the program runs"),
        (OPTIMIZES, 'restart="opt.json", ', "", "what it has learned of the surface"),
        (OPTIMIZES, "BFGS(atoms", "LBFGS(atoms", "LBFGS may divide by zero"),
        (OPTIMIZES, "BFGS(atoms", "GPMin(atoms", "it is not known to resume"),
        (MOVES, DYNAMICS, "NPT(atoms)", "its thermostat or barostat is not in a trajectory"),
        (MOVES, "dynamics.nsteps = done", "", "count steps from zero, and write the last frame twice"),
        (MOVES, DYNAMICS, "Langevin(atoms, rng=np.random.RandomState(2))", "draw the same random numbers"),
        (MOVES, DYNAMICS, 'VelocityVerlet(atoms, 2 * units.fs, logfile="md.log")', "its line would be missing"),
    ],
)
def test_what_would_not_resume_right_is_refused(tmp_path: Path, script: str, old: str, new: str, why: str) -> None:
    assert old in script

    with pytest.raises(ConfigError) as error:
        run_of(tmp_path, script.replace(old, new))

    assert why in " ".join(error.value.mistakes)


def test_random_forces_with_another_seed_in_each_segment_are_allowed(tmp_path: Path) -> None:
    script = MOVES.replace(DYNAMICS, "Langevin(atoms, 2 * units.fs, rng=np.random.RandomState(done))")

    assert run_of(tmp_path, script).settings["files"] == ("md.traj",)
