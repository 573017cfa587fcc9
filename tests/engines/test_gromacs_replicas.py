"""Replicas of the gromacs engine: one `mdrun -multidir -replex` in pieces, with kills, against one in one go."""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import gmx_systems
from support.gmx_jobs import (
    Deaf,
    gmx_job,
    gmx_run,
    gmx_segment,
    kill_at,
    live_desk,
    saved_steps,
    start_segment,
    writers,
)
from support.toyrun import history, until

from unbroken.engines.gromacs.cpt import Cpt, read_cpt
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.pieces import move_state, own_names, whole_checkpoints
from unbroken.engines.gromacs.replicas import CommonEnd, newest_common
from unbroken.engines.gromacs.tool import write_energy_table
from unbroken.engines.imports import ImportSource
from unbroken.errors import ConfigError, IdentityError, SegmentError
from unbroken.job.lifecycle import run_segment
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind

# One process makes the systems, and the mdrun that all are compared with.
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("gromacs")]
needs_mpi = pytest.mark.needs("gromacs", "openmpi-bin")

STEPS, EVERY = 6000, 100
TEMPERATURES = (300, 303, 306)
NAMES = [f"t{kelvin}" for kelvin in TEMPERATURES]
FILES = ("md.xtc", "md.trr", "md.gro", "energy.tsv")
# Three ranks on two cores wait for each other: they must give way.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np", "{ranks}"]
EXCHANGES = ["-replex", str(EVERY), "-reseed", "5", "-nstlist", "40"]


def tprs(name: str, **changes: object) -> list[str]:
    """A tpr for each temperature, in a folder of its own."""
    found = []
    for kelvin, replica in zip(TEMPERATURES, NAMES, strict=True):
        tpr = gmx_systems.water_tpr(f"{name}-{replica}", **{"nsteps": STEPS, **changes}, ref_t=kelvin, gen_temp=kelvin)
        target = tpr.parent / name / replica / "topol.tpr"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(tpr.read_bytes())
        found.append(str(target))
    return found


def settings(name: str = "replicas", options: list[str] = EXCHANGES, **changes: object) -> dict[str, object]:
    return {
        "replicas": tprs(name, **changes),
        "gmx": "gmx_mpi",
        "tools": "gmx",
        "launcher": MPIRUN,
        "ranks": 3,
        "threads": 3,
        "exact": True,
        "options": options,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Mapping[str, object]:
    """One uninterrupted mdrun of all replicas, without unbroken."""
    folder = tmp_path_factory.mktemp("plain")
    for replica, tpr in zip(NAMES, tprs("replicas"), strict=True):
        (folder / replica).mkdir()
        (folder / replica / "topol.tpr").symlink_to(tpr)
    mdrun(folder, *EXCHANGES, "-reprod")
    for replica in NAMES:
        run = gmx_run(folder, tpr=str(folder / replica / "topol.tpr"))
        write_energy_table(run, folder / replica / "md.edr", folder / replica / "energy.tsv")
    return results(folder)


def mdrun(folder: Path, *words: object) -> None:
    """`gmx_mpi mdrun -multidir` of all replicas in a folder."""
    launcher = [word.format(ranks=len(NAMES)) for word in MPIRUN]
    command = [*launcher, "gmx_mpi", "-quiet", "mdrun", "-multidir", *NAMES, "-s", "topol.tpr", "-deffnm", "md"]
    command += ["-ntomp", "1", *map(str, words)]
    subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=300)


def results(folder: Path) -> Mapping[str, object]:
    """The bytes of each result of each replica, and the exchanges that its logs list."""
    found: dict[str, object] = {}
    for replica in NAMES:
        found.update({f"{replica}/{name}": (folder / replica / name).read_bytes() for name in FILES})
        found[f"{replica}: exchanges"] = exchanges((folder / replica / "md.log").read_text())
    return found


def exchanges(log: str) -> list[str]:
    return re.findall(r"(?m)^(?:Replica exchange at step|Repl ex|Repl pr).*", log)


def differing(final: Path, whole: Mapping[str, object]) -> list[str]:
    """The results that are not those of one uninterrupted mdrun, byte for byte."""
    found = results(final)
    return [name for name in whole if found[name] != whole[name]]


def published_steps(job) -> list[list[int]]:
    """The steps of all replicas at each checkpoint."""
    found = []
    for folder in sorted(job.places.checkpoints.glob("0*")):
        found.append([read_cpt(folder / "replicas" / replica / "md.cpt").step for replica in NAMES])
    return found


# --- pieces and the whole ---


@needs_mpi
def test_replicas_in_pieces_leave_the_bytes_and_the_exchanges_of_one_mdrun(tmp_path, whole):
    """With no time left mdrun leaves after its next exchanges."""
    keys = settings()
    job = gmx_job(tmp_path, keep=1, **keys)
    pieces = [gmx_job(tmp_path, n, keep=1, segment_minutes=0.0001, **keys) for n in (1, 2, 3)]
    ends = [run_segment(piece, Deaf(tmp_path)).progress.done for piece in pieces]

    ends.append(gmx_segment(tmp_path, 4, keep=1, **keys).progress.done)

    assert 0 < ends[0] < ends[1] < ends[2] < ends[3] == STEPS
    assert differing(job.places.final, whole) == []
    assert len(whole[f"{NAMES[0]}: exchanges"]) > 100
    assert " x " in "".join(whole[f"{NAMES[0]}: exchanges"])


@needs_mpi
def test_a_killed_job_of_replicas_resumes_from_checkpoints_that_belong_together(tmp_path, whole):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    kill_at(start_segment(tmp_path, **keys), job, 1000, NAMES)
    kill_at(start_segment(tmp_path, attempt=2, **keys), job, 2500, NAMES)

    record = gmx_segment(tmp_path, attempt=3, **keys)

    outcomes = [attempt.kind for attempt in history(job)]
    assert outcomes[-1] is EndKind.FINISHED
    assert outcomes.count(EndKind.DIED) == 2
    assert record.progress.done == STEPS
    assert [steps for steps in published_steps(job) if len({-(-step // EVERY) for step in steps}) > 1] == []
    assert differing(job.places.final, whole) == []


@needs_mpi
def test_a_killed_rank_costs_only_what_was_not_saved(tmp_path, whole):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    process = start_segment(tmp_path, **keys)
    until(lambda: job.places.work.is_dir() and min(saved_steps(live_desk(job), NAMES)) >= 1000)
    os.kill(writers(live_desk(job) / NAMES[1])[0], signal.SIGKILL)
    process.communicate(timeout=120)

    record = gmx_segment(tmp_path, 2, **keys)

    crashed, finished = history(job)
    assert crashed.kind is not EndKind.FINISHED
    assert crashed.progress_to == finished.progress_from >= 1000
    assert record.kind is EndKind.FINISHED
    assert differing(job.places.final, whole) == []


@pytest.mark.slow
@needs_mpi
def test_kills_of_job_launcher_and_ranks_at_random_moments_leave_the_bytes_of_one_mdrun(tmp_path, whole):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    dice, killed = random.Random(time.time()), []
    for attempt in range(1, 7):
        process, at = start_segment(tmp_path, attempt=attempt, **keys), dice.randint(1, STEPS // 8)
        until(lambda process=process, at=at: process.poll() is not None or has_saved(job, at))
        time.sleep(dice.uniform(0, 0.05))
        folder, what = live_desk(job), dice.choice(["job", "launcher", *NAMES])
        victims = [process.pid] if what == "job" else writers(folder if what == "launcher" else folder / what)
        if process.poll() is None and victims:
            os.kill(victims[0], signal.SIGKILL)
            killed.append(what)
        process.communicate(timeout=120)
        until(lambda folder=folder: not [rank for replica in NAMES for rank in writers(folder / replica)])

    record = gmx_segment(tmp_path, attempt=7, **keys)

    assert len(killed) >= 3
    assert record.progress.done == STEPS
    assert differing(job.places.final, whole) == [], killed


def has_saved(job, more: int) -> bool:
    """True once the attempt that works now has saved all replicas so many steps behind its newest origin."""
    begun = max((step for steps in published_steps(job) for step in steps), default=0)
    return job.places.work.is_dir() and min(saved_steps(live_desk(job), NAMES)) >= begun + more


@needs_mpi
def test_a_kill_between_the_moves_of_two_replicas_loses_nothing(tmp_path, whole):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    folder = kill_at(start_segment(tmp_path, **keys), job, 1500, NAMES)
    for replica in NAMES[:2]:
        newest = whole_checkpoints(folder / replica)[0]
        names = own_names(newest, folder / replica)[: None if replica == NAMES[0] else 2]
        move_state(newest, folder / replica, folder.parent / "newest", names, replica=replica)

    gmx_segment(tmp_path, attempt=2, **keys)

    assert history(job)[0].progress_to >= 1500
    assert differing(job.places.final, whole) == []


@needs_mpi
@pytest.mark.parametrize("torn", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_one_torn_checkpoint_takes_all_replicas_back_to_the_ones_before(tmp_path, whole, torn):
    """As after a kill between the checkpoints of two replicas."""
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    folder = kill_at(start_segment(tmp_path, **keys), job, 1500, NAMES)
    for path in (folder / torn).glob("md*.cpt"):
        if path.name != "md_prev.cpt":
            os.truncate(path, path.stat().st_size // 2)
    before = read_cpt(folder / torn / "md_prev.cpt").step

    gmx_segment(tmp_path, attempt=2, **keys)

    died, _ = history(job)
    assert 0 < died.progress_to <= before
    assert -(-died.progress_to // EVERY) == -(-before // EVERY)
    assert differing(job.places.final, whole) == []


@needs_mpi
def test_a_replica_without_a_checkpoint_takes_all_to_where_they_began(tmp_path, whole):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    folder = kill_at(start_segment(tmp_path, **keys), job, 1000, NAMES)
    for path in (folder / NAMES[2]).glob("md*.cpt"):
        path.unlink()

    gmx_segment(tmp_path, attempt=2, **keys)

    died, finished = history(job)
    assert (died.progress_to, finished.progress_from) == (0, 0)
    assert differing(job.places.final, whole) == []


# --- which checkpoints belong together ---


def left(tmp_path: Path, name: str, *steps: int, begun: int = -1, is_over: bool = False) -> SimpleNamespace:
    (tmp_path / name).mkdir(exist_ok=True)
    cpts = [Cpt(tmp_path / name / f"md{step}.cpt", "gmx", 3, 1, step, step * 0.002, ()) for step in steps]
    return SimpleNamespace(cpts=cpts, begun=begun, is_over=is_over)


def steps_of(end: CommonEnd) -> list[list[int]]:
    return [[cpt.step for cpt in cpts] for cpts in (end.cpts, end.earlier)]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        # One has exchanged at 200, and saved at its next step; the other at its next search of neighbors.
        ([(201, 101), (240, 140)], [[201, 240], [101, 140]]),
        # The exchange at 300 comes next for one of them, and is behind the other.
        ([(300, 201), (301, 240)], [[300, 240], []]),
        ([(301, 201), (240, 140)], [[201, 240], []]),
        ([(301,), (240,)], [[], []]),
        ([(440, 301), (340, 201)], [[301, 340], []]),
    ],
)
def test_checkpoints_belong_together_between_the_same_two_exchanges(tmp_path, steps, found):
    replicas = [left(tmp_path, str(number), *each) for number, each in enumerate(steps)]

    assert steps_of(newest_common(replicas, 10_000, 100)) == found


def test_replicas_resume_only_from_checkpoints_that_are_all_newer(tmp_path):
    replicas = [left(tmp_path, "a", 240, 201, begun=201), left(tmp_path, "b", 240, begun=240)]

    assert steps_of(newest_common(replicas, 10_000, 100)) == [[], []]


def test_the_end_counts_when_all_replicas_have_written_it(tmp_path):
    one, other = (left(tmp_path, name, 1000, 920, is_over=True) for name in ("a", "b"))
    (tmp_path / "a" / "md.part0001.gro").touch()

    before = newest_common([one, other], 1000, 100)
    (tmp_path / "b" / "md.part0001.gro").touch()
    after = newest_common([one, other], 1000, 100)

    assert (steps_of(before), before.is_final) == ([[920, 920], []], False)
    assert (steps_of(after), after.is_final) == ([[1000, 1000], [920, 920]], True)


# --- what is refused before the first step ---

SHARED_BIAS = {
    **gmx_systems.UMBRELLA,
    "pull-coord1-type": "external-potential",
    "pull-coord1-potential-provider": "awh",
    "awh": "yes",
    "awh-share-multisim": "yes",
    "awh1-share-group": 1,
    "awh1-ndim": 1,
    "awh1-dim1-coord-index": 1,
    "awh1-dim1-start": 0.3,
    "awh1-dim1-end": 0.9,
    "awh1-dim1-force-constant": 1000,
    "awh1-dim1-diffusion": 1e-4,
}
GOOD = {
    "replicas": ["a/topol.tpr", "b/topol.tpr"],
    "gmx": "gmx_mpi",
    "launcher": ["mpirun"],
    "ranks": 2,
    "threads": 2,
    "options": ["-replex", "500"],
}
MISTAKES = [
    ({"tpr": "a/topol.tpr"}, "tpr: does nothing beside `replicas`; allowed: `replicas` alone"),
    ({"replicas": ["a/topol.tpr"]}, "replicas: found 1; allowed: two or more, or `tpr` for one simulation"),
    ({"replicas": ["a/topol.tpr", "c/a/topol.tpr"]}, "replicas: found 2 called 'a'; put each tpr into a folder"),
    ({"replicas": ["a b/topol.tpr", "b/topol.tpr"]}, "replicas: found one called 'a b'; allowed: a folder of letters"),
    ({"ranks": 1}, "ranks: found 1, but there are 2 replicas; allowed: 2, or a multiple of it"),
    (
        {"launcher": [], "gmx": "gmx"},
        "launcher: is missing: gmx cannot start 2 ranks of MPI by itself; type for example",
    ),
    ({"options": []}, "options: -replex: found none, and replicas that do not exchange save at steps of their own"),
    ({"options": ["-replex", "often"]}, "options: -replex: found often; allowed: a number of steps, 1 or more"),
    ({"exact": True}, "options: -reseed: found none; mdrun then draws other random numbers"),
    (
        {"options": ["-replex", "500", "-plumed", "plumed.dat"]},
        "options: found -plumed beside `replicas`; not possible",
    ),
    ({"options": ["-replex", "500", "-multidir", "a"]}, "options: found -multidir; name the tpr of each replica"),
    ({"replicas": [], "tpr": "a/topol.tpr"}, "options: found -replex; name the tpr of each replica, as replicas:"),
]


@pytest.mark.parametrize(("changes", "line"), MISTAKES, ids=[line[:40] for _, line in MISTAKES])
def test_replicas_that_cannot_be_resumed_are_refused_before_anything_is_queued(tmp_path, changes, line):
    for name in ("a", "b", "c/a", "a b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "topol.tpr").touch()
    gmx_run(tmp_path, **GOOD)

    with pytest.raises(ConfigError) as error:
        gmx_run(tmp_path, **{**GOOD, **changes})

    assert [said for said in error.value.mistakes if said.startswith(f"runs.demo.settings.{line}")], error.value


@needs_mpi
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["-replex", "100"], 'found -replex 100, but .* every 100 steps only, .* or -nstlist below it, as .*"50"'),
        (["-replex", "40", "-nstlist", "40"], "found -replex 40, but .* every 40 steps only, .* -replex 41 or more"),
    ],
)
def test_exchanges_as_often_as_neighbors_are_searched_are_refused(tmp_path, options, found):
    """mdrun may raise nstlist to 100, and hangs when it saves or stops."""
    with pytest.raises(SegmentError, match=rf"runs\.demo\.settings\.options: {found}"):
        gmx_segment(tmp_path, **settings(options=[*options, "-reseed", "5"]))


@needs_mpi
def test_exchanges_just_after_each_search_of_neighbors_are_saved_and_stopped(tmp_path):
    keys = settings("endless", options=["-replex", "21", "-reseed", "5", "-nstlist", "20"], nsteps=1_000_000)
    jobs = [gmx_job(tmp_path, segment, segment_minutes=0.0001, **keys) for segment in range(1, 6)]

    done = [run_segment(job, Deaf(tmp_path)).progress.done for job in jobs]

    assert done == sorted(set(done))
    assert [steps for steps in published_steps(jobs[0]) if len({-(-step // 21) for step in steps}) > 1] == []


@needs_mpi
def test_replicas_that_share_a_bias_are_refused(tmp_path):
    keys = settings("shared", **SHARED_BIAS)

    with pytest.raises(SegmentError, match=r"replicas: the tpr of t300 has awh-share-multisim = yes; not possible: "):
        gmx_segment(tmp_path, **keys)


@needs_mpi
def test_replicas_that_end_at_different_steps_are_refused_unless_the_goal_is_said(tmp_path):
    keys = settings()
    keys["replicas"] = [*tprs("replicas")[:2], *tprs("longer", nsteps=STEPS + 1000)[2:]]

    with pytest.raises(SegmentError, match=r"replicas: they end at different steps \(t300 at step 6000, .*7000\)"):
        gmx_segment(tmp_path, **keys)
    record = gmx_segment(tmp_path, 1, 2, **keys, goal=500)

    assert (record.kind, record.progress.done) == (EndKind.FINISHED, 500)


@needs_mpi
def test_a_replica_under_another_name_does_not_begin_at_step_0(tmp_path):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    gmx_segment(tmp_path, **keys, goal=500)
    passport = next(job.places.checkpoints.glob("0*500-steps*")) / "manifest.json"
    said = json.loads(passport.read_text())

    assert [name for name in said["files"] if name.endswith("md.cpt")] == [
        f"replicas/{replica}/md.cpt" for replica in NAMES
    ]
    keys["replicas"] = [name.replace("/t300/", "/other/") for name in keys["replicas"]]
    other = Path(keys["replicas"][0])
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(Path(tprs("replicas")[0]).read_bytes())
    with pytest.raises(IdentityError, match=r"content of settings\.replicas .*/other/topol\.tpr was absent"):
        gmx_segment(tmp_path, 2, **keys)


@needs_mpi
def test_replicas_are_neither_imported_nor_exported(tmp_path):
    keys = settings()
    job = gmx_job(tmp_path, **keys)
    gmx_segment(tmp_path, **keys, goal=500)
    engine, run = GromacsEngine(tmp_path), gmx_run(tmp_path, **keys)
    newest = max(Store(job.places.checkpoints).readable(), key=lambda each: each.name)

    with pytest.raises(ConfigError, match="demo: replicas cannot be exported; allowed: a run of one simulation"):
        engine.export(run, newest, tmp_path)
    with pytest.raises(ConfigError, match="demo: replicas cannot be imported; allowed: a run of one simulation"):
        engine.import_files(run, ImportSource(tmp_path), tmp_path)
