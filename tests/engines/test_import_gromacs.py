"""A simulation that already ran under a plain mdrun goes on as a run, and one of unbroken's under a plain mdrun."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import gmx_systems
from support.gmx_jobs import gmx_job, gmx_run, gmx_segment

from unbroken.cli.init_command import choose, init
from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.import_export import part_names
from unbroken.engines.gromacs.tool import write_energy_table
from unbroken.engines.imports import ImportSource
from unbroken.errors import CheckpointError, ConfigError
from unbroken.job.import_export import export_run, import_run
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.needs("gromacs"), pytest.mark.xdist_group("gromacs")]
STEPS = 5000
PATHS = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
FINAL = ("md.xtc", "md.trr", "md.gro", "energy.tsv")


def tpr() -> Path:
    return gmx_systems.water_tpr("import", nsteps=STEPS)


@functools.cache
def ending_at(step: int) -> Path:
    """The same simulation, which ends earlier: an end that comes by itself is met on any machine."""
    path = tpr().with_name(f"import-{step}.tpr")
    gmx_systems.run(path.parent, "convert-tpr", "-s", tpr().name, "-nsteps", step, "-o", path.name)
    return path


def mdrun(folder: Path, step: int, *words: object) -> None:
    """A plain mdrun up to a step; the outputs are called as `-deffnm` of the words says."""
    gmx_systems.run(folder, "mdrun", "-s", ending_at(step), "-ntmpi", 1, "-ntomp", 1, "-reprod", *words)


def files_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FINAL}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One uninterrupted mdrun, with its energies as a table."""
    folder = gmx_systems.plain_mdrun(tpr(), tmp_path_factory.mktemp("whole") / "mdrun")
    write_energy_table(gmx_run(folder, tpr=str(tpr())), folder / "md.edr", folder / "energy.tsv")
    return files_in(folder)


def taken(base: Path, source: Path, done: float | None = None, **keys: object) -> Checkpoint:
    keys = {"tpr": str(tpr()), "exact": True, **keys}
    return import_run(gmx_job(base, **keys), GromacsEngine(base), ImportSource(source, done))


def finished(base: Path, **keys: object) -> dict[str, bytes]:
    keys = {"tpr": str(tpr()), "exact": True, **keys}
    assert gmx_segment(base, **keys).kind is EndKind.FINISHED
    return files_in(gmx_job(base, **keys).places.final)


def appended(folder: Path, *names: object) -> Path:
    """Two starts of an mdrun that appends, to step 3000; the names as they come without -deffnm, or with one."""
    folder.mkdir()
    mdrun(folder, 1000, *names)
    cpt = next(path for path in folder.glob("*.cpt") if "_prev" not in path.name)
    mdrun(folder, 3000, "-cpi", cpt.name, *names)
    for path in folder.glob("*.gro"):
        path.unlink()  # of an end that was none
    return folder


def test_init_sees_a_run_under_way_and_the_line_that_it_prints_continues_it(tmp_path: Path, capsys) -> None:
    source = appended(tmp_path / "mine", "-deffnm", "md")
    shutil.copyfile(tpr(), source / "md.tpr")

    init([], source)
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "has begun" in each]
    command = line.partition("type this first: ")[2]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=PATHS)

    assert line.startswith(f"{source / 'md.cpt'}: a simulation has begun, and is at step 3000; ")
    assert (done.returncode, done.stderr) == (0, "")
    assert "(3000 of 5000 steps)" in done.stdout


@pytest.mark.parametrize("name", ["nvt.cpt", "md_prev.cpt"])
def test_init_takes_no_other_checkpoint_for_a_run_under_way(tmp_path: Path, name: str) -> None:
    shutil.copyfile(tpr(), tmp_path / "md.tpr")
    (tmp_path / name).touch()

    assert choose(tmp_path, []).starter.todo == ()


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), ("-deffnm", "prod")])
def test_half_by_mdrun_and_half_imported_is_one_simulation(
    names: tuple[str, ...], tmp_path: Path, whole: dict[str, bytes]
) -> None:
    source = appended(tmp_path / "half", *names)
    shutil.copyfile(tpr(), source / "topol.tpr")

    passport = taken(tmp_path, source).passport

    assert (passport.progress.done, passport.progress.goal, passport.segment) == (3000, STEPS, 0)
    assert passport.imported is not None
    assert passport.imported.checked[1:] == (
        "its outputs are those that it was written with (size, md5 of the last megabyte)",
    )
    assert passport.imported.not_checked == (
        "whether mdrun ran with the same number of ranks and threads, and -reprod",
    )
    assert finished(tmp_path) == whole


@pytest.mark.slow
def test_an_mdrun_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """What it wrote after the checkpoint does not count.  With a GMXRC next to the config."""
    source = tmp_path / "half"
    source.mkdir()
    (tmp_path / "GMXRC").write_text("export ITS_RC=1\n")
    program = tmp_path / "my_gmx"
    program.write_text('#!/bin/sh\n[ "$ITS_RC" = 1 ] || exit 77\nexec gmx "$@"\n')
    program.chmod(0o755)
    keys = {"gmxrc": "GMXRC", "gmx": str(program)}
    mdrun(source, 2000, "-deffnm", "run")
    shutil.copyfile(source / "run.cpt", tmp_path / "early.cpt")
    mdrun(source, 3000, "-deffnm", "run", "-cpi", "run.cpt")
    for path in source.glob("*.cpt"):
        path.unlink()
    shutil.move(tmp_path / "early.cpt", source / "run.cpt")
    before = {path.name: path.read_bytes() for path in source.iterdir()}

    assert taken(tmp_path, source, **keys).passport.progress.done == 2000
    assert finished(tmp_path, **keys) == whole
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    source = appended(tmp_path / "half", "-deffnm", "prod")
    shutil.copyfile(source / "prod.cpt", source / "npt.cpt")
    other = gmx_systems.dipeptide()
    gmx_systems.run(
        other, "grompp", "-f", "md.mdp", "-c", "system/conf.gro", "-p", "system/topol.top", "-o", "other.tpr"
    )
    (tmp_path / "empty").mkdir()
    (source / "torn.cpt").write_bytes((source / "prod.cpt").read_bytes()[:-10])
    shutil.copytree(source, tmp_path / "corrupt")
    with (tmp_path / "corrupt" / "prod.xtc").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    (tmp_path / "parts").mkdir()
    for end in (1000, 2000):
        mdrun(tmp_path / "parts", end, "-deffnm", "run", "-noappend", *(["-cpi", "run.cpt"] if end > 1000 else []))

    with pytest.raises(
        ConfigError, match=r"several simulations, npt\.cpt, prod\.cpt, torn\.cpt; type for example --from"
    ):
        taken(tmp_path, source)
    with pytest.raises(CheckpointError, match=r"prod\.cpt has 663 atoms, .*other\.tpr has \d+"):
        taken(tmp_path, source / "prod.cpt", tpr=str(other / "other.tpr"), exact=False)
    with pytest.raises(CheckpointError, match=r"no \.cpt in it; name the folder in which mdrun ran"):
        taken(tmp_path, tmp_path / "empty")
    with pytest.raises(CheckpointError, match=r"torn\.cpt: torn, or not a checkpoint of GROMACS"):
        taken(tmp_path, source / "torn.cpt")
    with pytest.raises(CheckpointError, match=r"prod\.xtc: not the bytes that prod\.cpt was written with"):
        taken(tmp_path, tmp_path / "corrupt" / "prod.cpt")
    with pytest.raises(CheckpointError, match=r"part0002\.\w+: is a part of an mdrun with -noappend"):
        taken(tmp_path, tmp_path / "parts")
    with pytest.raises(CheckpointError, match=r"it is at 3000 steps, and the goal is 2500: nothing is left to do"):
        taken(tmp_path, source / "prod.cpt", goal=2500)
    with pytest.raises(ConfigError, match="--done: the files themselves say how far they are; leave it out"):
        taken(tmp_path, source / "prod.cpt", done=3000)


def test_the_list_of_an_appending_mdrun_s_outputs_is_read(tmp_path: Path) -> None:
    cpt = read_cpt(appended(tmp_path / "half") / "state.cpt")

    assert [output.name for output in cpt.outputs] == ["md.log", "traj_comp.xtc", "traj.trr", "ener.edr"]
    assert part_names(cpt) == {
        "md.log": "md.part0002.log",
        "traj_comp.xtc": "md.part0002.xtc",
        "traj.trr": "md.part0002.trr",
        "ener.edr": "md.part0002.edr",
    }


def test_half_by_unbroken_and_half_by_mdrun_is_one_simulation(tmp_path: Path, whole: dict[str, bytes]) -> None:
    source = appended(tmp_path / "half")
    keys = {"tpr": str(tpr()), "exact": True}
    taken(tmp_path, source, goal=4000)
    gmx_segment(tmp_path, **keys, goal=4000)
    target = tmp_path / "elsewhere"

    export_run(gmx_job(tmp_path, **keys), GromacsEngine(tmp_path), tmp_path / "out", "")
    (tmp_path / "out").rename(target)
    subprocess.run([target / "resume.sh"], check=True, capture_output=True)

    parts = sorted(path.name for path in target.glob("md.part*.xtc"))
    assert parts == ["md.part0002.xtc", "md.part0003.xtc", "md.part0004.xtc"]
    for kind in ("xtc", "trr"):
        joined = b"".join(path.read_bytes() for path in sorted(target.glob(f"md.part*.{kind}")))
        assert joined == whole[f"md.{kind}"]
    assert (target / "md.part0004.gro").read_bytes() == whole["md.gro"]
