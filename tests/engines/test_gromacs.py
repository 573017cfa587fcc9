"""The gromacs engine: its case for the conformance suite, whole runs with kills, and its command."""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from engines.conformance import Case, Chain
from support import gmx_systems
from support.gmx_jobs import (
    Deaf,
    first_piece,
    gmx_job,
    gmx_run,
    gmx_segment,
    kill_at,
    passport_of,
    rows_of,
    start_segment,
)
from support.images import apptainer, make_tree
from support.toyrun import flip_byte, history, until

from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.gromacs.pieces import move_state, own_names, whole_checkpoints
from unbroken.engines.gromacs.tool import write_energy_table
from unbroken.engines.gromacs.tpr import prepare
from unbroken.errors import ConfigError, DivergedError, SegmentError, StalledError, UnbrokenError
from unbroken.job.lifecycle import run_segment
from unbroken.plan.plan import Plan
from unbroken.store.checkpoint import data_digest
from unbroken.store.history import EndCause, EndKind

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("gromacs"),
    pytest.mark.xdist_group("gromacs"),
]  # one process, one system and one `whole`
NEEDS = ("gromacs",)
FINAL = ("md.xtc", "md.trr", "md.gro", "energy.tsv")


def __getattr__(name):
    """`CASE` is made when it is asked for, because its systems are."""
    if name != "CASE":
        raise AttributeError(name)
    steps = gmx_systems.steps_in(6, least=12000)
    return Case(
        "gromacs",
        # Each cut leaves the next attempt some seconds.
        settings={"tpr": str(gmx_systems.water_tpr("case", nsteps=steps)), "exact": True},
        segments=4,
        segment_minutes=20,
        save_minutes=0.002,
        final_files=FINAL,
        # The log has times, segments.tsv the cuts; sums in the energy file begin again with each part (see energy.tsv).
        per_piece=("md.log", "md.edr", "segments.tsv"),
        other_settings={"tpr": str(gmx_systems.water_tpr("warmer", ref_t=310))},
        further_goal=steps + 500,
        kills=6,
        cuts=(0.2, 0.5),
        own_save="md.cpt",
    )


# --- the whole, by mdrun alone ---


def files_of(folder, names=FINAL):
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def plain(tpr, folder):
    """What mdrun makes of a tpr without unbroken around it, with its energies as a table."""
    gmx_systems.plain_mdrun(tpr, folder)
    write_energy_table(gmx_run(folder, tpr=str(tpr)), folder / "md.edr", folder / "energy.tsv")
    return files_of(folder)


# Six pieces of it are long enough to be met on their way, which the engine looks for twice a second.
LONG_SECONDS = 10
SYSTEMS = {
    "NVT water": lambda: {
        "tpr": str(gmx_systems.water_tpr("long", nsteps=gmx_systems.steps_in(LONG_SECONDS, least=16000))),
        "exact": True,
    },
    "NPT water, fixed list": lambda: {
        "tpr": str(
            gmx_systems.water_tpr(
                "npt",
                {**gmx_systems.NPT, **gmx_systems.FIXED_LIST},
                nsteps=gmx_systems.steps_in(LONG_SECONDS, least=8000, cost=2),
            )
        ),
        "exact": True,
    },
    "dipeptide, NPT, prepared": lambda: {
        "mdp": str(gmx_systems.dipeptide_mdp(gmx_systems.steps_in(LONG_SECONDS, least=4000, cost=5))),
        "structure": str(gmx_systems.dipeptide() / "system" / "conf.gro"),
        "topology": str(gmx_systems.dipeptide() / "system" / "topol.top"),
        "fixed_rlist_nm": 1.0,
        "exact": True,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_six_segments_and_ten_kills_give_the_bytes_of_one_mdrun(tmp_path, system):
    settings = SYSTEMS[system]()
    case = Case("gromacs", settings, 7, 5, 0.002, FINAL, {}, 0)
    pieces, killed = (Chain(tmp_path / name, case) for name in ("pieces", "killed"))
    for chain in (pieces, killed):
        chain.configure()
    dice = random.Random(time.time())

    warnings = pieces.run_with_hits([piece / 6 for piece in range(1, 6)], pieces.warn)
    kills = killed.run_with_hits([dice.uniform(0, 0.75) for _ in range(14)], killed.kill_one(dice))

    tpr = Path(settings.get("tpr") or pieces.results / "prepared" / "topol.tpr")
    whole = plain(tpr, tmp_path / "whole")
    names = tuple(name for name in FINAL if name in whole)
    assert warnings == 5
    assert [attempt["segment"] for attempt in pieces.history()] == list(range(1, 7))
    assert kills >= 10
    assert [name for name in names if (pieces.results / "final" / name).read_bytes() != whole[name]] == []
    assert [name for name in names if (killed.results / "final" / name).read_bytes() != whole[name]] == []
    assert set(names) >= {"md.xtc", "md.gro", "energy.tsv"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The 5000 steps of the NVT water in one mdrun."""
    return plain(gmx_systems.water_tpr("nvt"), tmp_path_factory.mktemp("plain") / "mdrun")


@pytest.fixture
def nvt():
    return {"tpr": str(gmx_systems.water_tpr("nvt")), "exact": True}


@pytest.fixture
def endless():
    """Far more steps than a test waits for."""
    return {"tpr": str(gmx_systems.water_tpr("endless", nsteps=1_000_000))}


# --- killed ---


def test_a_killed_segment_loses_only_what_mdrun_had_not_saved(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 2000)
    saved = max(int(line.split()[3].rstrip(",")) for line in writes(folder))

    record = gmx_segment(tmp_path, attempt=2, **nvt)

    died, finished = history(job)
    assert (died.kind, finished.kind) == (EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from >= 2000
    assert saved - died.progress_to <= 500  # one save more may have been under way
    assert died.work_seconds > 0
    assert record.progress.done == 5000
    assert files_of(job.places.final) == whole


def test_killed_in_an_image_it_leaves_what_one_mdrun_outside_leaves(tmp_path, nvt, whole, monkeypatch):
    monkeypatch.setenv("PATH", f"{apptainer()}:{os.environ['PATH']}")
    programs = [f"--bind={folder}" for folder in ("/usr", "/lib", "/lib64", "/etc/alternatives")]
    image = {"container": str(make_tree(tmp_path / "tree", "water")), "container_options": programs}
    job = gmx_job(tmp_path, **nvt, **image)
    kill_at(start_segment(tmp_path, **nvt, **image), job, 2000)

    gmx_segment(tmp_path, attempt=2, **nvt, **image)

    died, finished = history(job)
    assert (died.kind, finished.kind) == (EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from >= 2000
    assert files_of(job.places.final) == whole


def writes(folder):
    log = next(folder.glob("md.part*.log")).read_text()
    return [line for line in log.splitlines() if line.startswith("Writing checkpoint, step ")]


def test_a_torn_checkpoint_of_a_killed_segment_gives_way_to_the_one_before(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 2000)
    newest = folder / "md.cpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    before = read_cpt(folder / "md_prev.cpt").step

    gmx_segment(tmp_path, attempt=2, **nvt)

    assert history(job)[0].progress_to == before > 0
    assert files_of(job.places.final) == whole


@pytest.mark.slow
def test_nothing_is_saved_from_a_killed_segment_without_a_whole_checkpoint(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 1000)
    for path in folder.glob("*.cpt"):
        os.truncate(path, path.stat().st_size // 2)

    gmx_segment(tmp_path, attempt=2, **nvt)

    assert history(job)[0].progress_to == 0
    assert history(job)[1].progress_from == 0
    assert files_of(job.places.final) == whole


@pytest.mark.slow
def test_pieces_that_differ_from_their_checkpoint_are_not_saved(tmp_path, nvt):
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 2000)
    flip_byte(next(folder.glob("md.part*.xtc")), 200)

    gmx_segment(tmp_path, attempt=2, **nvt)

    assert history(job)[0].progress_to == 0
    assert "nothing of the killed attempt 1 could be saved: " in job.places.log(1).read_text()
    # Between mdrun's two renames its newest checkpoint has a name of its own.
    differs = r"md\.part0001\.xtc: not the bytes that md(_step\d+)?\.cpt was written with \(md5\)"
    assert re.search(differs, job.places.log(1).read_text())


@pytest.mark.slow
def test_what_a_zombie_writes_after_its_checkpoint_is_not_taken(tmp_path, nvt, whole):
    """Its files are longer than the checkpoint counts, and may grow while they are copied."""
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 2000)
    for path in folder.glob("md.part*.*"):
        with path.open("ab") as file:
            file.write(b"from beyond the grave" * 1000)

    gmx_segment(tmp_path, attempt=2, **nvt)

    assert history(job)[0].progress_to >= 2000
    assert files_of(job.places.final) == whole


@pytest.mark.slow
def test_a_kill_between_the_moves_of_the_pieces_loses_nothing(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, **nvt)
    folder = kill_at(start_segment(tmp_path, **nvt), job, 2000)
    newest = whole_checkpoints(folder)[0]
    move_state(newest, folder, folder.parent / "newest", own_names(newest, folder)[:2])

    gmx_segment(tmp_path, attempt=2, **nvt)

    assert history(job)[0].progress_to == newest.step
    assert files_of(job.places.final) == whole


# --- stopped ---


def test_mdrun_watches_the_clock_itself_and_is_paused(tmp_path, endless):
    """-maxh ends it with exit code 0, as if it had reached its goal."""
    job = gmx_job(tmp_path, segment_minutes=0.2, **endless)

    record = run_segment(job, Deaf(tmp_path))

    (attempt,) = history(job)
    assert (record.kind, attempt.exit_code) == (EndKind.PAUSED, 0)
    assert 0 < record.progress.done < 1_000_000
    assert "Run time exceeded" in job.places.log(1).read_text()
    assert attempt.stop_seconds is not None


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGURG])
def test_a_warning_signal_makes_mdrun_save_and_leave(tmp_path, endless, number):
    """mdrun itself ignores USR1, and ends with 1 after a TERM as after a fatal error."""
    job = gmx_job(tmp_path, **endless)
    process = start_segment(tmp_path, save_minutes=10, **endless)
    until(lambda: list(job.places.work.glob("*/progress.json")))
    process.send_signal(number)
    process.communicate(timeout=60)

    (attempt,) = history(job)
    assert (process.returncode, attempt.kind, attempt.exit_code) == (0, EndKind.PAUSED, 1)
    assert 0 < attempt.progress_to < 1_000_000


def test_a_deadline_in_the_past_still_ends_mdrun(tmp_path, endless):
    """`-maxh 0`, or less, would be no limit at all."""
    record = run_segment(gmx_job(tmp_path, segment_minutes=0.0001, **endless), Deaf(tmp_path))

    assert record.kind is EndKind.PAUSED
    assert 0 < record.progress.done < 1_000_000


def test_while_it_works_it_says_how_far_and_how_fast_and_how_long(tmp_path, endless):
    job = gmx_job(tmp_path, **endless)
    process = start_segment(tmp_path, **endless)
    until(lambda: "pace" in live_metrics(job))
    metrics = live_metrics(job)
    process.kill()
    process.communicate()

    assert metrics["pace"].endswith(" ns/day")
    assert float(metrics["pace"].split()[0]) > 0
    assert metrics["left_seconds"] > 0


def live_metrics(job):
    paths = sorted(job.places.work.glob("*/progress.json"))
    return json.loads(paths[-1].read_text())["metrics"] if paths else {}


# --- the goal ---


def test_until_ps_and_extend_ps_extend_a_finished_run_without_touching_what_is_done(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, **nvt)
    gmx_segment(tmp_path, **nvt)
    done = pieces(job, 1)

    later = gmx_segment(tmp_path, 2, **nvt, until_ps=10.8)
    again = gmx_segment(tmp_path, 3, **nvt, until_ps=10.8)
    latest = gmx_segment(tmp_path, 4, **nvt, extend_ps=1.5)

    assert [record.progress.done for record in (later, again, latest)] == [5400, 5400, 5750]
    assert [record.has_worked for record in (later, again, latest)] == [True, False, True]
    longer = plain(gmx_systems.water_tpr("longer", nsteps=5750), tmp_path / "longer")
    assert files_of(job.places.final) == longer
    assert pieces(job, 1) == done


@pytest.mark.parametrize("sooner", [{"until_ps": 4.0}, {"goal": 2000}])
def test_a_run_that_ended_sooner_than_its_tpr_goes_on_to_the_end_of_it_when_that_goal_is_removed(
    tmp_path, nvt, whole, sooner
):
    first = gmx_segment(tmp_path, **nvt, **sooner)
    plans = [Plan((gmx_run(tmp_path, **nvt, **goal),), tmp_path) for goal in (sooner, {})]
    finished = "results/demo/final/summary.json"

    assert (first.kind, first.progress.done) == (EndKind.FINISHED, 2000)
    assert [plan.targets() == [finished] for plan in plans] == [True, False]
    record, again = (gmx_segment(tmp_path, segment, **nvt) for segment in (2, 3))
    assert [(each.kind, each.progress.done, each.has_worked) for each in (record, again)] == [
        (EndKind.FINISHED, 5000, True),
        (EndKind.FINISHED, 5000, False),
    ]
    assert files_of(gmx_job(tmp_path, **nvt).places.final) == whole


def pieces(job, part):
    """The pieces of a part by name, wherever they lie."""
    paths = job.places.root.glob(f"*/0*/parts/md.part{part:04d}.*")
    return {path.name: path.read_bytes() for path in paths}


# --- what must not be mixed ---


def test_another_number_of_threads_is_refused_unless_the_config_allows_it(tmp_path, nvt):
    job = gmx_job(tmp_path, **nvt)
    first = first_piece(tmp_path, **nvt)
    two = {**nvt, "threads": 2}

    with pytest.raises(ConfigError, match=r"threads was 1, is 2; allowed: the same"):
        Plan((gmx_run(tmp_path, **two),), tmp_path).check()
    Plan((gmx_run(tmp_path, **two, layout_may_change=True),), tmp_path).check()
    soon = (passport_of(first, job)["progress"]["done"] + 200) * 0.002  # two threads on busy cores are slow
    record = gmx_segment(tmp_path, 2, **two, layout_may_change=True, until_ps=soon)

    parts = passport_of(record, job)["identity_parts"]
    assert (parts["threads"], parts["settings.layout_may_change"]) == ("2", "true")
    assert record.kind is EndKind.FINISHED
    assert "threads" in (job.places.final / "segments.tsv").read_text().splitlines()[0]


def test_a_checkpoint_without_mdruns_own_file_is_refused(tmp_path, nvt):
    """mdrun would start from step 0 without a word."""
    job = gmx_job(tmp_path, **nvt)
    record = first_piece(tmp_path, **nvt)
    folder = job.places.checkpoints / record.checkpoint
    passport = json.loads((folder / "manifest.json").read_text())
    del passport["files"]["md.cpt"], passport["digest"]
    (folder / "md.cpt").unlink()
    (folder / "manifest.json").write_text(json.dumps({**passport, "digest": data_digest(passport)}))

    with pytest.raises(UnbrokenError, match=r"md\.cpt: missing, and mdrun would silently begin at step 0"):
        gmx_segment(tmp_path, 2, **nvt)


# --- what mdrun says ---


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tpr": "bad.tpr"}, r"gmx dump: Fatal error: Can not read file .*bad\.tpr, .*"),
        (
            {"options": ["-ddorder", "interleave", "-dd", 3, 3, 3]},
            "exit code 1: Fatal error: The -dd or -npme option .*; nothing new was saved",
        ),
    ],
)
def test_an_error_of_gromacs_is_told_in_its_own_words_and_is_no_pause(tmp_path, nvt, settings, words):
    (tmp_path / "bad.tpr").write_text("no tpr\n")

    with pytest.raises(SegmentError, match=words):
        gmx_segment(tmp_path, **{**nvt, **settings})


def test_a_minimisation_is_refused(tmp_path):
    tpr = str(gmx_systems.water() / "em.tpr")

    with pytest.raises(
        SegmentError, match="the tpr has the integrator steep, which mdrun cannot take up again; allowed:"
    ):
        gmx_segment(tmp_path, tpr=tpr)


def test_default_npt_says_what_is_equal_and_is_refused_where_exactness_is_asked_for(tmp_path):
    tpr = str(gmx_systems.water_tpr("npt_default", gmx_systems.NPT, nsteps=400))

    with pytest.raises(
        SegmentError, match=r"settings\.exact: found true, but the tpr has pressure coupling .* allowed:"
    ):
        gmx_segment(tmp_path, tpr=tpr, exact=True)
    record = gmx_segment(tmp_path, 1, 2, tpr=tpr)

    job = gmx_job(tmp_path, tpr=tpr)
    assert "the pieces equal the whole in their statistics, not bit for bit" in job.places.log(1).read_text()
    assert passport_of(record, job)["progress"]["metrics"]["is_exact"] is False


# --- gone wrong ---


def exploding():
    """Water with steps so long that it blows up."""
    values = {**gmx_systems.NVT, **gmx_systems.SHORT_RANGE, "dt": 0.02, "nsteps": 200000}
    return str(gmx_systems.water_tpr("exploding", values, nstlog=10, nstcalcenergy=10, nstenergy=10))


def test_a_simulation_that_blows_up_ends_its_run_at_once_and_is_not_tried_again(tmp_path):
    with pytest.raises(
        DivergedError, match=r"runs\.demo: .*(blow|constraint warnings).* are in .*sick/000001, nothing of them"
    ):
        gmx_segment(tmp_path, tpr=exploding())
    with pytest.raises(StalledError, match=r"runs\.demo: no further attempt is made: "):
        gmx_segment(tmp_path, 1, 2, tpr=exploding())

    job = gmx_job(tmp_path, tpr=exploding())
    assert [attempt.cause for attempt in history(job)] == [EndCause.DIVERGED]
    assert not list(job.places.checkpoints.glob("0*"))
    assert (job.places.root / "sick" / "000001" / "md.part0001.log").is_file()


def test_a_limit_of_the_temperature_is_the_configs_own(tmp_path, nvt):
    with pytest.raises(DivergedError, match=r"Temperature \S+ K at step \d+ is above max_temperature \(250 K\)"):
        gmx_segment(tmp_path, **nvt, max_temperature=250)


# --- the parts ---


def test_pieces_outlive_their_checkpoints_and_are_joined(tmp_path, nvt, whole):
    job = gmx_job(tmp_path, keep=1, **nvt)
    first_piece(tmp_path, keep=1, **nvt)
    gmx_segment(tmp_path, 2, keep=1, **nvt)

    assert len(list(job.places.checkpoints.glob("0*"))) == 1
    assert len(list((job.places.root / "parts").glob("0*"))) >= 2
    assert files_of(job.places.final) == whole
    trajectories = [str(path) for path in sorted(job.places.root.glob("*/0*/parts/*.xtc"))]
    gmx_systems.run(tmp_path, "trjcat", "-f", *trajectories, "-o", "trjcat.xtc")
    assert (tmp_path / "trjcat.xtc").read_bytes() == whole["md.xtc"]


TABLES = {
    "umbrella pulling": (gmx_systems.UMBRELLA, {"md_pullf.xvg", "md_pullx.xvg"}),
    "free energy": (gmx_systems.FREE_ENERGY, {"md.xvg"}),
    "both": ({**gmx_systems.UMBRELLA, **gmx_systems.FREE_ENERGY}, {"md_pullf.xvg", "md_pullx.xvg", "md.xvg"}),
}


@pytest.mark.parametrize("what", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "both")) for kind in TABLES])
def test_tables_of_each_kind_are_joined_by_themselves(tmp_path, what):
    """Forces, positions and dH/dlambda were one table once, one behind the other."""
    values, names = TABLES[what]
    settings = {"tpr": str(gmx_systems.water_tpr(what.replace(" ", "_"), {**gmx_systems.NVT, **values}, nsteps=400))}
    whole = gmx_systems.plain_mdrun(Path(settings["tpr"]), tmp_path / "plain")

    # Whole lists of neighbours: where mdrun itself cuts, too.
    for segment, until_ps in enumerate((0.2, 0.4, 0.8), 1):
        gmx_segment(tmp_path, segment, **settings, exact=True, until_ps=until_ps)

    final = gmx_job(tmp_path, **settings).places.final
    assert {path.name for path in final.glob("*.xvg")} == {path.name for path in whole.glob("*.xvg")} == names
    for name in names:
        assert len(rows_of(whole / name)) == 41
        assert rows_of(final / name) == rows_of(whole / name)
    assert len(history(gmx_job(tmp_path, **settings))) == 3


def test_a_damaged_piece_is_named_and_nothing_is_joined(tmp_path, nvt):
    job = gmx_job(tmp_path, keep=1, **nvt)
    first_piece(tmp_path, keep=1, **nvt)
    piece = next((job.places.root / "parts").glob("*/parts/*.xtc"))
    flip_byte(piece, 100)

    with pytest.raises(UnbrokenError, match=rf"{piece.name}: the content changed since it was published"):
        gmx_segment(tmp_path, 2, keep=1, **nvt)

    assert not job.places.final.exists()


def test_what_others_leave_beside_mdruns_files_is_kept(tmp_path, nvt, whole):
    """As PLUMED does: mdrun's own checkpoint knows nothing of it."""
    program = tmp_path / "gmx_with_colvar"
    program.write_text('#!/bin/sh\ncase "$*" in *mdrun*) cat bias.dat > COLVAR;; esac\nexec gmx "$@"\n')
    program.chmod(0o755)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "bias.dat").write_text("0.5\n")
    job = gmx_job(tmp_path, **nvt)

    gmx_segment(tmp_path, **nvt, gmx=str(program), inputs=["input/bias.dat"])

    assert (job.places.final / "COLVAR").read_text() == "0.5\n"
    assert files_of(job.places.final) == whole
    assert not list(job.places.root.rglob("checkpoints/**/bias.dat"))
    assert not (job.places.final / "bias.dat").exists()


# --- the way in ---


def test_a_run_prepared_by_grompp_is_prepared_once(tmp_path):
    water = gmx_systems.water()
    mdp = gmx_systems.write_mdp(tmp_path / "md.mdp", {**gmx_systems.NVT, "nsteps": 400, "gen-seed": -1})
    sources = {"mdp": mdp.name, "structure": str(water / "conf.gro"), "topology": str(water / "topol.top")}
    run = gmx_run(tmp_path, **sources)

    first = prepare(run, tmp_path).read_bytes()
    mdp.touch()
    again = prepare(run, tmp_path).read_bytes()

    assert first == again
    assert gmx_segment(tmp_path, **sources).kind is EndKind.FINISHED
    mdp.write_text(mdp.read_text().replace("ref-t = 300", "ref-t = 310"))
    with pytest.raises(SegmentError, match=r"topol\.tpr: was made of another mdp; type: rm -rf .*prepared.json"):
        prepare(run, tmp_path)


def test_snakemake_prepares_a_run_simulates_joins_and_draws_it(tmp_path):
    water = gmx_systems.water()
    sources = {"structure": str(water / "conf.gro"), "topology": str(water / "topol.top"), "fixed_rlist_nm": 0.9}
    chain = Chain(tmp_path / "chain", Case("gromacs", {**sources, "mdp": "md.mdp"}, 2, 5, 10, FINAL, {}, 0))
    gmx_systems.write_mdp(chain.folder / "md.mdp", {**gmx_systems.NPT, "nsteps": 1000})
    chain.configure()

    codes = [chain.run(), chain.run("gromacs_reports"), chain.run("gromacs_reports", "--report", "report.html")]

    assert codes == [0, 0, 0], chain.said()
    assert json.loads((chain.results / "prepared.json").read_text())["made_of"].keys() >= {
        "mdp",
        "structure",
        "topology",
    }
    plot = (chain.results / "report" / "energies.svg").read_text()
    assert [word for word in ("Temperature", "Pressure", "Potential") if word not in plot] == []
    assert "all segments" in (chain.results / "report" / "energies.html").read_text()
    assert (chain.folder / "report.html").stat().st_size > 0


def test_grompps_own_words_are_told(tmp_path):
    water = gmx_systems.water()
    (tmp_path / "md.mdp").write_text("integrator = mdd\n")
    sources = {"mdp": "md.mdp", "structure": str(water / "conf.gro"), "topology": str(water / "topol.top")}

    with pytest.raises(SegmentError, match=r"gmx grompp: ERROR 1 .*Invalid enum 'mdd'"):
        prepare(gmx_run(tmp_path, **sources), tmp_path)
    assert not list(tmp_path.glob("results/demo/*"))

    chain = Chain(
        tmp_path / "chain", Case("gromacs", {**sources, "mdp": str(tmp_path / "md.mdp")}, 2, 5, 10, FINAL, {}, 0)
    )
    chain.configure()

    assert chain.run() == 1
    assert "unbroken: runs.case: gmx grompp: ERROR 1 " in chain.said()
    assert "; exit code 1 of: gmx grompp -f " in (chain.folder / "logs" / "case" / "prepare.log").read_text()
    assert not (chain.results / "checkpoints").exists()


@pytest.mark.parametrize("folder", ["", "{tmp_path}/"])
def test_gmx_behind_a_gmxrc_and_a_module_is_found_by_the_child_alone(folder, tmp_path):
    """As on a site where nothing is in the PATH before it is asked for; the GMXRC by its name or by its whole path."""
    (tmp_path / "GMXRC").write_text(
        f'gmx_here() {{ gmx "$@"; }}\nexport PATH="$PATH:{tmp_path}/bin"\nexport ITS_RC=1\n'
    )
    program = tmp_path / "bin" / "my_gmx"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$ITS_RC" = 1 ] || exit 77\nexec gmx "$@"\n')
    program.chmod(0o755)
    tpr = str(gmx_systems.water_tpr("short", nsteps=200))

    record = gmx_segment(tmp_path, tpr=tpr, gmx="my_gmx", gmxrc=f"{folder.format(tmp_path=tmp_path)}GMXRC")

    assert record.kind is EndKind.FINISHED
    assert "ITS_RC" not in os.environ


@pytest.mark.needs("openmpi-bin")
def test_an_mpi_launcher_starts_the_ranks(tmp_path):
    tpr = str(gmx_systems.water_tpr("mpi", nsteps=300))
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "{ranks}"]
    settings = {"tpr": tpr, "gmx": "gmx_mpi", "tools": "gmx", "launcher": launcher, "ranks": 2, "threads": 2}

    record = gmx_segment(tmp_path, **settings)

    job = gmx_job(tmp_path, **settings)
    assert record.kind is EndKind.FINISHED
    assert "Using 2 MPI processes" in (job.places.final / "md.log").read_text()
