"""Know the options of `gmx mdrun`: which of them unbroken gives itself, which are settings, which name a file.

The command line of mdrun as users type it is read here alone, for `unbroken exec` and `unbroken convert`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from unbroken.errors import ConfigError


class MdrunFile(NamedTuple):
    """Describe a file that mdrun writes: the end of its name after `md`, and mdrun's name for it without -deffnm."""

    kind: str
    default: str


STEM = "md"
CPT = f"{STEM}.cpt"
# By option [gmx help mdrun, GROMACS 2020 to 2026].
FILES = {
    "-o": MdrunFile(".trr", "traj.trr"),
    "-x": MdrunFile(".xtc", "traj_comp.xtc"),
    "-e": MdrunFile(".edr", "ener.edr"),
    "-g": MdrunFile(".log", "md.log"),
    "-c": MdrunFile(".gro", "confout.gro"),
    "-cpo": MdrunFile(".cpt", "state.cpt"),
    "-dhdl": MdrunFile(".xvg", "dhdl.xvg"),
    "-px": MdrunFile("_pullx.xvg", "pullx.xvg"),
    "-pf": MdrunFile("_pullf.xvg", "pullf.xvg"),
    "-ro": MdrunFile("_rotation.xvg", "rotation.xvg"),
    "-ra": MdrunFile("_rotangles.log", "rotangles.log"),
    "-rs": MdrunFile("_rotslabs.log", "rotslabs.log"),
    "-rt": MdrunFile("_rottorque.log", "rottorque.log"),
    "-swap": MdrunFile("_swapions.xvg", "swapions.xvg"),
    "-eo": MdrunFile("_edsam.xvg", "edsam.xvg"),
    "-if": MdrunFile("_imdforces.xvg", "imdforces.xvg"),
}
_BY_KIND = {file.kind: (option, file) for option, file in FILES.items()}
# With `-deffnm md -noappend` mdrun would give several of these one name.  It may be told names that it does not need.
NAMES_APART = [
    word
    for option, file in FILES.items()
    if file.kind.startswith("_")
    for word in (option, f"{STEM}{file.kind}")
]  # fmt: skip
AS_SETTINGS = {f"-{name}": name for name in ("nb", "pme", "bonded", "update", "gpu_id")}
# By these mdrun saves, resumes and leaves in time: unbroken gives them itself.
OF_SEGMENTS = {"-cpi", "-cpo", "-maxh", "-cpt", "-append", "-noappend", "-cpnum", "-nocpnum"}
# What leaves a number to mdrun, or to the tpr.
_OPEN = {"-nsteps": "-2", "-npme": "-1", "-ntmpi": "0", "-ntomp": "0", "-nt": "0"}
_WITH_VALUE = {"-s", "-deffnm", *AS_SETTINGS, *_OPEN, *FILES}
_ALLOWED = "[LAUNCHER] gmx mdrun -s FILE.tpr [-deffnm NAME] [OPTIONS]"

# Each with the words after it.
Options = dict[str, list[str]]


def options_of(words: Sequence[str]) -> Options:
    """Return GROMACS's options; of one that is given twice the last counts, and a negative number is none."""
    found: Options = {}
    option = ""
    for word in words:
        if not found or (word[:1] == "-" and not word[1:2].isdigit()):
            option = word
            found[option] = []
        else:
            found[option].append(word)
    return found


def words_in(options: Options, without: Collection[str] = ()) -> list[str]:
    """Return options as words again."""
    return [word for option, values in options.items() if option not in without for word in (option, *values)]


def value_of(options: Options, option: str, default: str = "") -> str:
    """Return the first word after an option; the default if it is not given, or nothing follows it."""
    return (options.get(option) or [default])[0]


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

    def rest(self, without: Collection[str] = ()) -> list[str]:
        """Return the options that are no settings, and name no file that mdrun writes."""
        return words_in(self.options, {*_WITH_VALUE, "-reprod", *without})

    def value(self, option: str) -> str:
        """Return the word after an option; empty where there is none."""
        return value_of(self.options, option)

    def settings(self) -> dict[str, object]:
        """Return the settings of the engine that its own options say; raise ConfigError if one has no good value."""
        for option, values in self.options.items():
            ending = Path(FILES[option].default).suffix if option in FILES else ""
            if option in _WITH_VALUE and not ending and not values:
                raise ConfigError([f"{option}: found nothing behind it"])
            if ending and Path(self.value(option)).suffix not in ("", ending):
                raise ConfigError([f"{option}: found {values[0]}, allowed: a name that ends with {ending}"])
        numbers = {"goal": self._number("-nsteps"), "pme_ranks": self._number("-npme")}
        return {
            "gmx": self.gmx,
            "ranks": self._number("-ntmpi") or 1,
            "exact": "-reprod" in self.options,  # asks for the same bits
            **{name: self.value(option) for option, name in AS_SETTINGS.items() if option in self.options},
            **{name: number for name, number in numbers.items() if number is not None},
        }

    def result(self, name: str) -> str:
        """Return where the engine's file `md.xtc` belongs, as mdrun would have called it; another keeps its name."""
        kind = name.removeprefix(STEM)
        if kind == name or kind[:1] not in (".", "_"):
            return name
        stem, (option, file) = self.value("-deffnm"), _BY_KIND.get(kind, ("", None))
        if option and (named := self.value(option)):
            return named if Path(named).suffix else f"{named}.{kind.rpartition('.')[2]}"
        return f"{stem}{kind}" if stem else file.default if file else name

    def _number(self, option: str) -> int | None:
        """Return the number of an option; None where it leaves that open."""
        value = self.value(option) or _OPEN[option]
        if value == _OPEN[option]:
            return None
        if not value.isdecimal():
            raise ConfigError([f"{option}: found {value!r}, allowed: a whole number"])
        return int(value)
