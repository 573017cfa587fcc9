"""Find programs with restart files for `unbroken init`: the input of a preset, or a command line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.starter import Starter, as_yaml, in_own_folder, run_name
from unbroken.errors import ConfigError
from unbroken.presets.preset import Preset, presets

_ASKED = (
    "in the config say which restart files the program writes (`files`);",
    "    a program that keeps the environment contract (UNBROKEN_SAVE, UNBROKEN_RESUME) needs none",
)


def starters(folder: Path, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
    """Yield one for each input of a preset in the folder, or for the command line that was named."""
    if known := list(_of_presets(folder, words)):
        yield from known
        if words:
            return
    if words and is_named:
        yield _of_command(folder, words)
    elif is_named and not known:
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
        found = (_of_words(folder, each, line) for line in lines if line)
        yield from list(filter(None, found))[:1]


def _of_words(folder: Path, preset: Preset, words: Sequence[str]) -> Starter | None:
    """Return the one for an input, or for a command line; None if the words are neither of this preset."""
    if len(words) == 1:
        is_input = preset.has_input and preset.is_input(folder, words[0])
        return _of_input(preset, words[0]) if is_input else None
    return _of_line(preset, words) if preset.place_of_program(words[:1]) is not None else None


def _of_input(preset: Preset, name: str) -> Starter:
    settings = (f"preset: {preset.name}  # {preset.title}", f"input: {as_yaml(name)}")
    path = PurePath(name)
    stem = path.name.removeprefix("in.") if path.name.startswith("in.") else path.stem
    run = run_name(stem if len(path.parts) == 1 else "", preset.name.replace("-", "_"))
    return Starter(run, name, settings, todo=_missing(preset, preset.settings["start"]), named=f"{preset.name} {name}")


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
