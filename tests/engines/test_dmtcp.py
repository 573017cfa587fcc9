"""The DMTCP engine: its case for the conformance suite, its command, and wrong settings with their messages."""

import sys
from pathlib import Path

import pytest
from engines.conformance import ROOT, Case
from support.dmtcp_here import PROGRAMS

from unbroken.engines.base import Task
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.dmtcp.protocol import read_options
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.program.contract import AttemptFolder

COMMAND = [sys.executable, "orbit.py", 1000, 0.01]

CASE = Case(
    engine="dmtcp",
    settings={"command": COMMAND, "inputs": ["orbit.py"], "dmtcp": str(PROGRAMS)},
    segments=5,
    segment_minutes=0.15,
    save_minutes=0.02,
    final_files=("orbit.csv", "output.txt"),
    other_settings={"command": [sys.executable, "orbit.py", 1001, 0.01]},
    further_goal=None,
    files=(ROOT / "examples" / "dmtcp" / "orbit.py",),
    whole_settings={"command": [sys.executable, "orbit.py", 1000, 0]},
    kills=3,
)


def dmtcp_run(base, run_keys=(), **settings):
    settings = {"command": ["true"], "dmtcp": str(PROGRAMS), **settings}
    run = {"engine": "dmtcp", "segments": 1, "segment_minutes": 1, "settings": settings, **dict(run_keys)}
    return read_checked_runs({"runs": {"demo": run}}, base)[0]


def test_the_command_is_the_supervisor_with_every_setting(load_script):
    run = dmtcp_run(
        ROOT,
        command=["./simulate", "-n", 5],
        inputs=["README.md"],
        options=["--with-plugin", "x.so"],
        compress=True,
        restart_seconds=90,
        machine_may_differ=True,
    )

    command = load_script("dmtcp_segment").build_command(run, ROOT)

    assert command == [
        *(sys.executable, "-I", "-m", "unbroken.engines.dmtcp.supervisor"),
        *("--live", f"{ROOT}/results/demo/live", "--input", f"{ROOT}/README.md", "--programs", str(PROGRAMS)),
        *("--option=--with-plugin", "--option=x.so", "--restart-seconds", "90", "--compress", "--machine-may-differ"),
        *("--", "./simulate", "-n", "5"),
    ]


def test_the_folder_of_dmtcp_may_be_named_from_the_working_directory(tmp_path, load_script, monkeypatch):
    (tmp_path / "tools").symlink_to(PROGRAMS)
    run = dmtcp_run(tmp_path, dmtcp="tools")
    monkeypatch.chdir(tmp_path)

    words = load_script("dmtcp_segment").build_command(run, Path())

    assert read_options(words[4:]).programs.folder == str(tmp_path / "tools")


def test_programs_with_hwloc_can_be_saved_unless_the_user_says_otherwise(tmp_path, monkeypatch):
    task = Task(dmtcp_run(tmp_path), 1, None, AttemptFolder(tmp_path / "desk"), 0.0)
    plain = DmtcpEngine(tmp_path).environment(task)["HWLOC_COMPONENTS"]
    monkeypatch.setenv("HWLOC_COMPONENTS", "-gl")

    assert plain == "-linuxio"
    assert DmtcpEngine(tmp_path).environment(task)["HWLOC_COMPONENTS"] == "-gl"


WRONG = [
    ({"command": []}, "command: found an empty list; type the program and its arguments, such as [python3, "),
    (
        {"command": ["mpirun", "-np", 4, "x"]},
        "command: found mpirun; DMTCP alone does not save MPI over a fast network; use MANA, DMTCP's extension for MPI "
        "(https://github.com/mpickpt/mana), or type `mpi_allowed: true` if the ranks talk over TCP or shared memory",
    ),
    ({"command": ["/opt/bin/srun", "x"]}, "command: found /opt/bin/srun; DMTCP alone does not save MPI"),
    ({"command": ["ibrun", "x"]}, "command: found ibrun; DMTCP alone does not save MPI"),
    (
        {"command": ["python3", "simulate.py"]},
        "command: names simulate.py, but the program runs in a folder of its own; type `inputs: [simulate.py]`, by "
        "which it is to be found there as simulate.py",
    ),
    (
        {"command": ["python3", "code/simulate.py"], "inputs": ["code/simulate.py"]},
        "command: names code/simulate.py, but the program runs in a folder of its own; type `inputs: "
        "[code/simulate.py]`, by which it is to be found there as simulate.py, and simulate.py in the command",
    ),
    (
        {"inputs": ["simulate.py", "code/simulate.py"]},
        "inputs: found simulate.py and code/simulate.py, both to be seen as simulate.py; rename one of them",
    ),
    (
        {"options": ["--ckptdir=/tmp"]},
        "options: found --ckptdir=/tmp, which unbroken sets itself; allowed: other options of dmtcp_launch",
    ),
    (
        {"dmtcp": "code"},
        "dmtcp: found 'code', but there is no dmtcp_launch in it; allowed: the folder of DMTCP's programs",
    ),
]


@pytest.mark.parametrize(("settings", "line"), WRONG, ids=[next(reversed(settings)) for settings, _ in WRONG])
def test_wrong_settings_are_refused_with_one_line_each(tmp_path, settings, line):
    (tmp_path / "code").mkdir()
    for name in ("simulate.py", "code/simulate.py"):
        (tmp_path / name).write_text("print()\n")

    with pytest.raises(ConfigError) as error:
        dmtcp_run(tmp_path, **settings)

    (mistake,) = error.value.mistakes
    assert mistake.startswith(f"runs.demo.settings.{line}")


def test_several_tasks_are_refused_with_a_pointer_to_mana(tmp_path):
    with pytest.raises(ConfigError) as error:
        dmtcp_run(tmp_path, {"tasks": 4})

    assert error.value.mistakes == [
        "runs.demo.settings.command: the run has 4 tasks; DMTCP alone does not save MPI over a fast network; use MANA, "
        "DMTCP's extension for MPI (https://github.com/mpickpt/mana), or type `mpi_allowed: true`"
    ]


def test_mpi_is_allowed_where_the_user_says_so(tmp_path):
    assert dmtcp_run(tmp_path, {"tasks": 4}, command=["mpirun", "x"], mpi_allowed=True).resources.tasks == 4


def test_a_word_of_the_command_may_be_longer_than_any_path(tmp_path):
    words = ["python3", "-c", "print()\n" * 1000]

    assert dmtcp_run(tmp_path, command=words).settings["command"] == tuple(words)
