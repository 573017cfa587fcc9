"""List the files that mdrun writes: the option that names each of them, and its name here.

With `-deffnm md -noappend` several of them would be called `md.part0001.xvg`, and the tables of enforced rotation
`md.part0001.log` like the log itself, so each of these is named by its own option.  File options and their defaults:
`gmx help mdrun`, GROMACS 2020 to 2026; the number of the part is put before the ending [commandline/filenm.cpp].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STEM = "md"


@dataclass(frozen=True)
class MdrunFile:
    """Describe a file that mdrun writes: its option, the end of its name after `md`, mdrun's name without -deffnm."""

    option: str
    kind: str
    default: str


MDRUN_FILES = (
    MdrunFile("-o", ".trr", "traj.trr"),
    MdrunFile("-x", ".xtc", "traj_comp.xtc"),
    MdrunFile("-e", ".edr", "ener.edr"),
    MdrunFile("-g", ".log", "md.log"),
    MdrunFile("-c", ".gro", "confout.gro"),
    MdrunFile("-cpo", ".cpt", "state.cpt"),
    MdrunFile("-dhdl", ".xvg", "dhdl.xvg"),
    MdrunFile("-px", "_pullx.xvg", "pullx.xvg"),
    MdrunFile("-pf", "_pullf.xvg", "pullf.xvg"),
    MdrunFile("-ro", "_rotation.xvg", "rotation.xvg"),
    MdrunFile("-ra", "_rotangles.log", "rotangles.log"),
    MdrunFile("-rs", "_rotslabs.log", "rotslabs.log"),
    MdrunFile("-rt", "_rottorque.log", "rottorque.log"),
    MdrunFile("-swap", "_swapions.xvg", "swapions.xvg"),
    MdrunFile("-eo", "_edsam.xvg", "edsam.xvg"),
    MdrunFile("-if", "_imdforces.xvg", "imdforces.xvg"),
    MdrunFile("-field", "_field.xvg", "field.xvg"),
)
BY_OPTION = {each.option: each for each in MDRUN_FILES}
BY_KIND = {each.kind: each for each in MDRUN_FILES}
# Written where the tpr asks for them; to name one that it does not ask for changes nothing.
_NAMED_APART = ("-ro", "-ra", "-rs", "-rt", "-swap", "-eo", "-if")
# Written only if the command line has the option.
ONLY_IF_NAMED = ("-field",)
# Those that a user may name in the settings; the others are named by the engine alone.
MAY_BE_NAMED = ("-dhdl", "-px", "-pf", *_NAMED_APART, *ONLY_IF_NAMED)
# The tables of enforced rotation that no checkpoint of mdrun counts.
ROTATION_LOGS = ("_rotangles.log", "_rotslabs.log", "_rottorque.log")
ROTATION_TABLE = "_rotation.xvg"
_LOG = re.compile(rf"{re.escape(STEM)}\.part(\d{{4,}})\.log")


def part_name(kind: str, part: int) -> str:
    """Return what mdrun calls a file of a part: `md_rotation.part0001.xvg`; pull tables have a name of their own."""
    stem, _, ending = kind.rpartition(".")
    if kind in ("_pullx.xvg", "_pullf.xvg"):
        return f"{STEM}.part{part:04d}{kind}"
    return f"{STEM}{stem}.part{part:04d}.{ending}"


def newest_log(folder: Path) -> Path | None:
    """Return mdrun's log in its folder, never a table whose name resembles it; None before there is one."""
    return max((path for path in folder.glob(f"{STEM}.part*.log") if _LOG.fullmatch(path.name)), default=None)


def is_table(kind: str) -> bool:
    """Return True for rows of numbers below a head."""
    return kind.endswith(".xvg") or kind in ROTATION_LOGS


def names_apart(options: Sequence[str]) -> list[str]:
    """Return the words that give each file a name of its own, for mdrun with these options."""
    asked = [option for option in ONLY_IF_NAMED if option in options]
    return [word for option in (*_NAMED_APART, *asked) for word in (option, f"{STEM}{BY_OPTION[option].kind}")]


def with_ending(name: str, kind: str) -> str:
    """Return a name with the ending that mdrun adds where it is missing."""
    return name if Path(name).suffix else f"{name}.{kind.rpartition('.')[2]}"
