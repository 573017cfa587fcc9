"""Recognize the launch line: wrappers, what starts the tasks, and the program."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePath

from unbroken.config.tasks import is_launcher
from unbroken.convert.script import Command, Script, Statement
from unbroken.engines.dmtcp.checks import VALUED_OPTIONS
from unbroken.engines.gromacs.mdrun_line import MdrunLine


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They print, ask, wait, or set how bash behaves; where they write no file, a config needs none of it.
QUIET = _names(
    """
    : [ awk basename break cat clear continue cut date df diff dirname du echo exit false free getopts grep head
    hostname id kill ls lsb_release lscpu nvidia-smi printenv printf pwd read readlink realpath return sacct scancel
    scontrol seq set shift sinfo sleep sort squeue stat tail test tr trap true type uname uniq uptime wait wc which
    dmtcp_coordinator dmtcp_command start_coordinator
    """
)
_NO_PROGRAM = _names(
    """
    sbatch source . cd pushd popd module ml conda mamba micromamba spack pip pip3 virtualenv git make cmake gcc g++
    gfortran curl wget chmod cp gunzip gzip ln mkdir mv rsync scp tar touch unzip rm rmdir pkill eval mapfile sed tee
    find jobs export declare typeset readonly local let unset shopt ulimit umask deactivate env nvcc mpicc perl xargs
    """
)
# Options of launchers whose value is the next word [srun(1), mpirun(1) of Open MPI, mpiexec.hydra(1)].
_VALUED = {
    *("-n", "-N", "-c", "-p", "-t", "-J", "-A", "-w", "-x", "-m", "-q", "-G", "-C", "-np", "-o", "-e", "-i"),
    *("--ntasks", "--nodes", "--cpus-per-task", "--ntasks-per-node", "--mem", "--gres", "--gpus", "--mpi"),
    *("--map-by", "--bind-to", "--rank-by", "-npernode", "--npernode", "-hostfile", "--hostfile", "-machinefile"),
    *("-host", "--host", "-ppn", "-rf", "--rankfile", "-wdir", "--cpu-bind", "--distribution", "--output", "--error"),
    *("--gpus-per-task", "--gpus-per-node", "--job-name", "--export", "--hint", "--time", "--kill-on-bad-exit"),
}
_TWO_VALUES = {"-mca", "--mca", "-genv", "-env", "--gmca"}
_WRAPPERS = {
    "timeout": ("-s", "--signal", "-k", "--kill-after"),
    "nice": ("-n",),
    **dict.fromkeys(("time", "nohup", "exec", "command", "setsid"), ()),
}
_GMX = re.compile(r"gmx(_mpi)?(_d)?")


@dataclass
class Launch:
    """A command that starts a program: `first` is the word before which `unbroken exec` stands."""

    command: Command
    words: list[str]
    first: int = 0
    launcher: list[str] = field(default_factory=list)
    timeout: int | None = None  # the place of `timeout` in the script

    @property
    def program(self) -> str:
        """Return the last part of the program's path."""
        return PurePath(self.words[0].strip("'\"")).name if self.words else ""

    @property
    def mdrun(self) -> MdrunLine | None:
        """Return the command line of GROMACS's mdrun; None if it is another program."""
        found = MdrunLine(self.words) if "mdrun" in self.words[1:] else None
        return found if found and _GMX.fullmatch(PurePath(found.gmx).name) else None

    @property
    def engine(self) -> str:
        """Return the engine that is made for the program: gromacs or dmtcp; else nothing."""
        return "dmtcp" if self.program == "dmtcp_launch" else "gromacs" if self.mdrun else ""


def launch_of(command: Command) -> Launch | None:
    """Return the launch that a command is; None if it starts no program that may take long."""
    found = Launch(command, [word.text for word in command.words])
    while found.words and (found.program in _WRAPPERS or (is_launcher(found.program) and not found.launcher)):
        if is_launcher(found.program):
            count = _options(found.words, _VALUED)
            found.launcher = found.words[:count]
        else:
            count = _options(found.words, _WRAPPERS[found.program]) + (found.program == "timeout")
            found.timeout = command.words[found.first].start if found.program == "timeout" else found.timeout
            found.first += count
        found.words = found.words[count:]
    name = found.program
    is_test = " ".join(found.words).startswith(("[[", "(("))
    is_none = name in QUIET | _NO_PROGRAM or is_test or "dmtcp_restart" in name
    is_head = command.lead[-1:] in (["for"], ["case"], ["select"], ["function"])
    return None if is_none or is_head or not name or (_GMX.fullmatch(name) and not found.mdrun) else found


def _options(words: list[str], valued: Collection[str]) -> int:
    """Return how many words the first one and its options are."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 3 if words[at] in _TWO_VALUES else 2 if words[at] in valued else 1
    return at


def dmtcp_options(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options of `dmtcp_launch` with their values, and the program after them."""
    options, at = list[tuple[str, str]](), 1
    while at < len(words) and words[at].startswith("-"):
        name, mark, value = words[at].partition("=")
        has_next = name in VALUED_OPTIONS and not mark
        options.append((name, words[at + 1] if has_next else value))
        at += 2 if has_next else 1
    return options, words[at:]


def all_launches(statements: list[Statement]) -> list[tuple[int, Launch]]:
    """Return all launches of a script, each with the place of its statement."""
    functions = {each.commands[0].name for each in statements if each.kind == "function"}
    return [
        (at, launch)
        for at, statement in enumerate(statements)
        for command in statement.commands
        if command.name not in functions and (launch := launch_of(command)) is not None
    ]


def long_commands(statements: list[Statement]) -> list[tuple[int, Launch]]:
    """Return the launches of the statement with the long command, with its place.

    It is the last one for an engine, else the last one of srun and mpirun, else the last one.
    """
    found = all_launches(statements)
    best = [each for each in found if each[1].engine] or [each for each in found if each[1].launcher] or found
    return [each for each in found if each[0] == best[-1][0]] if best else []


def is_resubmission(script: Script, command: Command) -> bool:
    """Return True if a command puts the script, or its job, into the queue again."""
    texts = [word.text.strip("\"'") for word in command.words]
    own = ("$0", script.name, f"./{script.name}")
    return texts[:2] == ["scontrol", "requeue"] or (texts[:1] == ["sbatch"] and any(text in own for text in texts))
