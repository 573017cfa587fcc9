"""What the gromacs engine says of settings, and reads in the files of mdrun; recordings where no program is needed."""

import hashlib
import re
import struct
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import gmx_systems
from support.gmx_jobs import gmx_run
from support.needs import require

from unbroken.engines.gromacs.command import maxh, mdrun_command
from unbroken.engines.gromacs.cpt import energy_head, read_cpt, verify_outputs
from unbroken.engines.gromacs.join import counted_pieces
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.pieces import offsets_of, whole_checkpoints
from unbroken.engines.gromacs.replicas import newest_common
from unbroken.engines.gromacs.tool import complaint
from unbroken.engines.gromacs.tpr import Simulation, Tpr, mdp_with_fixed_list, parse_tpr
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.system.copying import copy_head

pytestmark = pytest.mark.xdist_group("gromacs")  # one process, one system

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.fixture
def base(tmp_path):
    for name in ("topol.tpr", "md.mdp", "conf.gro", "topol.top"):
        (tmp_path / name).write_text(name)
    return tmp_path


# --- the settings ---

SOURCES = {"mdp": "md.mdp", "structure": "conf.gro", "topology": "topol.top"}
MISTAKES = [
    ({}, "tpr: is missing; type for example `tpr: topol.tpr`, or mdp, structure and topology for grompp"),
    ({"mdp": "md.mdp"}, "structure: is missing beside `mdp`; grompp needs mdp, structure and topology"),
    (
        {"tpr": "topol.tpr", **SOURCES},
        "mdp: does nothing beside `tpr`; allowed: `tpr` alone, or mdp, structure and topology without it",
    ),
    (
        {"tpr": "topol.tpr", "fixed_rlist_nm": 1},
        "fixed_rlist_nm: does nothing beside `tpr`; allowed: `tpr` alone, or mdp, structure and topology without it",
    ),
    (
        {"tpr": "topol.tpr", "goal": 5, "until_ps": 3},
        "until_ps: found beside `goal`; allowed: one of goal, until_ps and extend_ps",
    ),
    (
        {"tpr": "topol.tpr", "ranks": 2, "threads": 3},
        "ranks: found 2, but threads is 3; allowed: a number that divides 3",
    ),
    (
        {"tpr": "topol.tpr", "ranks": 2, "threads": 2, "gmx": "gmx_mpi"},
        "launcher: is missing: gmx_mpi cannot start 2 ranks of MPI by itself; "
        "type for example gmx: gmx_mpi, and launcher: [mpirun, -np, '{ranks}']",
    ),
    (
        {"tpr": "topol.tpr", "tasks": 2, "threads": 3, "enter": [], "ranks": 4},
        "ranks: found 4, but threads is 3 for each of 2 tasks; allowed: a number that divides 6",
    ),
    (
        {"tpr": "topol.tpr", "tasks": 4, "ranks": 4, "gmx": "gmx_mpi", "launcher": ["srun", "-n", "4"]},
        "launcher: tasks is 4, and srun before everything would start each small tool of gmx as often; "
        "type enter: [] in the run, and launcher: [srun, --mpi=pmix, -n, '{ranks}']",
    ),
    (
        {"tpr": "topol.tpr", "threads": 4, "ranks": 4, "gmx": "gmx_mpi", "launcher": ["srun", "-n", "4"]},
        "launcher: found srun, but tasks is 1: it may wait for ever for the step in which unbroken itself runs; "
        "type tasks: 4, threads for each of them, and enter: [] in the run",
    ),
    (
        {"tpr": "topol.tpr", "options": ["-multidir", "a", "b"]},
        "options: found -multidir; name the tpr of each replica, as replicas: [a/topol.tpr, b/topol.tpr]",
    ),
    *(
        (
            {"tpr": "topol.tpr", "options": [option, 1]},
            f"options: found {option}, which unbroken sets itself; allowed: other options of mdrun",
        )
        for option in ("-maxh", "-px")
    ),
    (
        {"tpr": "topol.tpr", "options": ["-noconfout"]},
        "options: found -noconfout, but by the last structure one knows that mdrun is done; leave it out",
    ),
    ({"tpr": "topol.tpr", "options": ["-nb", "gpu"]}, "options: found -nb; type it as the setting `nb`"),
    (
        {"tpr": "topol.tpr", "gmxrc": "GMXRC"},
        "gmxrc: found 'GMXRC', but there is no such file, allowed: the path of a GMXRC, or leave it out",
    ),
]


@pytest.mark.parametrize(("settings", "line"), MISTAKES, ids=[line.partition(":")[0] for _, line in MISTAKES])
def test_settings_that_do_not_fit_each_other_are_named_before_anything_is_queued(base, settings, line):
    with pytest.raises(ConfigError) as error:
        gmx_run(base, **settings)

    assert error.value.mistakes == [f"runs.demo.settings.{line}"]


def test_the_command_carries_every_setting(base, load_script):
    run = gmx_run(base, tpr="topol.tpr", save_minutes=15, threads=8, ranks=2, nb="gpu", pme_ranks=1, gpu_id="01")
    run.settings["options"] = ("-dlb", "yes", "a b; rm -rf")

    command = load_script("gromacs_segment").build_command(run, base / "topol.tpr", base / "md.cpt", 7128)

    assert command == [
        *("gmx", "-quiet", "mdrun", "-s", str(base / "topol.tpr"), "-cpi", str(base / "md.cpt"), "-cpo", "md.cpt"),
        *(
            "-deffnm",
            "md",
            "-noappend",
            "-px",
            "md_pullx.xvg",
            "-pf",
            "md_pullf.xvg",
            "-ro",
            "md_rotation.xvg",
            "-ra",
            "md_rotangles.log",
            "-rs",
            "md_rotslabs.log",
        ),
        *("-rt", "md_rottorque.log", "-swap", "md_swapions.xvg", "-eo", "md_edsam.xvg", "-if", "md_imdforces.xvg"),
        *("-maxh", "2.000000000", "-cpt", "15", "-ntmpi", "2", "-ntomp", "4"),
        *("-nb", "gpu", "-gpu_id", "01", "-npme", "1", "-dlb", "yes", "a b; rm -rf"),
    ]


def test_a_launcher_stands_before_the_program_and_says_the_ranks_itself(base):
    launcher = ["srun", "--mpi=pmix", "-n", "{ranks}", "-c", "{threads}"]
    run = gmx_run(base, tpr="topol.tpr", gmx="gmx_mpi", tasks=4, threads=2, enter=[], ranks=4, launcher=launcher)

    command = mdrun_command(run, base / "topol.tpr", None, 60)

    assert command[:8] == ["srun", "--mpi=pmix", "-n", "4", "-c", "2", "gmx_mpi", "-quiet"]
    assert "-ntmpi" not in command
    assert "-cpi" not in command


def test_a_gmxrc_is_sourced_and_the_command_stays_its_arguments(base):
    (base / "GMXRC").touch()
    run = gmx_run(base, tpr="topol.tpr", gmxrc="GMXRC")

    command = mdrun_command(run, base / "topol.tpr", None, 60, base)

    rc = str(base / "GMXRC")  # it is started in a folder of its own
    assert command[:6] == ["bash", "-c", 'source "$1" && shift && exec "$@"', "unbroken", rc, "gmx"]


def test_a_program_and_a_launcher_by_their_paths_are_found_from_mdruns_own_folder(base):
    run = gmx_run(base, tpr="topol.tpr", gmx="bin/gmx_mpi", launcher=["./start", "bin/word"])

    command = mdrun_command(run, base / "topol.tpr", None, 60, base)

    assert command[:3] == [str(base / "start"), "bin/word", str(base / "bin/gmx_mpi")]


@pytest.mark.parametrize("seconds", [0, -1, -1e9, 1e-9])
def test_the_limit_of_hours_is_never_zero(seconds):
    assert float(f"{maxh(seconds):.9f}") > 0


def test_the_limit_of_hours_makes_up_for_the_share_that_mdrun_leaves(base):
    assert maxh(3600) * 0.99 == pytest.approx(1)


# --- the tpr ---

TPR = Tpr("md", 8000, 0, 0.002, 0.0, "No", 0.005, list_steps=10, atoms=663)


@pytest.mark.parametrize(
    ("wishes", "step"),
    [
        ((None, None, None), 8000),
        ((500, None, None), 500),
        ((None, 17, None), 8500),
        ((None, 17.001, None), 8501),
        ((None, None, 1.5), 8750),
        ((None, None, 0), 8000),
    ],
)
def test_the_last_step_is_what_the_settings_say(wishes, step):
    assert TPR.end_step(*wishes) == step


def test_a_tpr_that_begins_later_counts_its_own_steps():
    later = Tpr("md", 1000, 500, 0.002, 1.0, "No", 0.005)

    assert (later.last_step, later.time_ps(1500), later.step_at(2.0)) == (1500, 3.0, 1000)


def test_a_tpr_without_end_has_no_last_step():
    assert Tpr("md", -1, 0, 0.002, 0.0, "No", 0.005).end_step(None, None, None) is None


@pytest.mark.parametrize(
    ("coupling", "tolerance", "claim"),
    [("No", 0.005, True), ("no", 0.005, True), ("C-rescale", 0.005, False), ("Parrinello-Rahman", -1, True)],
)
def test_only_a_pair_list_that_follows_the_box_is_inexact(coupling, tolerance, claim):
    assert Tpr("md", 1, 0, 0.002, 0.0, coupling, tolerance).is_exact is claim


def test_a_tpr_without_its_parameters_is_named():
    with pytest.raises(SegmentError, match=r"the tpr cannot be read: `gmx dump -s` prints no good 'nsteps'"):
        parse_tpr(["   integrator                     = md"])


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_a_real_tpr_is_read(base):
    tpr = gmx_systems.water_tpr("read", nsteps=8000)

    assert Simulation(gmx_run(base, tpr=str(tpr)), base).tpr == TPR


def test_a_fixed_pair_list_replaces_what_the_mdp_says_of_it():
    text = "nstlist = 10\nVerlet_Buffer_Tolerance = 0.005 ; default\nrlist = 1\nrvdw = 0.9"

    assert mdp_with_fixed_list(text, 1.1) == "nstlist = 10\nrvdw = 0.9\nverlet-buffer-tolerance = -1\nrlist = 1.1\n"
    assert mdp_with_fixed_list("rvdw = 0.9", 1).endswith("nstlist = 20\n")


# --- the checkpoint file ---


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a real mdrun that saved several times and stopped in time."""
    require("gromacs")
    folder = tmp_path_factory.mktemp("stopped")
    words = ("-deffnm", "md", "-noappend", "-cpo", "md.cpt", "-maxh", 0.0003, "-cpt", 0.002, "-ntmpi", 1, "-ntomp", 1)
    gmx_systems.run(folder, "mdrun", "-s", gmx_systems.water_tpr("endless", nsteps=1_000_000), *words)
    return folder


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_a_checkpoint_file_says_what_gmx_dump_says(stopped):
    cpt = read_cpt(stopped / "md.cpt")
    text = gmx_systems.run(stopped, "dump", "-cp", "md.cpt").stdout

    def said(name):
        return re.findall(rf"^{re.escape(name)} = (.*)$", text, re.MULTILINE)

    assert [str(cpt.step)] == said("step")
    assert [f"{cpt.time_ps:f}"] == said("t")
    assert [str(cpt.part), str(cpt.atoms), cpt.program] == [
        said("simulation part #")[0],
        said("#atoms")[0],
        said("GROMACS version")[0],
    ]
    assert [each.name for each in cpt.outputs] == said("output filename")
    assert [str(each.size_bytes) for each in cpt.outputs] == said("file_offset_low")
    assert [each.md5 for each in cpt.outputs] == said("file_checksum")
    verify_outputs(cpt, stopped)


@pytest.mark.process
@pytest.mark.needs("gromacs")
@pytest.mark.parametrize("kept", [0, 1, 4, 50, 100, 150, 1000, -400, -4, -1])
def test_a_torn_checkpoint_file_is_refused(stopped, tmp_path, kept):
    torn = tmp_path / "md.cpt"
    torn.write_bytes((stopped / "md.cpt").read_bytes()[:kept])

    with pytest.raises(CheckpointError, match=r"md\.cpt: torn, or not a checkpoint of GROMACS"):
        read_cpt(torn)


@pytest.mark.parametrize(("number", "step"), [(0, 9400), (1, 10200)])
def test_a_recorded_checkpoint_counts_the_bytes_that_were_noted_next_to_it(tmp_path, number, step):
    with tarfile.open(Path(__file__).parents[1] / "recorded" / "gromacs.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    folder = sorted((tmp_path / "results" / "count" / "checkpoints").glob("0*"))[number]

    cpt = read_cpt(folder / "md.cpt")

    assert cpt.step == step
    assert {output.name: output.size_bytes for output in cpt.outputs} == offsets_of(folder / "parts")


def test_a_checkpoint_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"md\.cpt: No such file"):
        read_cpt(tmp_path / "md.cpt")


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_pieces_that_are_shorter_than_the_checkpoint_counts_are_refused(stopped, tmp_path):
    cpt = read_cpt(stopped / "md.cpt")
    for output in cpt.outputs:
        copy_head(stopped / output.name, tmp_path / output.name, output.size_bytes - 1)

    with pytest.raises(CheckpointError, match=r"bytes, md\.cpt needs \d+"):
        verify_outputs(cpt, tmp_path)
    with pytest.raises(CheckpointError, match=r"\d+ bytes, \d+ are needed"):
        copy_head(tmp_path / output.name, tmp_path / "x", output.size_bytes)


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_a_structure_alone_is_no_proof_of_the_end(stopped, tmp_path):
    cpt = read_cpt(stopped / "md.cpt")
    structure = stopped / "md.part0001.gro"

    def end(goal, is_over):
        left = SimpleNamespace(cpts=whole_checkpoints(stopped), begun=-1, is_over=is_over)
        return newest_common([left], goal, None)

    without = end(cpt.step, is_over=True)
    structure.touch()
    ends = [end(10**6, is_over=True), end(cpt.step, is_over=False)]
    at_end = end(cpt.step, is_over=True)
    structure.unlink()

    assert [each.is_final for each in (without, *ends, at_end)] == [False, False, False, True]
    assert [each.cpts[0].step for each in ends] == [cpt.step, read_cpt(stopped / "md_prev.cpt").step]


# --- the energy file ---


@pytest.mark.process
@pytest.mark.needs("gromacs")
def test_the_head_of_an_energy_file_ends_where_its_first_frame_begins(stopped):
    energies = stopped / "md.part0001.edr"

    names, head_bytes = energy_head(energies)

    assert names[-1] == "Lamb-System"
    assert energies.read_bytes()[head_bytes:].startswith(struct.pack(">fi", -2e10, -7777777))


def test_a_file_that_is_no_energy_file_is_named(tmp_path):
    (tmp_path / "md.edr").write_bytes(b"\x00" * 100)

    with pytest.raises(CheckpointError, match=r"md\.edr: not an energy file \(begins with 0\)"):
        energy_head(tmp_path / "md.edr")


def test_a_line_without_checkpoints_has_no_pieces():
    assert counted_pieces([]) == []


# --- the log: three recordings ---


def read(name):
    log = Log(RECORDINGS / f"gromacs_{name}.log")
    log.read()
    return log


def test_a_finished_run_is_read():
    log = read("finished")

    assert (log.step, log.time_ps, log.has_finished, log.leaving_at) == (8000, 16.0, True, None)
    assert log.energies["Temperature"] == "3.04755e+02"
    assert log.divergence(5000, 50) == ""


def test_a_run_that_stopped_in_time_is_read():
    log = read("stopped")

    assert log.has_finished
    assert log.leaving_at is not None
    assert log.step is not None and log.step < 1_000_000


def test_a_crashed_run_is_read():
    log = read("crashed")

    assert not log.has_finished
    assert log.constraint_warnings or log.divergence(5000, 0)


def test_a_log_is_read_on_from_where_it_was(tmp_path):
    text = (RECORDINGS / "gromacs_finished.log").read_bytes()
    growing = tmp_path / "md.log"
    log, steps = Log(growing), []
    for end in range(0, len(text) + 997, 997):
        growing.write_bytes(text[:end])
        log.read()
        steps.append(log.step)

    assert steps[0] is None
    assert steps[-1] == 8000
    assert hashlib.md5(text).hexdigest() == hashlib.md5(growing.read_bytes()).hexdigest()
    assert log.energies == read("finished").energies


@pytest.mark.parametrize(
    ("energies", "warnings", "words"),
    [
        ({"Potential": "nan"}, 0, "Potential is nan at step 7: the simulation has blown up"),
        ({"Pressure (bar)": "-inf"}, 0, "Pressure (bar) is -inf at step 7"),
        ({"Temperature": "5.00100e+03"}, 0, "Temperature 5001 K at step 7 is above max_temperature (5000 K)"),
        ({"Temperature": "4.99900e+03"}, 50, ""),
        (
            {},
            51,
            "51 constraint warnings (max_constraint_warnings 50), the last: Step 50, time 0.1 (ps)  LINCS WARNING",
        ),
    ],
)
def test_what_has_gone_wrong_is_said_with_the_line_from_the_log(tmp_path, energies, warnings, words):
    log = Log(tmp_path / "none")
    log.step, log.energies = 7, energies
    log.constraint_warnings = [f"Step {number}, time 0.1 (ps)  LINCS WARNING" for number in range(warnings)]

    said = log.divergence(5000, 50)

    assert said.startswith(words)
    assert bool(said) == bool(words)
    assert log.divergence(None, None) == (said if "blown" in said else "")


def test_the_complaint_of_a_tool_is_one_line():
    lines = ["...", "Fatal error:", "Atomtype XX", "not found", "", "For more information"]

    grompp = ["ERROR 1 [file md.mdp, line 2]:", "  Invalid enum 'mdd'", "", "Fatal error:", "There was 1 error", ""]

    assert complaint(lines) == "Fatal error: Atomtype XX not found"
    assert complaint(grompp) == "ERROR 1 [file md.mdp, line 2]: Invalid enum 'mdd'"
    assert complaint(["", "last words", ""]) == "last line: last words"
    assert complaint([]) == "it said nothing"
