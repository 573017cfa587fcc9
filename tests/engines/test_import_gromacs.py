"""A simulation that already ran under a plain mdrun goes on as a run, and one of unbroken's under a plain mdrun."""

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import gmx_systems
from support.gmx_jobs import gmx_job, gmx_run, gmx_segment
from support.toyrun import until

from unbroken.cli.init_command import choose, init
from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.gromacs.energy import write_energy_table
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.imports import outputs_of
from unbroken.engines.imports import ImportSource
from unbroken.errors import CheckpointError, ConfigError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.segment.export_run import export_run
from unbroken.segment.import_run import import_run

pytestmark = [pytest.mark.needs("gromacs"), pytest.mark.xdist_group("gromacs")]
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
    return import_run(gmx_job(base, **keys), GromacsEngine(base), ImportSource(source, done), print)


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
        "the outputs of its part 2 are those that it was written with (size, md5 of the last megabyte)",
        "the results begin at step 0 and have no hole, by what the logs of mdrun say",
    )
    assert passport.imported.not_checked == (
        "whether mdrun ran with the same number of ranks and threads, and -reprod",
    )
    assert finished(tmp_path) == whole


def test_parts_of_an_mdrun_that_does_not_append_begin_at_step_0(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """With a GMXRC beside the config."""
    source = tmp_path / "half"
    source.mkdir()
    (tmp_path / "GMXRC").write_text("export ITS_RC=1\n")
    program = tmp_path / "my_gmx"
    program.write_text('#!/bin/sh\n[ "$ITS_RC" = 1 ] || exit 77\nexec gmx "$@"\n')
    program.chmod(0o755)
    keys = {"gmxrc": "GMXRC", "gmx": str(program)}
    for end in (1000, 2000, 3000):
        cpi = ["-cpi", "run.cpt"] if end > 1000 else []
        mdrun(source, end, "-deffnm", "run", "-noappend", *cpi)

    checkpoint = taken(tmp_path, source / "run.cpt", **keys)

    assert {"parts/md.part0001.xtc", "parts/md.part0002.edr", "parts/md.part0003.log"} <= set(checkpoint.passport.files)
    assert finished(tmp_path, **keys) == whole


@pytest.mark.slow
def test_an_mdrun_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """What it wrote behind the checkpoint does not count."""
    source = tmp_path / "half"
    source.mkdir()
    mdrun(source, 2000, "-deffnm", "run")
    shutil.copyfile(source / "run.cpt", tmp_path / "early.cpt")
    mdrun(source, 3000, "-deffnm", "run", "-cpi", "run.cpt")
    for path in source.glob("*.cpt"):
        path.unlink()
    shutil.move(tmp_path / "early.cpt", source / "run.cpt")
    before = {path.name: path.read_bytes() for path in source.iterdir()}

    assert taken(tmp_path, source).passport.progress.done == 2000
    assert finished(tmp_path) == whole
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def rows(table: Path) -> list[str]:
    return [line for line in table.read_text().splitlines() if line[:1] not in "#@"]


@pytest.mark.slow
def test_parts_that_were_killed_count_up_to_the_checkpoint_of_the_next_one(tmp_path: Path) -> None:
    """Tables of pull coordinates too; the kill comes behind the checkpoint, and what follows it is written again."""
    steps = gmx_systems.steps_in(4, least=8000)
    pulled = gmx_systems.water_tpr("import-pull", {**gmx_systems.NVT, **gmx_systems.UMBRELLA}, nsteps=steps)
    whole, source = gmx_systems.plain_mdrun(pulled, tmp_path / "whole"), tmp_path / "half"
    source.mkdir()
    words = ["-s", str(pulled), "-ntmpi", "1", "-ntomp", "1", "-reprod", "-deffnm", "run", "-noappend", "-cpt", "0.003"]
    killed_mdrun(source, steps // 4, *words)
    seen = killed_mdrun(source, steps // 2, *words, "-cpi", "run.cpt")

    passport = taken(tmp_path, source, tpr=str(pulled)).passport
    found = finished(tmp_path, tpr=str(pulled))

    assert passport.progress.done == seen < steps
    assert {name: found[name] for name in ("md.xtc", "md.trr", "md.gro")} == {
        name: (whole / name).read_bytes() for name in ("md.xtc", "md.trr", "md.gro")
    }
    final = gmx_job(tmp_path, tpr=str(pulled)).places.final
    for table in ("md_pullx.xvg", "md_pullf.xvg"):
        assert rows(final / table) == rows(whole / table)


def killed_mdrun(folder: Path, step: int, *words: str) -> int:
    """An mdrun that is killed once it has saved a step as late as this; the step of its last checkpoint."""
    command = ["gmx", "-quiet", "mdrun", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or newest_step(folder) >= step)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was done before it was killed"
    return newest_step(folder)


def newest_step(folder: Path) -> int:
    """That of mdrun's checkpoint; -1 before there is one."""
    try:
        return read_cpt(folder / "run.cpt").step
    except CheckpointError:
        return -1


def test_a_part_that_is_missing_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "half"
    source.mkdir()
    mdrun(source, 1000, "-deffnm", "run", "-noappend")
    shutil.copytree(source, tmp_path / "killed")
    mdrun(source, 2000, "-deffnm", "run", "-noappend", "-cpi", "run.cpt")
    shutil.copytree(source, tmp_path / "lacking")
    for path in (tmp_path / "lacking").glob("*.part0001.*"):
        path.unlink()
    shutil.copytree(source, tmp_path / "strange")
    log = tmp_path / "strange" / "run.part0001.log"
    log.write_text(log.read_text().replace("Writing checkpoint, step 1000", "Writing checkpoint, step 1001"))
    shutil.copytree(source, tmp_path / "spoilt")
    with (tmp_path / "spoilt" / "run.part0002.xtc").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")

    for name, line in {
        "lacking": r"run\.part0002\.log: begins at step 1000, and the parts before are not there",
        "strange": r"run\.part0001\.log: has no checkpoint of step 1000",
        "spoilt": r"run\.part0002\.xtc: not the bytes that run\.cpt was written with",
    }.items():
        with pytest.raises(CheckpointError, match=line):
            taken(tmp_path, tmp_path / name)

    assert Store(gmx_job(tmp_path, tpr=str(tpr())).places.checkpoints).names() == []


def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    source = appended(tmp_path / "half", "-deffnm", "prod")
    shutil.copyfile(source / "prod.cpt", source / "npt.cpt")
    other = gmx_systems.dipeptide()
    gmx_systems.run(
        other, "grompp", "-f", "md.mdp", "-c", "system/conf.gro", "-p", "system/topol.top", "-o", "other.tpr"
    )
    (tmp_path / "empty").mkdir()
    (source / "torn.cpt").write_bytes((source / "prod.cpt").read_bytes()[:-10])

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
    with pytest.raises(CheckpointError, match=r"it is at 3000 steps, and the goal is 2500: nothing is left to do"):
        taken(tmp_path, source / "prod.cpt", goal=2500)
    with pytest.raises(ConfigError, match="--done: the files themselves say how far they are; leave it out"):
        taken(tmp_path, source / "prod.cpt", done=3000)


def test_the_list_of_an_appending_mdrun_s_outputs_is_read(tmp_path: Path) -> None:
    cpt = read_cpt(appended(tmp_path / "half") / "state.cpt")

    assert [output.name for output in cpt.outputs] == ["md.log", "traj_comp.xtc", "traj.trr", "ener.edr"]
    assert [output.name for output in outputs_of(cpt, tmp_path / "half")] == [
        "md.part0002.log",
        "md.part0002.xtc",
        "md.part0002.trr",
        "md.part0002.edr",
    ]


def test_half_by_unbroken_and_half_by_mdrun_is_one_simulation(tmp_path: Path, whole: dict[str, bytes]) -> None:
    source = appended(tmp_path / "half")
    keys = {"tpr": str(tpr()), "exact": True}
    taken(tmp_path, source, goal=4000)
    gmx_segment(tmp_path, **keys, goal=4000)
    target = tmp_path / "elsewhere"

    export_run(gmx_job(tmp_path, **keys), GromacsEngine(tmp_path), tmp_path / "out", "", print)
    (tmp_path / "out").rename(target)
    subprocess.run([target / "resume.sh"], check=True, capture_output=True)

    parts = sorted(path.name for path in target.glob("md.part*.xtc"))
    assert parts == ["md.part0002.xtc", "md.part0003.xtc", "md.part0004.xtc"]
    for kind in ("xtc", "trr"):
        joined = b"".join(path.read_bytes() for path in sorted(target.glob(f"md.part*.{kind}")))
        assert joined == whole[f"md.{kind}"]
    assert (target / "md.part0004.gro").read_bytes() == whole["md.gro"]
