"""Read the options of `gmx mdrun`: which of them unbroken gives itself, which are settings, which name a file.

The command line of mdrun as users type it is read here alone, for `unbroken exec` and `unbroken convert`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from unbroken.engines.gromacs.outputs import BY_KIND, BY_OPTION, MAY_BE_NAMED, STEM, with_ending
from unbroken.errors import ConfigError

AS_SETTINGS = {f"-{name}": name for name in ("nb", "pme", "bonded", "update", "gpu_id")}
# By these mdrun saves, resumes and leaves in time: unbroken gives them itself.
OF_SEGMENTS = {"-cpi", "-cpo", "-maxh", "-cpt", "-append", "-noappend", "-cpnum", "-nocpnum"}
# What leaves a number to mdrun, or to the tpr.
_OPEN = {"-nsteps": "-2", "-npme": "-1", "-ntmpi": "0", "-ntomp": "0", "-nt": "0"}
_WITH_VALUE = {"-s", "-deffnm", *AS_SETTINGS, *_OPEN, *BY_OPTION}
_ALLOWED = "[LAUNCHER] gmx mdrun -s FILE.tpr [-deffnm NAME] [OPTIONS]"

Options = list[tuple[str, list[str]]]


def options_of(words: Sequence[str]) -> Options:
    """Return GROMACS's options, each with the words after it; a negative number is no option."""
    found: Options = []
    for word in words:
        if not found or (word[:1] == "-" and not word[1:2].isdigit()):
            found.append((word, []))
        else:
            found[-1][1].append(word)
    return found


def words_in(options: Options, without: Collection[str] = ()) -> list[str]:
    """Return options as words again."""
    return [word for option, values in options if option not in without for word in (option, *values)]


def value_of(options: Options, option: str, default: str = "") -> str:
    """Return the first word after an option; the default if it is not given, or nothing follows it."""
    return next((values[0] for name, values in options if name == option and values), default)


def named_files(options: Options) -> dict[str, str]:
    """Return the names that options give to files which mdrun writes, by the ends of their names here."""
    files = [(BY_OPTION[option], values) for option, values in options if option in MAY_BE_NAMED]
    return {file.kind: with_ending(values[0], file.kind) if values else file.default for file, values in files}


class MdrunLine:
    """Hold a command line with mdrun; raise ConfigError if it has none."""

    def __init__(self, program: Sequence[str]) -> None:
        at = program.index("mdrun") if "mdrun" in program else 0
        start = at - 1
        while start > 0 and program[start].startswith("-"):  # `gmx -quiet mdrun`
            start -= 1
        if at == 0:
            raise ConfigError([f"found {' '.join(program)}, allowed: {_ALLOWED}"])
        self.launcher, self.gmx = list(program[:start]), program[start]
        self.options = options_of(program[at + 1 :])

    @property
    def tpr(self) -> str:
        """Return the file that mdrun reads."""
        return f"{(self.value('-s') or self.value('-deffnm') or 'topol').removesuffix('.tpr')}.tpr"

    @property
    def threads(self) -> int | None:
        """Return the threads of all ranks together; None where mdrun takes all cores."""
        per_rank, threads = self._number("-ntomp"), self._number("-nt")
        if threads or per_rank:
            return threads or (per_rank or 1) * (self._number("-ntmpi") or 1)
        if not self.launcher:
            return None
        # One of several ranks on this machine.
        return int(os.environ.get("OMP_NUM_THREADS") or os.environ.get("SLURM_CPUS_PER_TASK") or 1)

    def has(self, option: str) -> bool:
        """Return True if an option is given."""
        return any(name == option for name, _ in self.options)

    def value(self, option: str) -> str:
        """Return the word after an option; empty where there is none."""
        return value_of(self.options, option)

    def rest(self, *, with_names: bool) -> list[str]:
        """Return the options that are no settings; those that name a table of mdrun only `with_names`."""
        return words_in(self.options, {*_WITH_VALUE, "-reprod"} - {*(MAY_BE_NAMED if with_names else ())})

    def settings(self) -> dict[str, object]:
        """Return the settings of the engine that its own options say; raise ConfigError if one has no good value."""
        for option, values in self.options:
            if option in _WITH_VALUE - {*MAY_BE_NAMED} and not values:
                raise ConfigError([f"{option}: found nothing behind it"])
            ending = Path(BY_OPTION[option].default).suffix if option in BY_OPTION else ""
            if values and ending and Path(values[0]).suffix not in ("", ending):
                raise ConfigError([f"{option}: found {values[0]}, allowed: a name that ends with {ending}"])
        numbers = {"goal": self._number("-nsteps"), "pme_ranks": self._number("-npme")}
        return {
            "gmx": self.gmx,
            "ranks": self._number("-ntmpi") or 1,
            "exact": self.has("-reprod"),  # asks for the same bits
            **{name: self.value(option) for option, name in AS_SETTINGS.items() if self.has(option)},
            **{name: number for name, number in numbers.items() if number is not None},
        }

    def result(self, name: str) -> str:
        """Return where the engine's file `md.xtc` belongs, as mdrun would have called it; another keeps its name."""
        kind = name.removeprefix(STEM)
        if kind == name or kind[:1] not in (".", "_"):
            return name
        stem, file = self.value("-deffnm"), BY_KIND.get(kind)
        if file and (named := self.value(file.option)):
            return with_ending(named, kind)
        return f"{stem}{kind}" if stem else file.default if file else name

    def _number(self, option: str) -> int | None:
        """Return the number of an option; None where it leaves that open."""
        value = self.value(option) or _OPEN[option]
        if value == _OPEN[option]:
            return None
        if not value.isdecimal():
            raise ConfigError([f"{option}: found {value!r}, allowed: a whole number"])
        return int(value)
