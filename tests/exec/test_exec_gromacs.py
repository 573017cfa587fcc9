import filecmp
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.gmx_systems import plain_mdrun, water_tpr

from unbroken.engines.gromacs.mdrun_line import MdrunLine
from unbroken.system import fs

STEPS = 10_000
RESULTS = ("prod.xtc", "prod.trr", "prod.gro")
MDRUN = ("gmx", "mdrun", "-s", "topol.tpr", "-deffnm", "prod", "-ntmpi", "1", "-ntomp", "1", "-reprod")
# Where nothing has to be met on its way.
SHORT = (*MDRUN, "-nsteps", "1000")
HERE = ("gmx", "mdrun", "-s", "here.tpr")
needs_gmx = pytest.mark.needs("gromacs")
# One process makes the water, and the mdrun that all are compared with.
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("called-mdrun")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """One uninterrupted mdrun."""
    return plain_mdrun(water_tpr("called", nsteps=STEPS), tmp_path_factory.mktemp("whole") / "plain")


@pytest.fixture
def tpr(called) -> Path:
    path = called.folder / "topol.tpr"
    path.write_bytes(water_tpr("called", nsteps=STEPS).read_bytes())
    return path


def words(*options: str, mdrun: tuple[str, ...] = MDRUN) -> list[str]:
    return [sys.executable, "-m", "unbroken", "exec", "--engine", "gromacs", *options, "--", *mdrun]


def call(called, *options: str, mdrun: tuple[str, ...] = MDRUN) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(*options, mdrun=mdrun), cwd=called.folder, text=True, capture_output=True, stdin=-3, timeout=600
    )


def pause(called, *options: str) -> None:
    """A segment of some steps, ended by a signal."""
    process = subprocess.Popen(
        words(*options, "--save-minutes", "0.002"), cwd=called.folder, stdout=-3, stderr=-3, stdin=-3
    )
    called.started.append(process)
    try:
        called.wait_until(lambda: list(store(called).glob("work/*/mdrun/md.cpt")))
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 85


def store(called) -> Path:
    return called.folder / ".unbroken/prod"


def same_as(whole: Path, called) -> list[str]:
    """The results that are those of one uninterrupted mdrun, byte for byte."""
    return [
        name for name in RESULTS if filecmp.cmp(called.folder / name, whole / name.replace("prod", "md"), shallow=False)
    ]


@needs_gmx
def test_mdrun_in_pieces_leaves_what_one_uninterrupted_mdrun_leaves(called, tpr, whole):
    pause(called)
    done = call(called, "--outputs", "prod.gro", "prod.xtc")

    assert done.returncode == 0, done.stderr
    assert same_as(whole, called) == list(RESULTS)
    assert (called.folder / "prod.cpt").exists()
    assert (called.folder / "prod.edr").exists()
    assert (called.folder / "prod.log").read_text().count("Started mdrun") == 2
    assert "resuming from" in done.stderr


@needs_gmx
def test_results_that_are_gone_or_spoilt_are_put_back_and_nothing_is_computed(called, tpr):
    assert call(called, mdrun=SHORT).returncode == 0
    first = {name: (called.folder / name).read_bytes() for name in RESULTS}
    (called.folder / "prod.gro").unlink()
    (called.folder / "prod.xtc").write_text("spoilt")

    again = call(called, mdrun=SHORT)

    assert again.returncode == 0
    assert "nothing is computed; put back: prod.gro, prod.xtc" in again.stderr
    assert {name: (called.folder / name).read_bytes() for name in RESULTS} == first
    assert len((store(called) / "history.jsonl").read_text().splitlines()) == 1
    assert [path.read_text() for path in store(called).glob("replaced/*/prod.xtc")] == ["spoilt"]
    assert "its results are in place" in call(called, mdrun=SHORT).stderr


@needs_gmx
def test_what_stood_under_the_name_of_a_result_is_set_aside(called, tpr):
    (called.folder / "prod.gro").write_text("of last year")

    assert call(called, "--outputs", "./prod.gro", mdrun=SHORT).returncode == 0

    assert [path.read_text() for path in store(called).glob("replaced/*/prod.gro")] == ["of last year"]


@needs_gmx
def test_more_steps_make_a_finished_simulation_go_on(called, tpr):
    assert call(called, mdrun=SHORT).returncode == 0
    longer = call(called, mdrun=(*MDRUN, "-nsteps", "1500"))

    assert longer.returncode == 0, longer.stderr
    assert "resuming from" in longer.stderr
    assert "segment 2: finished: 1500 steps" in longer.stderr
    assert not (store(called) / "replaced").exists()


@pytest.mark.slow
@needs_gmx
def test_another_tpr_of_the_same_name_is_refused_until_somebody_says_what_it_is(called, tpr):
    pause(called)
    steps = ("convert-tpr", "-s", "topol.tpr", "-nsteps", str(STEPS + 1000), "-o", "longer.tpr")
    subprocess.run(["gmx", "-quiet", *steps], cwd=called.folder, check=True, capture_output=True)
    (called.folder / "longer.tpr").rename(tpr)

    refused = call(called)
    accepted = subprocess.run([sys.executable, "-m", "unbroken", "accept", "prod"], cwd=called.folder)
    done = call(called)

    assert refused.returncode == 1
    assert "type: unbroken accept prod" in refused.stderr
    assert (accepted.returncode, done.returncode) == (0, 0)
    assert "resuming from" in done.stderr
    assert f"finished: {STEPS + 1000} steps" in done.stderr


@needs_gmx
def test_a_killed_call_loses_no_more_than_what_mdrun_had_not_saved(called, tpr, whole):
    process = subprocess.Popen(
        words("--save-minutes", "0.002"), cwd=called.folder, stdout=-3, stderr=-3, stdin=-3, start_new_session=True
    )
    called.started.append(process)
    called.wait_until(lambda: list(store(called).glob("work/*/mdrun/md.cpt")))
    process.kill()
    process.wait()

    done = call(called)

    assert done.returncode == 0, done.stderr
    assert "saved from the killed attempt 1" in done.stderr
    assert same_as(whole, called) == list(RESULTS)


@pytest.mark.slow
@needs_gmx
def test_a_call_that_was_killed_while_it_put_the_results_in_place_is_finished_by_the_next(called, tpr):
    """As it is left then: some of them there, a draft, no note."""
    assert call(called, mdrun=SHORT).returncode == 0
    whole = (called.folder / "prod.xtc").read_bytes()
    noted = json.loads((store(called) / "exec.json").read_text())
    (store(called) / "exec.json").write_text(json.dumps({**noted, "placed": None}))
    (called.folder / "prod.xtc").unlink()
    (store(called) / fs.unique_name("final")).mkdir()

    again = call(called, mdrun=SHORT)

    assert "nothing is computed; put back: prod.xtc" in again.stderr
    assert (called.folder / "prod.xtc").read_bytes() == whole
    assert not list(store(called).glob(".final*"))
    assert not (store(called) / "replaced").exists()


@needs_gmx
def test_an_output_that_mdrun_does_not_make_is_named(called, tpr):
    done = call(called, "--outputs", "prod.pdb", mdrun=SHORT)

    assert done.returncode == 1
    assert "--outputs: prod.pdb is none of the results; these are: prod.cpt, prod.edr, prod.gro" in done.stderr


@pytest.mark.parametrize(
    ("mdrun", "said"),
    [
        (("python", "train.py"), "found python train.py, allowed: [LAUNCHER] gmx mdrun"),
        ((*HERE, "-cpi", "state.cpt"), "found -cpi, which unbroken sets itself; allowed: other options of mdrun"),
        ((*HERE, "-maxh", "8"), "found -maxh"),
        ((*HERE, "-noconfout"), "found -noconfout"),
        ((*HERE, "-multidir", "a"), "found -multidir"),
        (("gmx", "mdrun", "-c", "out.pdb"), "-c: found out.pdb, allowed: a name that ends with .gro"),
        (("gmx", "mdrun", "-nsteps", "-1"), "-nsteps: found '-1', allowed: a whole number"),
        (("gmx", "mdrun", "-deffnm"), "-deffnm: found nothing behind it"),
        (("gmx", "mdrun", "-s", "none.tpr"), "settings.tpr: found 'none.tpr', but there is no such file"),
    ],
)
def test_a_command_line_that_cannot_go_on_is_refused_in_one_line(called, mdrun, said):
    (called.folder / "here.tpr").touch()

    done = call(called, mdrun=mdrun)

    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if said in line]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_the_words_of_mdrun_become_settings():
    program = "mpirun -np 4 gmx_mpi -quiet mdrun -s md.tpr -x traj -ntomp 2 -nb gpu -npme 1 -table table.xvg -dlb yes"

    line = MdrunLine(program.split())
    settings = line.settings()

    assert line.threads == 2
    assert line.launcher == ["mpirun", "-np", "4"]
    assert settings["gmx"] == "gmx_mpi"
    assert line.rest() == ["-table", "table.xvg", "-dlb", "yes"]
    assert (settings["nb"], settings["pme_ranks"]) == ("gpu", 1)
    names = ("md.xtc", "md.gro", "md.cpt", "md_pullx.xvg", "COLVAR")
    assert [line.result(name) for name in names] == ["traj.xtc", "confout.gro", "state.cpt", "pullx.xvg", "COLVAR"]


@pytest.mark.parametrize("open_end", [("-nsteps", "-2"), ("-npme", "-1"), ("-nt", "0"), ("-ntmpi", "0")])
def test_what_leaves_it_to_mdrun_is_left_to_mdrun(open_end):
    left, plain = (MdrunLine(["gmx", "mdrun", *words]) for words in (open_end, ()))

    assert (left.settings(), left.threads) == (plain.settings(), plain.threads)


@pytest.mark.parametrize(
    ("options", "tpr"),
    [("", "topol.tpr"), ("-deffnm md", "md.tpr"), ("-deffnm a/md.1", "a/md.1.tpr"), ("-s in -deffnm md", "in.tpr")],
)
def test_the_tpr_is_the_one_that_mdrun_reads(options, tpr):
    assert MdrunLine(["gmx", "mdrun", *options.split()]).tpr == tpr
