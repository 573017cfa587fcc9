"""The command line of `gmx mdrun` as somebody types it, as settings of the engine, and how its results are called.

The files that mdrun writes, their options and their default names are in `engines/gromacs/outputs.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unbroken.engines.gromacs.outputs import BY_KIND, BY_OPTION, ONLY_IF_NAMED, STEM, with_ending
from unbroken.errors import ConfigError

_SETTINGS = {f"-{name}": name for name in ("nb", "pme", "bonded", "update", "gpu_id")}
# What leaves a number to mdrun, or to the tpr.
_OPEN = {"-nsteps": "-2", "-npme": "-1", "-ntmpi": "0", "-ntomp": "0", "-nt": "0"}
_WITH_VALUE = {"-s", "-deffnm", *_SETTINGS, *_OPEN, *BY_OPTION}
# Asks for the same bits, so a tpr that cannot give them is refused.
REPROD = "-reprod"
ALLOWED = "[LAUNCHER] gmx mdrun -s FILE.tpr [-deffnm NAME] [OPTIONS]"


class MdrunLine:
    """A command line that is to run in `folder`; ConfigError in one line if it cannot be read."""

    def __init__(self, program: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._values: dict[str, str] = {}
        self._options: list[str] = []
        at = program.index("mdrun") if "mdrun" in program else 0
        start = at - 1
        while start > 0 and program[start].startswith("-"):  # `gmx -quiet mdrun`
            start -= 1
        if at == 0:
            raise ConfigError([f"found {' '.join(program)}, allowed: {ALLOWED}"])
        self.launcher, self.gmx = list(program[:start]), program[start]
        left = iter(program[at + 1 :])
        for word in left:
            if word not in _WITH_VALUE:
                self._options.append(word)
            elif value := next(left, ""):
                self._values[word] = value
            else:
                raise ConfigError([f"{word}: found nothing behind it"])
        self.tpr = self._values.get("-s", "topol.tpr")
        self._names = dict(self._named(option) for option in self._values if option in BY_OPTION)

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

    def settings(self) -> dict[str, object]:
        """Return the settings of the engine, which refuses options that it gives to mdrun itself."""
        files = [str(self._folder / word) if (self._folder / word).is_file() else word for word in self._options]
        numbers = {"goal": self._number("-nsteps"), "pme_ranks": self._number("-npme")}
        return {
            "tpr": self.tpr,
            "gmx": self.gmx,
            "launcher": self.launcher,
            "ranks": self._number("-ntmpi") or 1,
            # mdrun works in a folder of its own.
            "options": [word for word in (*files, *ONLY_IF_NAMED) if self._is_passed_on(word)],
            "exact": REPROD in self._options,
            **{name: self._values[option] for option, name in _SETTINGS.items() if option in self._values},
            **{name: number for name, number in numbers.items() if number is not None},
        }

    def result(self, name: str) -> str:
        """Return where the engine's file `md.xtc` belongs, as mdrun would have called it; another keeps its name."""
        kind = name.removeprefix(STEM)
        if kind == name or kind[:1] not in (".", "_"):
            return name
        stem, default = self._values.get("-deffnm"), BY_KIND[kind].default if kind in BY_KIND else name
        return self._names.get(kind) or (f"{stem}{kind}" if stem else default)

    def _is_passed_on(self, word: str) -> bool:
        return word != REPROD and (word not in ONLY_IF_NAMED or word in self._values)

    def _named(self, option: str) -> tuple[str, str]:
        """Return the kind of a file and the name that it is to have."""
        kind, name = BY_OPTION[option].kind, self._values[option]
        ending = Path(BY_OPTION[option].default).suffix
        if Path(name).suffix not in ("", ending):
            raise ConfigError([f"{option}: found {name}, allowed: a name that ends with {ending}"])
        return kind, with_ending(name, kind)

    def _number(self, option: str) -> int | None:
        """Return the number of an option; None where it leaves that open."""
        value = self._values.get(option, _OPEN[option])
        if value == _OPEN[option]:
            return None
        if not value.isdecimal():
            raise ConfigError([f"{option}: found {value!r}, allowed: a whole number"])
        return int(value)
