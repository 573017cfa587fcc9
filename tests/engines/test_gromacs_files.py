"""Every file that mdrun, or what it loads, writes: whole and in pieces with kills the results are the same."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import gmx_systems
from support.gmx_jobs import CutOff, gmx_job, gmx_run, gmx_segment, kill_at, rows_of, start_segment
from support.toyrun import history, until

from unbroken.engines.gromacs.checks import mistakes
from unbroken.engines.gromacs.cpt import read_cpt, verify_outputs
from unbroken.engines.gromacs.outputs import newest_log
from unbroken.job.lifecycle import run_segment
from unbroken.runs.segment_end import EndKind

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


def assert_as_one_mdrun(final: Path, whole: Path) -> None:
    assert {name for name in names_in(final) if "rot" in name} == ROTATION
    assert {name: rows_of(final / name) for name in ROTATION} == {name: rows_of(whole / name) for name in ROTATION}
    times = times_in(final / "md_rotation.xvg")
    assert len(set(times)) == len(times) >= ROTATION_STEPS // 20
    assert (final / "md.xtc").read_bytes() == (whole / "md.xtc").read_bytes()
    assert "Started mdrun" in (final / "md.log").read_text()
    head = (final / "md_rotation.xvg").read_text()
    assert "legend" in head and "created" not in head and "ROTATION GROUP 0" in head


def test_the_tables_of_enforced_rotation_are_those_of_one_mdrun(tmp_path, rotation, rotated):
    for segment, until_ps in enumerate((1.2, 2.44, ROTATION_STEPS * 0.002), 1):
        gmx_segment(tmp_path, segment, **rotation, until_ps=until_ps)

    job = gmx_job(tmp_path, **rotation)
    assert len(history(job)) == 3
    assert_as_one_mdrun(job.places.final, rotated)


def test_a_kill_loses_no_row_of_enforced_rotation_and_none_comes_twice(tmp_path, rotation, rotated):
    job = gmx_job(tmp_path, **rotation)
    folder = kill_at(start_segment(tmp_path, **rotation), job, 800)
    tables = {path.name for path in folder.glob("md_rot*")}

    gmx_segment(tmp_path, attempt=2, **rotation)

    died, finished = history(job)
    assert (died.kind, finished.kind) == (EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from >= 800
    assert tables == {
        "md_rotation.part0001.xvg",
        *(f"{Path(name).stem}.part0001.log" for name in ROTATION if "xvg" not in name),
    }
    assert_as_one_mdrun(job.places.final, rotated)


def test_the_log_is_never_a_table_whose_name_resembles_it(tmp_path):
    for name in ("md.part0001.log", "md.part0002_x.log", "md_rotslabs.part0003.log", "md.part0004.log.1"):
        (tmp_path / name).touch()

    assert newest_log(tmp_path) == tmp_path / "md.part0001.log"


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


def test_metadynamics_in_pieces_with_a_kill_continues_its_hills_and_tables(tmp_path, plumed):
    job = gmx_job(tmp_path, **plumed)
    kill_at(start_segment(tmp_path, **plumed), job, 2000)
    paused = run_segment(gmx_job(tmp_path, 1, 2, **plumed), CutOff(tmp_path))
    gmx_segment(tmp_path, 2, **plumed)

    died, _, finished = history(job)
    assert (died.kind, paused.kind, finished.kind) == (EndKind.DIED, EndKind.PAUSED, EndKind.FINISHED)
    (first, *others) = starts(tmp_path)
    assert first == (0, 0.0)
    assert [hills for hills, _ in others] == [int(begun / 0.2 + 1e-9) for _, begun in others]
    assert others[0][1] == pytest.approx(died.progress_to * 0.002) and died.progress_to >= 2000
    final, end_ps = job.places.final, PLUMED_STEPS * 0.002
    hills, colvar = (times_in(final / name) for name in ("HILLS", "COLVAR"))
    assert hills == pytest.approx([0.2 * n for n in range(1, round(end_ps / 0.2) + 1)])
    assert colvar == pytest.approx([0.1 * n for n in range(round(end_ps / 0.1) + 1)])
    assert not (final / "plumed.dat").exists()
    assert not (final / "segments").exists()


def times_in(table: Path) -> list[float]:
    return [float(row.split()[0]) for row in rows_of(table)]


def test_a_checkpoint_of_metadynamics_has_the_hills_of_its_own_time(tmp_path, plumed):
    job = gmx_job(tmp_path, **plumed)
    run_segment(job, CutOff(tmp_path))

    folders = sorted(job.places.checkpoints.glob("0*"))
    assert len(folders) == 2
    for folder in folders:
        end_ps = read_cpt(folder / "md.cpt").time_ps
        assert len(rows_of(folder / "state" / "HILLS")) == int(end_ps / 0.2 + 1e-9)
        assert times_in(folder / "state" / "COLVAR")[-1] <= end_ps


def test_files_without_times_are_not_guessed_after_a_kill(tmp_path, nvt_with_counter):
    """What cannot be cut at the checkpoint does not go with it: the segment is done again, and a line says why."""
    job = gmx_job(tmp_path, **nvt_with_counter)
    kill_at(start_segment(tmp_path, **nvt_with_counter), job, 2000)

    gmx_segment(tmp_path, attempt=2, **nvt_with_counter)

    died, finished = history(job)
    assert (died.progress_to, finished.progress_from) == (0, 0)
    assert "COUNTS: names no time as its first column, so it cannot be cut at the checkpoint at" in said(job)
    assert (job.places.final / "COUNTS").read_text() == "hill a\nhill b\n"


def said(job) -> str:
    return job.places.log(1).read_text()


@pytest.fixture
def nvt_with_counter(tmp_path):
    (tmp_path / "plumed.dat").write_text("")
    program = wrapper(tmp_path, 'echo "hill a" >> COUNTS; echo "hill b" >> COUNTS')
    tpr = str(gmx_systems.water_tpr("nvt"))
    return {"tpr": tpr, "gmx": program, "inputs": ["plumed.dat"], "options": ["-plumed", "plumed.dat"]}


def wrapper(tmp_path: Path, before: str) -> str:
    """A gmx that does something in mdrun's folder before the real mdrun starts, which knows no -plumed."""
    program = tmp_path / "gmx_with"
    words = 'case " $* " in *" mdrun "*) ' + before + ';; esac\nset -- $(echo "$*" | sed "s/-plumed plumed.dat//")\n'
    program.write_text(f'#!/bin/bash\n{words}exec gmx "$@"\n')
    program.chmod(0o755)
    return str(program)


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


# --- the names ---


def test_a_name_that_the_options_give_is_the_name_of_the_result(tmp_path):
    values = {**gmx_systems.NVT, **gmx_systems.UMBRELLA}
    settings = {"tpr": str(gmx_systems.water_tpr("umbrella_pulling", values, nsteps=400))}

    gmx_segment(tmp_path, **settings, options=["-px", "tables/where.xvg", "-dlb", "no"])

    final = gmx_job(tmp_path, **settings).places.final
    assert {name for name in names_in(final) if name.endswith(".xvg")} == {"tables/where.xvg", "md_pullf.xvg"}


def test_an_electric_field_has_each_row_once(tmp_path):
    field = {"electric-field-x": "0.1 0 0 0"}
    settings = {"tpr": str(gmx_systems.water_tpr("field", {**gmx_systems.NVT, **field}, nsteps=400)), "exact": True}
    whole = gmx_systems.plain_mdrun(Path(settings["tpr"]), tmp_path / "plain", "-field", "md_field.xvg")

    for segment, until_ps in enumerate((0.2, 0.4, 0.8), 1):
        gmx_segment(tmp_path, segment, **settings, options=["-field"], until_ps=until_ps)

    final = gmx_job(tmp_path, **settings).places.final
    assert rows_of(final / "field.xvg") == rows_of(whole / "md_field.xvg")
    assert len(rows_of(final / "field.xvg")) == 401


# --- what cannot be resumed ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("UNITS TIME=ns", "found TIME=ns; PLUMED's tables are cut at the time of mdrun's checkpoint, in ps"),
        (
            "m: METAD ARG=phi FILE=/scratch/HILLS",
            "found FILE=/scratch/HILLS; it would be in no checkpoint; allowed: a name",
        ),
        ("PRINT ARG=phi FILE=out/COLVAR", "found FILE=out/COLVAR; it would be in no checkpoint"),
        ("METAD ...\n ARG=phi\n GRID_WFILE=../grid\n... METAD", "found GRID_WFILE=../grid"),
        (
            "METAD ARG=phi WALKERS_N=2 WALKERS_DIR=.. WALKERS_ID=0",
            "found WALKERS_DIR=..; not possible: the hills of other",
        ),
        ("INCLUDE FILE=more.dat", "more.dat:2: found FILE=/tmp/COLVAR"),
    ],
)
def test_what_plumed_would_write_beyond_a_checkpoint_is_refused_by_name(tmp_path, text, line):
    (tmp_path / "plumed.dat").write_text(f"# hills\n{text}\n")
    (tmp_path / "more.dat").write_text("\nPRINT FILE=/tmp/COLVAR\n")
    (tmp_path / "a.tpr").touch()

    found = [said for _, said in mistakes(gmx_run_unchecked(tmp_path), tmp_path)]

    assert [said for said in found if line in said], found
    assert len(found) == 1


def gmx_run_unchecked(tmp_path):
    from dataclasses import replace

    run = gmx_run(tmp_path, tpr="a.tpr")
    return replace(run, settings={**run.settings, "options": ("-plumed", "plumed.dat"), "inputs": ("plumed.dat",)})


def test_a_plumed_input_that_reads_elsewhere_and_writes_here_is_allowed(tmp_path):
    (tmp_path / "plumed.dat").write_text(
        "# FILE=/tmp/x in a comment\nUNITS LENGTH=A TIME=ps\n"
        f"cv: PYTORCH_MODEL FILE={tmp_path}/model.pt ARG=d\nMETAD FILE=HILLS.0,HILLS.1\n"
    )
    (tmp_path / "model.pt").touch()
    (tmp_path / "a.tpr").touch()

    assert list(mistakes(gmx_run_unchecked(tmp_path), tmp_path)) == []


# --- under exec ---


def test_exec_puts_every_file_where_mdrun_would_have_put_it(tmp_path, monkeypatch, rotation, rotated):
    (tmp_path / "topol.tpr").write_bytes(Path(rotation["tpr"]).read_bytes())
    mdrun = (
        "gmx",
        "mdrun",
        "-s",
        "topol.tpr",
        "-deffnm",
        "prod",
        "-ra",
        "turned",
        "-ntmpi",
        "1",
        "-ntomp",
        "1",
        "-reprod",
    )
    words = [sys.executable, "-m", "unbroken", "exec", "--engine", "gromacs", "--save-minutes", "0.002", "--", *mdrun]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=-3, stderr=-3, stdin=-3)
    until(lambda: list(tmp_path.glob(".unbroken/prod/work/*/mdrun/md.cpt")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 85

    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, stdin=-3, timeout=600)

    assert done.returncode == 0, done.stderr
    ours = {"prod_rotation.xvg": "_rotation.xvg", "turned.log": "_rotangles.log", "prod_rotslabs.log": "_rotslabs.log"}
    for name, kind in {**ours, "prod_rottorque.log": "_rottorque.log"}.items():
        assert rows_of(tmp_path / name) == rows_of(rotated / f"md{kind}")
    assert "Started mdrun" in (tmp_path / "prod.log").read_text()
    assert not [name for name in names_in(tmp_path) if name.startswith("md")]


def test_exec_keeps_the_tables_of_plumed(tmp_path, monkeypatch, plumed):
    (tmp_path / "topol.tpr").write_bytes(Path(plumed["tpr"]).read_bytes())
    mdrun = (
        plumed["gmx"],
        "mdrun",
        "-s",
        "topol.tpr",
        "-deffnm",
        "prod",
        "-plumed",
        "in/plumed.dat",
        "-ntmpi",
        "1",
        "-ntomp",
        "1",
    )
    words = [sys.executable, "-m", "unbroken", "exec", "--engine", "gromacs", "--save-minutes", "0.002", "--", *mdrun]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=-3, stderr=-3, stdin=-3, start_new_session=True)
    until(lambda: [path for path in tmp_path.glob(".unbroken/prod/work/*/mdrun/md.cpt") if read_cpt(path).step > 1000])
    process.kill()
    process.wait()

    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, stdin=-3, timeout=600)

    assert done.returncode == 0, done.stderr
    assert [hills > 0 for hills, _ in starts(tmp_path)] == [False, True]
    assert times_in(tmp_path / "HILLS") == pytest.approx([0.2 * n for n in range(1, 121)])
    assert times_in(tmp_path / "COLVAR") == pytest.approx([0.1 * n for n in range(241)])
