"""Find programs with restart files for `unbroken init`: LAMMPS's input scripts, or a command line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.command.lammps.resumable import LammpsInput, read_input
from unbroken.engines.command.lammps.script import is_input
from unbroken.engines.script_edit import NotPlainError
from unbroken.engines.starter import Starter, as_yaml, files_like, in_own_folder, run_name
from unbroken.errors import ConfigError

_LAMMPS = ("lmp", "lmp_mpi", "lmp_serial", "lammps")
# The script that resumes appends to the log, which LAMMPS would empty before it reads that script.
_APPENDED_LOG = ("-log", "none")
_ASKED = (
    "in the config say which restart files the program writes (`files`);",
    "    a program that keeps the environment contract (UNBROKEN_SAVE, UNBROKEN_RESUME) needs none",
)


def starters(folder: Path, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
    """Yield one for each input script of LAMMPS in the folder, or for the command line that was named."""
    is_script = len(words) == 1 and is_input(folder / words[0])
    if words and is_named and not is_script:
        yield _of_command(folder, words)
        return
    paths = [folder / words[0]] if words else files_like(folder, "in.*", "*.in", "*.lmp", "*.lammps")
    found = [path for path in paths if path.is_file() and is_input(path)]
    yield from (_of_lammps(path, folder) for path in found)
    if is_named and not found:
        raise ConfigError(
            ["init command: which program? type for example: unbroken init command -- ./simulate input.dat"]
        )


def _of_command(folder: Path, words: Sequence[str]) -> Starter:
    start, files = in_own_folder(folder, words)
    settings = [f"start: {as_yaml(start)}"]
    settings += [f"inputs: {as_yaml(files)}"] if files else []
    settings += [
        "files: []               # its restart files, such as [state.chk]; none: it keeps the environment contract",
        "# resume: [...]         # how it is started to go on, if otherwise",
        "# goal: 1000            # with progress_file and progress_pattern: where it says how far it is",
    ]
    return Starter(run_name(PurePath(files[0] if files else words[0]).stem, "run"), "", tuple(settings), todo=_ASKED)


def _of_lammps(path: Path, folder: Path) -> Starter:
    program = next((name for name in _LAMMPS if shutil.which(name)), "")
    missing = () if program else ("lmp is not on the PATH; name its module below the run: `modules:`",)
    name = run_name(path.name.removeprefix("in."), "md")
    try:
        script = read_input(path)
    except NotPlainError as error:
        why = (
            f"{path.name} needs `restart`, `timer timeout`, `run ... upto`, and a script that resumes by `read_restart`"
        )
        todo = (f"{path.name}: {error}", f"    no diff could be made; {why}: examples/lammps", *missing)
        settings = _settings(program or "lmp", path.name, "resume.in", "*.rst")
        return Starter(name, path.name, tuple(settings), todo=todo)
    own = (path.name, script.resume_name, script.restart_name, _APPENDED_LOG)
    settings = [*_settings(program or "lmp", *own), *_more(script, folder)]
    return Starter(name, path.name, tuple(settings), todo=missing, diff=script.diff())


def _settings(program: str, start: str, resume: str, restart: str, log: Sequence[str] = ()) -> list[str]:
    words = [program, "-in", start, "-var", "total", "{goal}", "-var", "limit", "{hms}"]
    return [
        f"start: {as_yaml(words)}",
        f"resume: {as_yaml([*words[:2], resume, *log, *words[3:]]).removesuffix(']')},",
        "         -var, restart, '{file}']",
        f"files: {as_yaml([restart.replace('*', '{progress}')])}  # LAMMPS writes the step into the name",
        "saved_by: next  # a file is complete when the next one has begun",
        "exit_paused: [0]  # LAMMPS exits with 0 in any case: the goal says whether it is done",
    ]


def _more(script: LammpsInput, folder: Path) -> Iterator[str]:
    yield f"inputs: {as_yaml([script.path.name, script.resume_name, *script.inputs(folder)])}"
    until = f", where {script.path.name} ends its ramps" if script.has_ramp else "; raise it later and start again"
    yield f"goal: {script.steps}  # steps{until}"
    if outputs := script.outputs():
        yield "outputs:"
        yield from (f"  {as_yaml({name: pattern})[1:-1]}" for name, pattern in outputs.items())
