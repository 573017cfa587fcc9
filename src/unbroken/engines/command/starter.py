"""Find programs with restart files for `unbroken init`: LAMMPS's input scripts, or a command line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.command.lammps.resumable import LammpsInput, read_input
from unbroken.engines.command.lammps.script import is_input
from unbroken.engines.script_edit import NotPlainError
from unbroken.engines.starter import Starter, as_yaml, files_like, in_own_folder, run_name
from unbroken.errors import ConfigError
from unbroken.presets.preset import Preset, presets

_LAMMPS = ("lmp", "lmp_mpi", "lmp_serial", "lammps")
# The script that resumes appends to the log, which LAMMPS would empty before it reads that script.
_APPENDED_LOG = ("-log", "none")
_ASKED = (
    "in the config say which restart files the program writes (`files`);",
    "    a program that keeps the environment contract (UNBROKEN_SAVE, UNBROKEN_RESUME) needs none",
)


def starters(folder: Path, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
    """Yield one for each input of a preset and each script of LAMMPS in the folder, or for the line that was named."""
    if known := list(_of_presets(folder, words)):
        yield from known
        if words:
            return
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


def _of_presets(folder: Path, words: Sequence[str]) -> Iterator[Starter]:
    """Yield one for each input in the folder, for an input or a command line, also behind the name of a preset."""
    known = presets(folder)
    if not words:
        yield from (_of_input(each, name) for each in known.values() for name in each.inputs_below(folder))
        return
    named, rest = known.get(words[0]), words[1:]
    chosen = [named] if named is not None else list(known.values())
    lines = [rest, words] if named is not None else [words]
    for each in chosen:
        if named is not None and not rest and each.has_input:
            yield from (_of_input(each, name) for name in each.inputs_below(folder))
        for line in lines:
            if len(line) == 1 and each.has_input and each.is_input(folder, line[0]):
                yield _of_input(each, line[0])
            elif len(line) > 1 and each.place_of_program(line[:1]) is not None:
                yield _of_line(each, line)


def _of_input(preset: Preset, name: str) -> Starter:
    settings = (f"preset: {preset.name}  # {preset.title}", f"input: {as_yaml(name)}")
    path = PurePath(name)
    run = run_name(path.stem if len(path.parts) == 1 else "", preset.name.replace("-", "_"))
    return Starter(run, f"{preset.name} {name}", settings, todo=_missing(preset, preset.settings["start"]))


def _of_line(preset: Preset, words: Sequence[str]) -> Starter:
    settings = (f"preset: {preset.name}  # {preset.title}", f"start: {as_yaml(list(words))}")
    source = f"{preset.name} -- {shlex.join(words)}"
    return Starter(run_name(preset.name, "run"), source, settings, todo=_missing(preset, words))


def _missing(preset: Preset, words: Sequence[object]) -> tuple[str, ...]:
    program = str(words[preset.place_of_program(list(map(str, words))) or 0])
    if "$" in program or shutil.which(program):
        return ()
    return (f"{program} is not on the PATH; name its module below the run (`modules:`), or another one in `start:`",)


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
