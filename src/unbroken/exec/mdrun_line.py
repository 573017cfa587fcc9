"""The command line of `gmx mdrun` as somebody types it, in the settings of the engine, and what its results are called.

The files that mdrun writes, their options and their default names are in `engines/gromacs/outputs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.gromacs.outputs import BY_KIND, BY_OPTION, ONLY_IF_NAMED, STEM, with_ending
from unbroken.errors import ConfigError

_SETTINGS = {"-nb": "nb", "-pme": "pme", "-bonded": "bonded", "-update": "update", "-gpu_id": "gpu_id"}
_NUMBERS = ("-nsteps", "-npme", "-ntmpi", "-ntomp", "-nt")
# Defaults of mdrun, beside 0, that mean that it decides, or the tpr.
_AS_IF_ABSENT = {"-nsteps": "-2", "-npme": "-1"}
_OURS = ("-cpi", "-append", "-noappend", "-maxh", "-cpt", "-cpnum", "-nocpnum")
_WITH_VALUE = {"-s", "-deffnm", *_SETTINGS, *_NUMBERS, *BY_OPTION}
# Asks for the same bits, so a tpr that cannot give them is refused.
REPROD = "-reprod"
ALLOWED = "[LAUNCHER] gmx mdrun -s FILE.tpr [-deffnm NAME] [OPTIONS]"


@dataclass(frozen=True)
class MdrunLine:
    """What a command line says: settings of the engine, threads of all ranks together, and what is wrong with it."""

    settings: dict[str, object]
    threads: int | None
    stem: str  # of -deffnm; empty without
    names: dict[str, str] = field(default_factory=dict)  # of the results that have one of their own

    def result(self, name: str) -> str | None:
        """Where the engine's file `md.xtc` belongs, as mdrun would have called it; None for what is not mdrun's."""
        kind = name.removeprefix(STEM)
        if kind == name or kind[:1] not in (".", "_"):
            return None
        if kind in self.names:
            return self.names[kind]
        if self.stem:
            return f"{self.stem}{kind}"
        return BY_KIND[kind].default if kind in BY_KIND else name


def parse_mdrun(program: Sequence[str], folder: Path) -> MdrunLine:
    """A command line that is to run in `folder`; ConfigError with all that cannot be."""
    launcher, gmx, words = _parted(program)
    values, options = _values(words)
    if mistakes := list(_mistakes(values, options)):
        raise ConfigError([f"exec: --engine gromacs: {line}" for line in mistakes])
    ranks = _number(values, "-ntmpi") or 1
    per_rank, threads = _number(values, "-ntomp"), _number(values, "-nt")
    settings: dict[str, object] = {
        "tpr": values.get("-s", "topol.tpr"),
        "gmx": gmx,
        "launcher": launcher,
        "ranks": ranks,
        # mdrun works in a folder of its own.
        "options": [
            *(str(folder / word) if (folder / word).is_file() else word for word in options if word != REPROD),
            *(option for option in ONLY_IF_NAMED if option in values),
        ],
        "exact": REPROD in options,
        **{name: values[option] for option, name in _SETTINGS.items() if option in values},
    }
    if values.get("-npme", "-1") != "-1":
        settings["pme_ranks"] = int(values["-npme"])
    if (steps := _number(values, "-nsteps")) is not None:
        settings["goal"] = steps
    files = {file.kind: values[file.option] for file in BY_OPTION.values() if file.option in values}
    named = {kind: with_ending(name, kind) for kind, name in files.items()}
    total = threads or (per_rank * ranks if per_rank else None)
    return MdrunLine(settings, total, values.get("-deffnm", ""), named)


def _parted(program: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """What starts the ranks, the program, and the words behind `mdrun`; `gmx -quiet mdrun` is `gmx mdrun`."""
    words = list(program)
    at = words.index("mdrun") if "mdrun" in words else 0
    start = at - 1
    while start > 0 and words[start].startswith("-"):
        start -= 1
    if at == 0:
        raise ConfigError([f"exec: --engine gromacs: found {' '.join(words)}, allowed: {ALLOWED}"])
    return words[:start], words[start], words[at + 1 :]


def _values(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options that the engine sets by itself, and all other words."""
    values: dict[str, str] = {}
    options: list[str] = []
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            values[word] = next(left, "")
        else:
            options.append(word)
    return values, options


def _mistakes(values: dict[str, str], options: Sequence[str]) -> Iterator[str]:
    for word in options:
        if word in _OURS:
            yield f"found {word}, which unbroken gives to mdrun by itself; leave it out"
        elif word == "-multidir":
            found = "found -multidir; not possible: its results would not lie where each replica was called"
            yield f"{found}; allowed: one simulation, or a run of a config with replicas: [a/topol.tpr, b/topol.tpr]"
        elif word == "-noconfout":
            yield "found -noconfout, and by the last structure one knows that mdrun is done; leave it out"
    for option in _NUMBERS:
        value = values.get(option, "0")
        if not value.isdecimal() and value != _AS_IF_ABSENT.get(option):
            yield f"{option}: found {value!r}, allowed: a whole number"
    for option, value in values.items():
        if not value:
            yield f"{option}: found nothing behind it"
    for file in BY_OPTION.values():
        ending = Path(file.default).suffix
        if file.option != "-c" and Path(values.get(file.option, ending)).suffix not in ("", ending):
            yield f"{file.option}: found {values[file.option]}, allowed: a name that ends with {ending}"
    if Path(values.get("-c", ".gro")).suffix not in ("", ".gro"):
        yield f"-c: found {values['-c']}, allowed: a .gro; gmx editconf makes other kinds of it"


def _number(values: dict[str, str], option: str) -> int | None:
    """None where the option leaves it open."""
    value = values.get(option, "0")
    return None if value in ("0", _AS_IF_ABSENT.get(option)) else int(value)
