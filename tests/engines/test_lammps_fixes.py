"""What docs/engines/command.md says of LAMMPS' thermostats, barostats and ramps: two pieces against one run."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("lammps")

UNITS = "units lj\natom_style atomic\natom_modify sort 0 0.0\n"
CRYSTAL = """\
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
"""
FORCES = "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\nneigh_modify every 20 delay 0 check no\n"
PLAIN, RAMP = "run 400 upto", "run 400 upto start 0 stop 400"


def rows(folder: Path, name: str, begin: str, fix: str, run: str) -> list[str]:
    """The table that LAMMPS prints, a row each 20 steps, each number in full."""
    table = f'fix table all print 20 "$(step) $(temp:%.17g) $(pe:%.17g) $(press:%.17g)" screen no file {name}.dat\n'
    (folder / f"{name}.in").write_text(f"{UNITS}{begin}{FORCES}{fix}\n{table}{run}\nwrite_restart {name}.rst\n")
    subprocess.run(["lmp", "-in", f"{name}.in", "-log", "none", "-screen", "none"], cwd=folder, check=True)
    return [row for row in (folder / f"{name}.dat").read_text().splitlines() if row[0] != "#"]


def apart(folder: Path, fix: str, run: str = RAMP, fix_after: str = "") -> float:
    """By how much a run that goes on at step 200 from its restart file is off that of one piece."""
    whole = rows(folder, "whole", CRYSTAL, fix, RAMP)
    first = rows(folder, "first", CRYSTAL, fix, "run 200 upto start 0 stop 400")  # as `timer timeout` cuts it
    second = rows(folder, "second", "read_restart first.rst\n", fix_after or fix, run)
    assert whole[: len(first)] == first
    pieces = [*first, *second[1:]]  # the row at 200 stands in both
    numbers = [float(word) for row in pieces for word in row.split()]
    return max(abs(a - float(b)) for a, b in zip(numbers, " ".join(whole).split(), strict=True))


@pytest.mark.parametrize(
    "fix", ["fix 1 all nvt temp 3.0 0.5 0.1", "fix 1 all npt temp 2.0 2.0 0.1 iso 1.0 4.0 1.0"], ids=["nvt", "npt"]
)
def test_a_ramp_goes_on_if_its_run_says_where_it_starts_and_stops(tmp_path: Path, fix: str) -> None:
    assert apart(tmp_path, fix, RAMP) < 1e-9  # but for the last digit
    assert apart(tmp_path, fix, PLAIN) > 0.1  # begins the ramp once more, in half the time


def test_a_barostat_takes_its_inertia_from_the_temperature_at_which_a_piece_starts(tmp_path: Path) -> None:
    assert apart(tmp_path, "fix 1 all npt temp 3.0 0.5 0.1 iso 1.0 1.0 1.0") > 1e-3


def test_a_thermostat_at_one_temperature_goes_on_by_itself(tmp_path: Path) -> None:
    assert apart(tmp_path, "fix 1 all nvt temp 2.0 2.0 0.1", PLAIN) == 0


def test_a_thermostat_whose_fix_has_another_name_begins_anew(tmp_path: Path) -> None:
    assert apart(tmp_path, "fix 1 all nvt temp 2.0 2.0 0.1", PLAIN, "fix 2 all nvt temp 2.0 2.0 0.1") > 0.01


def test_random_forces_are_others_after_a_restart(tmp_path: Path) -> None:
    assert apart(tmp_path, "fix 1 all nve\nfix 2 all langevin 2.0 2.0 0.1 4711", PLAIN) > 0.01
