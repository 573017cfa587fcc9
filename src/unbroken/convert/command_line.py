"""The program's command line, taken apart: wrappers, what starts its tasks, its container, and the program itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from unbroken.config.tasks import is_launcher
from unbroken.convert.words import Word

_CONTAINERS = {"apptainer", "singularity"}
# Options of launchers whose value stands in the next word [srun(1), mpirun(1) of Open MPI, mpiexec.hydra(1)].
_VALUED = {
    *("-n", "-N", "-c", "-p", "-t", "-J", "-A", "-w", "-x", "-m", "-q", "-G", "-C", "-np", "-o", "-e", "-i"),
    *("--ntasks", "--nodes", "--cpus-per-task", "--ntasks-per-node", "--mem", "--gres", "--gpus", "--mpi"),
    *("--map-by", "--bind-to", "--rank-by", "-npernode", "--npernode", "-hostfile", "--hostfile", "-machinefile"),
    *("-host", "--host", "-ppn", "-rf", "--rankfile", "-wdir", "--cpu-bind", "--distribution", "--output", "--error"),
    *("--gpus-per-task", "--gpus-per-node", "--job-name", "--export", "--hint", "--time", "--kill-on-bad-exit"),
}
_TWO_VALUES = {"-mca", "--mca", "-genv", "-env", "--gmca"}
_OF_CONTAINER = {"--bind", "-B", "--pwd", "--env", "--home", "-H", "--overlay", "--workdir", "-W", "--env-file", "-o"}
# They change how a program is started and nothing that a config has to say.
_PLAIN = {"time", "nohup", "exec", "command", "setsid", "catchsegv", "unbuffer"}
_WITH_VALUE = {"timeout": ("-s", "--signal", "-k", "--kill-after"), "nice": ("-n",), "stdbuf": ("-o", "-e", "-i")}


@dataclass
class CommandLine:
    """Its pieces, in the order of the line."""

    words: list[Word]
    launcher: list[Word] = field(default_factory=list)
    container: list[Word] = field(default_factory=list)
    timeout: str = ""
    environment: list[tuple[str, Word]] = field(default_factory=list)

    @property
    def program(self) -> str:
        """The last part of the program's path."""
        return PurePath(self.words[0].source).name if self.words else ""


def taken_apart(words: Sequence[Word]) -> CommandLine:
    """The pieces of a command line."""
    line = CommandLine(list(words))
    while line.words:
        name = line.program
        if name in _PLAIN:
            line.words = _without_options(line.words[1:], ())
        elif name in _WITH_VALUE:
            rest = _without_options(line.words[1:], _WITH_VALUE[name])
            if name == "timeout":
                line.timeout, rest = (rest[0].source if rest else ""), rest[1:]
            line.words = rest
        elif name == "env":
            line.words = _environment(line.words[1:], line)
        elif is_launcher(name) and not line.launcher:
            line.launcher, line.words = _launcher(line.words)
        elif name in _CONTAINERS and not line.container:
            line.container, line.words = _container(line.words)
        else:
            break
    return line


def _without_options(words: list[Word], valued: Sequence[str]) -> list[Word]:
    at = 0
    while at < len(words) and words[at].source.startswith("-"):
        at += 2 if words[at].source in valued else 1
    return words[at:]


def _environment(words: list[Word], line: CommandLine) -> list[Word]:
    at = 0
    while at < len(words) and "=" in words[at].source and not words[at].source.startswith("-"):
        name, _, value = words[at].source.partition("=")
        line.environment.append((name, Word.of(value)))
        at += 1
    return words[at:]


def _launcher(words: list[Word]) -> tuple[list[Word], list[Word]]:
    at = 1
    while at < len(words) and words[at].source.startswith("-"):
        option = words[at].source
        if option == "-x" and PurePath(words[0].source).name != "srun":
            at += 2
        elif option in _TWO_VALUES:
            at += 3
        else:
            at += 2 if option in _VALUED and "=" not in option else 1
    return words[:at], words[at:]


def _container(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """`apptainer exec [options] image` and the program in it."""
    at = 2
    while at < len(words) and words[at].source.startswith("-"):
        at += 2 if words[at].source in _OF_CONTAINER else 1
    return words[: at + 1], words[at + 1 :]
