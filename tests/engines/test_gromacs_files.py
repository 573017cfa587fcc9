"""Every file that mdrun, or what it loads, writes: whole and in pieces with kills the results are the same."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import gmx_systems
from support.gmx_jobs import CutOff, gmx_job, gmx_run, gmx_segment, kill_at, rows_of, start_segment
from support.toyrun import history, until

from unbroken.engines.gromacs.checks import mistakes
from unbroken.engines.gromacs.cpt import read_cpt, verify_outputs
from unbroken.engines.gromacs.others import Others, drop_repeated
from unbroken.job.lifecycle import run_segment
from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.needs("gromacs"), pytest.mark.xdist_group("gromacs")]
ROTATION = {"md_rotation.xvg", "md_rotangles.log", "md_rotslabs.log", "md_rottorque.log"}
NAMES = ("-ro", "md_rotation.xvg", "-ra", "md_rotangles.log", "-rs", "md_rotslabs.log", "-rt", "md_rottorque.log")
WITH_PLUMED = Path(__file__).parents[1] / "support" / "gmx_with_plumed.py"


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- enforced rotation ---

ROTATION_STEPS = 3000


@pytest.fixture(scope="module")
def rotated(tmp_path_factory):
    """One uninterrupted mdrun of the dipeptide under enforced rotation."""
    tpr = gmx_systems.rotation_tpr(ROTATION_STEPS)
    return gmx_systems.plain_mdrun(tpr, tmp_path_factory.mktemp("rotated") / "mdrun", *NAMES)


@pytest.fixture
def rotation():
    return {"tpr": str(gmx_systems.rotation_tpr(ROTATION_STEPS)), "exact": True}


def assert_as_one_mdrun(final: Path, whole: Path, parts: int) -> None:
    logs = {f"{Path(name).stem}.part{part:04d}.log" for name in ROTATION if ".log" in name for part in (1, parts)}
    assert {name for name in names_in(final) if "rot" in name} >= {"md_rotation.xvg", *logs}
    assert rows_of(final / "md_rotation.xvg") == rows_of(whole / "md_rotation.xvg")
    times = times_in(final / "md_rotation.xvg")
    assert len(set(times)) == len(times) >= ROTATION_STEPS // 20
    assert (final / "md.xtc").read_bytes() == (whole / "md.xtc").read_bytes()
    assert "Started mdrun" in (final / "md.log").read_text()
    head = (final / "md_rotation.xvg").read_text()
    assert "legend" in head and "created" not in head and "ROTATION GROUP 0" in head


def test_the_table_of_enforced_rotation_is_that_of_one_mdrun_and_the_logs_of_each_part_are_kept(
    tmp_path, rotation, rotated
):
    for segment, until_ps in enumerate((1.2, 2.44, ROTATION_STEPS * 0.002), 1):
        gmx_segment(tmp_path, segment, **rotation, until_ps=until_ps)

    job = gmx_job(tmp_path, **rotation)
    assert len(history(job)) == 3
    assert_as_one_mdrun(job.places.final, rotated, 3)


def test_a_kill_loses_no_row_of_enforced_rotation_and_none_comes_twice(tmp_path, rotation, rotated):
    job = gmx_job(tmp_path, **rotation)
    kill_at(start_segment(tmp_path, **rotation), job, 800)

    gmx_segment(tmp_path, attempt=2, **rotation)

    died, finished = history(job)
    assert (died.kind, finished.kind) == (EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from >= 800
    assert_as_one_mdrun(job.places.final, rotated, 2)


def test_a_table_that_mdrun_cannot_read_back_is_checked_by_its_length(tmp_path):
    """It has no md5 of it: every killed segment with such a table was thrown away."""
    tpr = gmx_systems.rotation_tpr(200)
    folder = gmx_systems.plain_mdrun(tpr, tmp_path / "mdrun", "-noappend", "-cpt", "0.0001", *NAMES)
    cpt = read_cpt(folder / "md.cpt")

    verify_outputs(cpt, folder)

    assert [output.name for output in cpt.outputs if output.checked_bytes < 0] == ["md_rotation.part0001.xvg"]


# --- PLUMED ---

PLUMED_STEPS = 12_000


@pytest.fixture
def plumed(tmp_path, monkeypatch):
    """A run of water with metadynamics, and where each start of mdrun is noted."""
    monkeypatch.setenv("PLUMED_STARTS", str(tmp_path / "starts"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "plumed.dat").write_text("METAD ARG=phi FILE=HILLS\nPRINT ARG=phi FILE=COLVAR\n")
    tpr = str(gmx_systems.water_tpr("plumed", nsteps=PLUMED_STEPS))
    inputs = {"inputs": ["in/plumed.dat"], "options": ["-plumed", "plumed.dat"]}
    return {"tpr": tpr, "gmx": str(WITH_PLUMED), "exact": True, **inputs}


def starts(tmp_path: Path) -> list[tuple[int, float]]:
    words = [line.split() for line in (tmp_path / "starts").read_text().splitlines()]
    return [(int(hills), float(begun)) for hills, begun in words]


def test_metadynamics_in_pieces_continues_its_hills_and_a_killed_segment_is_done_again(tmp_path, plumed):
    job, cut_ps = gmx_job(tmp_path, **plumed), 8.0
    paused = run_segment(gmx_job(tmp_path, **plumed), CutOff(tmp_path))
    kill_at(start_segment(tmp_path, 2, **plumed), job, 6000)
    gmx_segment(tmp_path, 2, 2, **plumed)

    _, died, finished = history(job)
    assert (paused.kind, died.kind, finished.kind) == (EndKind.PAUSED, EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from == paused.progress.done == cut_ps / 0.002
    assert "that with which mdrun leaves: a kill costs the whole segment" in job.places.log(1).read_text()
    assert starts(tmp_path) == [(0, 0.0), (40, cut_ps), (40, cut_ps)]
    final, end_ps = job.places.final, PLUMED_STEPS * 0.002
    assert times_in(final / "HILLS") == pytest.approx([0.2 * n for n in range(1, round(end_ps / 0.2) + 1)])
    assert times_in(final / "COLVAR") == pytest.approx([0.1 * n for n in range(round(end_ps / 0.1) + 1)])
    assert not (final / "plumed.dat").exists()
    assert not (final / "segments").exists()


def times_in(table: Path) -> list[float]:
    return [float(row.split()[0]) for row in rows_of(table)]


def test_a_checkpoint_of_metadynamics_has_the_hills_of_its_own_time(tmp_path, plumed):
    job = gmx_job(tmp_path, **plumed)
    run_segment(job, CutOff(tmp_path))

    (folder,) = job.places.checkpoints.glob("0*")
    end_ps = read_cpt(folder / "md.cpt").time_ps
    assert len(rows_of(folder / "state" / "HILLS")) == int(end_ps / 0.2 + 1e-9)
    assert times_in(folder / "state" / "COLVAR")[-1] <= end_ps


def wrapper(tmp_path: Path, before: str) -> str:
    """A gmx that does something in mdrun's folder before the real mdrun starts, which knows no -plumed."""
    program = tmp_path / "gmx_with"
    words = 'case " $* " in *" mdrun "*) ' + before + ';; esac\nset -- $(echo "$*" | sed "s/-plumed plumed.dat//")\n'
    program.write_text(f'#!/bin/bash\n{words}exec gmx "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_the_head_and_the_row_that_plumed_prints_again_are_taken_once(tmp_path):
    head, table = "#! FIELDS time phi\n#! SET a 1\n", tmp_path / "COLVAR"
    table.write_text(f"{head}0.0 1\n0.1 2\n{head}0.1 2.0001\n0.2 3\n0.2 4\n0.3 5\n0.3 5\n")

    drop_repeated(table)

    assert table.read_text() == f"{head}0.0 1\n0.1 2\n0.2 3\n0.2 4\n0.3 5\n"
    assert names_in(tmp_path) == {"COLVAR"}


# --- what others leave ---


def test_what_each_segment_begins_again_is_kept_by_segment(tmp_path):
    """By something that mdrun loads and that knows no restart."""
    before = 'echo "$*" > words.txt; case "$*" in *-cpi*) touch late.txt;; esac; echo "#! FIELDS time x" > t.dat'
    settings = {"tpr": str(gmx_systems.water_tpr("short", nsteps=400)), "gmx": wrapper(tmp_path, before), "keep": 1}

    gmx_segment(tmp_path, 1, **settings, until_ps=0.4)
    gmx_segment(tmp_path, 2, **settings, until_ps=0.8)

    final = gmx_job(tmp_path, **settings).places.final
    assert {name for name in names_in(final) if "segments/" in name} == {
        *("segments/001/t.dat", "segments/001/words.txt", "segments/002/t.dat", "segments/002/words.txt"),
    }
    assert "-cpi" in (final / "segments" / "002" / "words.txt").read_text()
    assert "-cpi" not in (final / "segments" / "001" / "words.txt").read_text()
    assert (final / "late.txt").exists()


def test_inputs_links_checkpoints_and_mdruns_own_files_are_no_other_files(tmp_path):
    folder = tmp_path / "mdrun"
    folder.mkdir()
    for name in ("md.cpt", "md.part0001.xtc", "extended.tpr", "core.12", "plumed.dat", "HILLS", "new"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to("new")
    inputs = {name: tmp_path / name for name in ("plumed.dat", "HILLS")}
    inputs["plumed.dat"].write_text("plumed.dat")
    inputs["HILLS"].write_text("HILLS of before")

    Others(folder, None, inputs, are_state=True).write(tmp_path / "draft", ["md.part0001.xtc"])

    assert names_in(tmp_path / "draft") == {"state/HILLS", "state/new"}


# --- what cannot be resumed ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("m: METAD ARG=phi FILE=/scratch/HILLS", "2: found FILE=/scratch/HILLS; it would be in no checkpoint"),
        ("PRINT ARG=phi FILE=out/COLVAR", "found FILE=out/COLVAR; it would be in no checkpoint"),
        ("METAD ...\n ARG=phi\n GRID_WFILE=../grid\n... METAD", "4: found GRID_WFILE=../grid"),
        ("METAD WALKERS_N=2 WALKERS_DIR=.. WALKERS_ID=0", "found WALKERS_DIR=..; not possible: the hills of other"),
        ("INCLUDE FILE=more.dat", "more.dat:2: found FILE=/tmp/COLVAR"),
        ("# FILE=/tmp/x in a comment\nMODEL FILE=model.pt\nMETAD FILE=HILLS.0,HILLS.1", ""),
    ],
)
def test_what_plumed_would_write_beyond_a_checkpoint_is_refused_by_name(tmp_path, text, line):
    (tmp_path / "plumed.dat").write_text(f"# hills\n{text}\n")
    (tmp_path / "more.dat").write_text("\nPRINT FILE=/tmp/COLVAR\n")
    (tmp_path / "a.tpr").touch()
    run = gmx_run(tmp_path, tpr="a.tpr")
    run = replace(run, settings={**run.settings, "options": ("-plumed", "plumed.dat"), "inputs": ("plumed.dat",)})

    found = [said for _, said in mistakes(run, tmp_path)]

    assert len(found) == bool(line), found
    assert line in "".join(map(str, found))


# --- under exec ---


def test_exec_puts_every_file_where_mdrun_would_have_put_it(tmp_path, monkeypatch, rotation, rotated):
    (tmp_path / "topol.tpr").write_bytes(Path(rotation["tpr"]).read_bytes())
    in_two_calls(tmp_path, "gmx", "-ro", "turned", "-reprod")

    assert rows_of(tmp_path / "turned.xvg") == rows_of(rotated / "md_rotation.xvg")
    assert {"prod_rotangles.part0001.log", "prod_rotslabs.part0002.log"} < names_in(tmp_path)
    assert "Started mdrun" in (tmp_path / "prod.log").read_text()
    assert not [name for name in names_in(tmp_path) if name.startswith("md")]


def test_exec_keeps_the_tables_of_plumed(tmp_path, monkeypatch, plumed):
    (tmp_path / "topol.tpr").write_bytes(Path(plumed["tpr"]).read_bytes())
    in_two_calls(tmp_path, plumed["gmx"], "-plumed", "in/plumed.dat")

    assert [hills > 0 for hills, _ in starts(tmp_path)] == [False, True]
    assert times_in(tmp_path / "HILLS") == pytest.approx([0.2 * n for n in range(1, 121)])
    assert times_in(tmp_path / "COLVAR") == pytest.approx([0.1 * n for n in range(241)])


def in_two_calls(folder: Path, gmx: str, *options: str) -> None:
    """Call mdrun under exec, with a stop once it has saved."""
    mdrun = (gmx, "mdrun", "-s", "topol.tpr", "-deffnm", "prod", *options, "-ntmpi", "1", "-ntomp", "1")
    words = [sys.executable, "-m", "unbroken", "exec", "--engine", "gromacs", "--save-minutes", "0.002", "--", *mdrun]
    process = subprocess.Popen(words, cwd=folder, stdout=-3, stderr=-3, stdin=-3)
    until(lambda: list(folder.glob(".unbroken/prod/work/*/mdrun/md.cpt")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 85

    done = subprocess.run(words, cwd=folder, text=True, capture_output=True, stdin=-3, timeout=600)

    assert done.returncode == 0, done.stderr
