"""Check the settings of a DMTCP run against each other before anything is queued."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from unbroken.config.tasks import is_launcher
from unbroken.engines.dmtcp.protocol import words_of
from unbroken.store.run import RunSpec

_MANA = "MANA, DMTCP's extension for MPI (https://github.com/mpickpt/mana)"
_ADVICE = f"DMTCP alone does not save MPI over a fast network; use {_MANA}, or type `mpi_allowed: true`"
# Options of dmtcp_launch with a value after them, and all that unbroken sets itself.
VALUED_OPTIONS = (
    "-p", "--coord-port", "--port", "-h", "--coord-host", "--host", "--port-file", "--ckptdir", "-i", "--interval",
)  # fmt: skip
OWN_OPTIONS = (
    "-j", "--join-coordinator", "--join", "--new-coordinator", "--any-coordinator", "--no-coordinator",
    "--gzip", "--no-gzip", "--ckpt-open-files", "--checkpoint-open-files", *VALUED_OPTIONS,
)  # fmt: skip


def mistakes(run: RunSpec, base: Path) -> Iterator[tuple[str, str]]:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    command = words_of(run, "command")
    if not command:
        yield "command", "found an empty list; type the program and its arguments, such as [python3, simulate.py]"
        return
    if run.settings["mpi_allowed"] is not True:
        yield from _mpi_mistakes(run, command[0])
    yield from _path_mistakes(run, command, base)
    seen: dict[str, str] = {}
    for name in words_of(run, "inputs"):
        last = Path(name).name
        if last in seen:
            yield "inputs", f"found {seen[last]} and {name}, both to be seen as {last}; rename one of them"
        seen[last] = name
    for option in words_of(run, "options"):
        if option.partition("=")[0] in OWN_OPTIONS:
            yield "options", f"found {option}, which unbroken sets itself; allowed: other options of dmtcp_launch"
    folder = str(run.settings["dmtcp"])
    if folder and not run.environment.is_entered and not (base / folder / "dmtcp_launch").is_file():
        yield "dmtcp", f"found '{folder}', but there is no dmtcp_launch in it; allowed: the folder of DMTCP's programs"


def _mpi_mistakes(run: RunSpec, program: str) -> Iterator[tuple[str, str]]:
    if is_launcher(program) or Path(program).name == "ibrun":
        yield "command", f"found {program}; {_ADVICE} if the ranks talk over TCP or shared memory on one node"
    elif run.resources.tasks > 1:
        yield "command", f"the run has {run.resources.tasks} tasks; {_ADVICE}"


def _path_mistakes(run: RunSpec, command: list[str], base: Path) -> Iterator[tuple[str, str]]:
    """Yield paths of the command that do not exist in the program's own folder."""
    inputs = {Path(name).name for name in words_of(run, "inputs")}
    for word in command:
        if Path(word).is_absolute() or word in (".", ".."):
            continue
        # A word may be a whole script, longer than a path can be; then this is False, and Path.is_file an error.
        if os.path.isfile(base / word) and str(Path(word)) not in inputs:
            name = Path(word).name
            yield (
                "command",
                f"names {word}, but the program runs in a folder of its own; type `inputs: [{word}]`, by which it is "
                f"to be found there as {name}" + ("" if str(Path(word)) == name else f", and {name} in the command"),
            )
