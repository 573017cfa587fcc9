"""What docs/engines/command.md says of LAMMPS' thermostats, barostats and ramps: two pieces against one run."""

import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.needs("lammps")]

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


def rows(folder: Path, name: str, begin: str, fix: str, run: str, column: str = "") -> list[str]:
    """Return the table that LAMMPS prints, a row each 20 steps, each number in full."""
    row = f"$(step) $(temp:%.17g) $(pe:%.17g) $(press:%.17g) {column}"
    table = f'fix table all print 20 "{row}" screen no file {name}.dat\n'
    (folder / f"{name}.in").write_text(f"{UNITS}{begin}{FORCES}{fix}\n{table}{run}\nwrite_restart {name}.rst\n")
    subprocess.run(["lmp", "-in", f"{name}.in", "-log", "none", "-screen", "none"], cwd=folder, check=True)
    return [row for row in (folder / f"{name}.dat").read_text().splitlines() if row[0] != "#"]


def apart(folder: Path, fix: str, run: str = RAMP, fix_after: str = "", column: str = "") -> float:
    """Return by how much a run that resumes at step 200 from its restart file is off that of one piece."""
    whole = rows(folder, "whole", CRYSTAL, fix, RAMP, column)
    first = rows(folder, "first", CRYSTAL, fix, "run 200 upto start 0 stop 400", column)  # as `timer timeout` cuts it
    begin = f"{CRYSTAL.splitlines()[0]}\nread_restart first.rst\n"
    second = rows(folder, "second", begin, fix_after or fix, run, column)
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


NVE = "fix 1 all nve\n"


@pytest.mark.parametrize(
    "fix",
    [
        "fix 2 all temp/berendsen 3.0 0.5 0.1",
        "fix 2 all temp/rescale 10 3.0 0.5 0.1 1.0",
        "variable f equal ramp(0,1)\nfix 2 all addforce v_f 0 0",
        "variable f equal swiggle(0,1,0.5)\nfix 2 all addforce v_f 0 0",
        "variable f equal elaplong/400\nfix 2 all addforce v_f 0 0",
        "variable f equal ramp(1,2)\nfix 2 all adapt 20 pair lj/cut epsilon * * v_f",
        "fix 2 all spring/self 1.0",
        "fix 2 all momentum 10 linear 1 1 1",
        "fix 2 all heat 10 1.0",
    ],
)
def test_fixes_and_ramps_that_init_lets_through_resume_bit_by_bit(tmp_path: Path, fix: str) -> None:
    assert apart(tmp_path, NVE + fix) == 0


@pytest.mark.parametrize("fix", ["fix 2 all deform 1 x final 0 8 remap x", "fix 2 all press/berendsen iso 1 4 1"])
def test_a_box_that_is_deformed_resumes_right_on_another_trajectory(tmp_path: Path, fix: str) -> None:
    assert 0 < apart(tmp_path, NVE + fix) < 0.01


@pytest.mark.parametrize("name", ["elapsed", "time"])
def test_what_counts_from_the_restart_gives_another_result(tmp_path: Path, name: str) -> None:
    assert apart(tmp_path, f"{NVE}variable f equal {name}/400\nfix 2 all addforce v_f 0 0\n", column=f"$({name})") > 0.1


def test_a_group_of_a_region_takes_other_atoms_if_it_is_said_again(tmp_path: Path) -> None:
    region = "region left block 0 2 0 4 0 4\n"
    fixes = "fix 1 all nve\nfix 2 left temp/rescale 10 3 3 0.1 1.0"
    again = apart(tmp_path, f"{region}group left region left\n{fixes}", column="$(count(left))")
    once = apart(tmp_path, f"{region}group left region left\n{fixes}", RAMP, f"{region}{fixes}", "$(count(left))")

    assert again >= 1
    assert once == 0


def test_a_mean_square_displacement_resumes_and_its_mean_does_not(tmp_path: Path) -> None:
    msd = "fix 1 all nve\ncompute m all msd{}\nvariable m equal c_m[4]"

    assert apart(tmp_path, msd.format(""), column="$(v_m:%.17g)") == 0
    assert apart(tmp_path, msd.format(" average yes"), column="$(v_m:%.17g)") > 0.1


def test_lammps_refuses_a_goal_beyond_the_end_of_a_ramp(tmp_path: Path) -> None:
    (tmp_path / "ramp.in").write_text(f"{UNITS}{CRYSTAL}{FORCES}{NVE}run 200 upto start 0 stop 100\n")
    done = subprocess.run(["lmp", "-in", "ramp.in", "-log", "none"], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 1
    assert "stop value is before end of run" in done.stdout


def test_chunks_that_are_bound_once_are_bound_again_by_a_restart(tmp_path: Path) -> None:
    chunks = f"{NVE}compute c all chunk/atom bin/1d x lower 2.0 units box {{}}\ncompute n all property/chunk c count\n"
    count = "variable m equal c_n[1]"

    assert apart(tmp_path, chunks.format("") + count, column="$(v_m)") == 0
    assert apart(tmp_path, chunks.format("ids once") + count, column="$(v_m)") >= 1


@pytest.mark.parametrize("fix", ["fix 1 all npt temp 2 2 0.1 x 1 1 1 y 1 1 1", "fix 1 all nph iso 1 4 1"])
def test_a_barostat_resumes_to_the_last_digits(tmp_path: Path, fix: str) -> None:
    assert apart(tmp_path, fix) < 1e-9
