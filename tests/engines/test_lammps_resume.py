"""The two scripts that `unbroken init` makes for LAMMPS: in two pieces they write what one run writes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from unbroken.engines.command.lammps.resumable import LammpsInput, read_input
from unbroken.engines.files.settings import record_of

pytestmark = [pytest.mark.process, pytest.mark.needs("lammps")]

MELT = """\
units           lj
atom_style      atomic
atom_modify     sort 0 0.0
lattice         fcc 0.8442
region          box block 0 4 0 4 0 4
create_box      1 box
create_atoms    1 box
mass            1 1.0
velocity        all create 3.0 87287 loop geom
pair_style      lj/cut 2.5
pair_coeff      1 1 1.0 1.0 2.5
neighbor        0.3 bin
neigh_modify    every 20 delay 0 check no
"""
WRITERS = """\
region          left block 0 2 INF INF INF INF
group           left region left
fix             1 all nve
compute         p all pressure thermo_temp
compute         pe all pe/atom
compute         m left msd
dump            atoms all atom 100 melt.lammpstrj
dump            energies left custom 50 energies.txt id c_pe
dump            framed all custom 100 framed.txt id x
dump_modify     framed units yes first yes
dump            points all xyz 100 points.xyz
dump            each all atom 100 each.*.txt
fix             pa all ave/time 10 10 200 c_p c_m[4] file press.dat
fix             now all ave/time 50 1 50 c_p file now.dat
fix             rows all print 50 "$(step) $(pe:%.15g)" file rows.dat screen no title "# step energy"
fix             told all print 50 "$(step) at T = $(temp:%.15g), said once" &
                file told.dat screen no
thermo          100
thermo_style    custom step temp pe c_m[4] press
run             2000
unfix           pa
write_data      end.data nocoeff
"""


def scripts(folder: Path, text: str, name: str = "in.melt") -> None:
    """Write the two scripts that the preset makes of one."""
    (folder / name).write_text(text)
    made = read_input(folder / name)
    (folder / f"resume_{name}").write_text(made.resuming)
    (folder / name).write_text(made.starting)


def lmp(folder: Path, script: str, total: int, *words: str) -> None:
    line = ["lmp", "-in", script, "-var", "total", str(total), "-var", "limit", "1:00:00", "-screen", "none"]
    done = subprocess.run([*line, *words], cwd=folder, capture_output=True, text=True, check=False)
    log = folder / "log.lammps"
    assert done.returncode == 0, done.stdout + (log.read_text()[-600:] if log.exists() else "")


def whole_and_pieces(tmp_path: Path, text: str, stop: int, goal: int) -> tuple[Path, Path, Path]:
    """Return the folders of one run, of its first piece, and of both pieces in one folder."""
    whole, first, both = (tmp_path / name for name in ("whole", "first", "both"))
    for folder in (whole, first):
        folder.mkdir()
        scripts(folder, text)
    lmp(whole, "in.melt", goal)
    lmp(first, "in.melt", stop)
    shutil.copytree(first, both)
    lmp(both, "resume_in.melt", goal, "-log", "none", "-var", "restart", f"melt.{stop}.rst")
    return whole, first, both


def records(path: Path, kind: str) -> list[tuple[int, bytes]]:
    """Return the records of an output with their steps."""
    data = path.read_bytes()
    pattern = record_of(kind)
    assert pattern is not None
    found = list(pattern.finditer(data))
    ends = [*(match.start() for match in found[1:]), len(data)]
    return [(int(match[1]), data[match.start() : end]) for match, end in zip(found, ends, strict=True)]


@pytest.fixture(scope="module")
def melt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return whole_and_pieces(tmp_path_factory.mktemp("melt"), MELT + WRITERS, 1000, 2000)


STEPS_OF = {
    "melt.lammpstrj": 100,
    "energies.txt": 50,
    "framed.txt": 100,
    "points.xyz": 100,
    "press.dat": 200,
    "now.dat": 50,
    "rows.dat": 50,
    "told.dat": 50,
    "log.lammps": 100,
}


def test_every_file_that_grows_is_an_output(melt: tuple[Path, Path, Path]) -> None:
    outputs = read_input_before_the_change(melt[0]).outputs()

    assert outputs.keys() == STEPS_OF.keys()


def read_input_before_the_change(folder: Path) -> LammpsInput:
    (folder / "in.before").write_text(MELT + WRITERS)
    return read_input(folder / "in.before")


@pytest.mark.parametrize("name", STEPS_OF)
def test_the_records_of_two_pieces_are_those_of_one_run(melt: tuple[Path, Path, Path], name: str) -> None:
    whole, first, both = melt
    kind = read_input_before_the_change(whole).outputs()[name]

    expected, before = records(whole / name, kind), records(first / name, kind)
    after = [each for each in records(both / name, kind) if each[0] > 1000]
    begin = 0 if expected[0][0] == 0 else STEPS_OF[name]
    assert [step for step, _ in expected] == list(range(begin, 2001, STEPS_OF[name]))
    if name == "log.lammps":  # the last row of a piece has its times behind it
        expected, before, after = (
            [(step, text.partition(b"\n")[0]) for step, text in each] for each in (expected, before, after)
        )
    assert [*before, *after] == expected


@pytest.mark.parametrize("name", ["melt.lammpstrj", "points.xyz", "framed.txt"])
def test_a_dump_continues_its_file_byte_by_byte(melt: tuple[Path, Path, Path], name: str) -> None:
    whole, _, both = melt

    assert (both / name).read_bytes() == (whole / name).read_bytes()


def test_files_for_each_step_and_the_last_ones_are_those_of_one_run(melt: tuple[Path, Path, Path]) -> None:
    whole, _, both = melt

    frames = [f"each.{step}.txt" for step in range(0, 2001, 100)]
    for name in ("end.data", "melt.2000.rst", *frames):
        assert (both / name).read_bytes() == (whole / name).read_bytes(), name
