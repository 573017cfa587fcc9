"""Read an input script of LAMMPS, and refuse one that cannot resume correctly: the line, and what to type.

The rules of https://docs.lammps.org/Commands_parse.html: `&` continues a line, `#` begins a comment, quotes keep words
together and leave the `$` in them for later.  Only commands and fixes that are known to resume are let through:
measured with the release of 29 Sep 2021 (tests/engines/test_lammps_fixes.py), and read from "Restart, fix_modify,
output" of the pages of the fixes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from unbroken.engines.script_edit import NotPlainError


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, as a set of names."""
    return frozenset(text.split())


# Commands that make the system.
BOX = frozenset({"create_box", "read_data"})
# Done once, before the run: their effect is in the restart file.
ONCE = words_of("""
    balance change_box create_atoms create_bonds delete_atoms delete_bonds displace_atoms minimize read_dump replicate
    reset_atom_ids reset_ids reset_mol_ids reset_timestep set velocity
    write_data write_dump write_restart write_coeff pair_write bond_write
    """)
_SAID_AGAIN = words_of("""
    angle_coeff angle_style atom_modify atom_style bond_coeff bond_style boundary comm_modify comm_style compute
    compute_modify dielectric dihedral_coeff dihedral_style dimension dump dump_modify echo fix fix_modify group
    improper_coeff improper_style info kspace_modify kspace_style lattice log mass min_modify min_style molecule
    neigh_modify neighbor newton package pair_coeff pair_modify pair_style print processors region restart run run_style
    special_bonds suffix thermo thermo_modify thermo_style timer timestep uncompute undump unfix units variable
    """)
# These keep nothing from step to step, or their state is in the restart file.
_FIXES = (
    r"(adapt|add(force|torque)|atom/swap|ave/time|aveforce|balance|box/relax|deform|deposit|dt/reset|efield|ehex"
    r"|enforce2d|freeze|gcmc|gravity|heat|indent|langevin|lineforce|momentum|move|oneway|planeforce|print|rattle"
    r"|recenter|restrain|setforce|shake|store/state|viscous|widom|(press|temp)/berendsen|temp/rescale"
    r"|(nve|nvt|npt|nph|rigid|wall|qeq|spring)(/\S+)?)(/(omp|gpu|intel|opt|kk))?( |$)"
)
_UNKNOWN = (
    "it is not known how it resumes from a restart file; if its page says so, do as examples/lammps; write one plain "
    "input script for each run"
)
# What is refused of some commands: the name, a pattern of the words after it, and why.
_REFUSED = (
    ("fix", rf"\S+ \S+ (?!{_FIXES})", _UNKNOWN),
    ("fix", r"\S+ \S+ ave/time (?!\d+ \d+ \d+ )", "type numbers for its first three words"),
    ("fix", r"\S+ \S+ ave/time .*ave (running|window)\b", "it does not continue; average later"),
    ("fix", r"\S+ \S+ langevin (?!\S+ \S+ \S+ \d+)", "its seed is not a number; type a number"),
    (
        "fix",
        r"\S+ \S+ print \S+ (?!\$\(step\W).*(file|append) ",
        'begin its rows with "$(step) ", by which they are joined',
    ),
    ("include", "", "move its lines into this script"),
    ("read_restart", "", "this script itself resumes; name the script that makes the system"),
    ("reset_timestep", r"(?!0$)", "the steps must count from 0; type reset_timestep 0"),
    ("run", r"(?!\d+$)", "the number of steps is not known; type `run N` with a number and nothing behind it"),
    ("run_style", r"(?!verlet)", "only `run_style verlet` was tried with restarts"),
    ("timer", r"timeout", "the preset sets the limit itself; remove it"),
    ("group", r"\S+ (delete|clear)\b", "a script that resumes takes its groups from the restart file; remove it"),
    ("pair_style", r"dpd", "each segment would draw the same random numbers again"),
    ("restart", r"\S+ \S*%", "a restart file for each process (`%`) cannot be resumed from; remove the `%`"),
    ("compute", r"\S+ \S+ msd\b.* average yes", "its mean is not in the restart file; remove `average yes`"),
    ("compute", r"\S+ \S+ chunk/atom\b.* once\b", "`once` is done again at a restart; type `every`"),
    ("dump_modify", r".*\btime yes", "the time counts from 0 again after a restart; remove `time yes`"),
    ("dump_modify", r".*\bLAST\b", "`thresh ... LAST` compares with values that are not in the restart file"),
    ("variable", r"(limit|restart|total) ", "the preset uses this name; type another one"),
)
# What counts from the restart, in a formula.
_COUNTS_AGAIN = re.compile(r"(?<![\w.])(elapsed|time)\b")
# A formula in parentheses, which may hold two more levels of them.
_FORMULA = re.compile(r"\$\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_WORD = re.compile(rf'#.*|"[^"]*"|\'[^\']*\'|(?:{_FORMULA.pattern}|[^\s#])+')
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w)|\bv_(\w+)")


@dataclass(frozen=True)
class Command:
    """Hold a command of an input script: its words, with their quotes, and its lines in the file."""

    parts: tuple[str, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        """Return the command's first word."""
        return self.parts[0]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return all words without their quotes."""
        return tuple(part[1:-1] if part[0] in "\"'" else part for part in self.parts)

    @property
    def style(self) -> str:
        """Return the style of a `fix` or `dump`; "" for other commands."""
        return self.word(3) if self.name in ("fix", "dump") else ""

    def word(self, at: int) -> str:
        """Return a word by its place; "" if there are fewer."""
        return self.words[at] if at < len(self.words) else ""

    def value(self, *keywords: str, start: int = 1) -> str:
        """Return the word after the last of these keywords at `start` or later; "" if there is none."""
        found = [at + 1 for at in range(start, len(self.words) - 1) if self.words[at] in keywords]
        return self.words[found[-1]] if found else ""

    def changed(self, changes: Mapping[int, str]) -> str:
        """Return the command with some words, by their place, written in another way."""
        return " ".join(changes.get(at, part) for at, part in enumerate(self.parts))

    def refused(self, why: str) -> NotPlainError:
        """Return the error that names this line, what is wrong with it, and what to type."""
        shown = " ".join(self.parts)
        return NotPlainError(f"line {self.first + 1}: `{shown[:60]}{'...' * (len(shown) > 60)}`: {why}")


def commands_in(lines: Sequence[str]) -> Iterator[Command]:
    """Yield the commands of a script."""
    first, text = 0, ""
    for number, line in enumerate(lines):
        parts = [match[0] for match in _WORD.finditer(text + line.rstrip())]
        parts = parts[:-1] if parts and parts[-1].startswith("#") else parts
        if parts and parts[-1].endswith("&"):
            text = " ".join(parts)[:-1]
            continue
        if parts:
            yield Command(tuple(parts), first, number)
        first, text = number + 1, ""


def is_input(path: Path) -> bool:
    """Return True for a script that begins a simulation of LAMMPS."""
    try:
        names = {command.name for command in commands_in(path.read_text().splitlines())}
    except (UnicodeDecodeError, OSError):
        return False
    return {"run", "units"} <= names and bool(names & BOX)


# --- what a script means at a restart ---


def confirm_plain(commands: Sequence[Command]) -> list[Command]:
    """Return the commands with their constants filled in; raise NotPlainError with the line that cannot be resumed."""
    constants, filled = _constants(commands), []
    for command in commands:
        parts = tuple(_expanded(part, constants) for part in command.parts)
        filled.append(each := Command(parts, command.first, command.last))
        words = " ".join(each.words[1:])
        for name, pattern, why in _REFUSED:
            if command.name == name and re.match(pattern, words):
                raise command.refused(why)
        if command.name not in _SAID_AGAIN | ONCE | BOX or '"""' in "".join(command.parts):
            raise command.refused(_UNKNOWN)
        _confirm_formulas(command, each)
        if "/" in file_of(each):
            raise command.refused("it writes outside of the run's folder; type a name without a folder")
    _confirm_order(filled)
    return filled


def _confirm_formulas(command: Command, filled: Command) -> None:
    """Refuse what counts from the restart, and what takes a value of the moment in which the line is read."""
    needed = [match[1] for part in filled.parts for match in _FORMULA.finditer(part)]
    needed += filled.words[2:] if filled.name in ("variable", "thermo_style") else ()
    for formula in needed:
        if found := _COUNTS_AGAIN.search(formula):
            raise command.refused(f"`{found[0]}` counts from the restart; type elaplong, or step*dt")
    if is_in_restart(command) or command.name in BOX:
        return
    now = " ".join(part for part in filled.parts if part[0] not in "\"'")
    for formula in [*re.findall(r"\$\{\w+\}|\$\w", now), *(match[1] for match in _FORMULA.finditer(now))]:
        if re.search(r"[A-Za-z]", formula):
            raise command.refused(
                f"it takes `{formula}` when it is read, which is another value at a restart; type the number"
            )


def _confirm_order(commands: Sequence[Command]) -> None:
    names = [command.name for command in commands]
    if "run" not in names or not BOX & set(names):
        raise NotPlainError("no `run`, or neither `read_data` nor `create_box`")
    for name in ("run", *BOX):
        for second in [each for each in commands if each.name == name][1:]:
            raise second.refused(f"the second `{name}`; write one plain input script for each run")
    for minimize, after in pairwise(each for each in commands if each.name in ("minimize", "reset_timestep", "run")):
        if minimize.name == "minimize" and after.name == "run":
            raise minimize.refused("its iterations count as steps; type reset_timestep 0 behind it")
    for command in commands[: names.index("reset_timestep") if "minimize" in names else 0]:
        if file_of(command) and command.name != "log":
            raise command.refused("it would write the steps of the minimization too; move it behind reset_timestep 0")


def _constants(commands: Sequence[Command]) -> dict[str, str]:
    """Return the variables that are defined once, as a text or a number."""
    defined = [each for each in commands if each.name == "variable" and len(each.words) > 3]
    count, found = Counter(each.words[1] for each in defined), dict[str, str]()
    for each in defined:
        text = _expanded(" ".join(each.words[3:]), found)
        is_number = each.words[2] == "equal" and not re.search(r"[A-Za-z]", re.sub(r"\d[eE]", "", text))
        if count[each.words[1]] == 1 and (is_number or each.words[2] in ("index", "string")):
            found[each.words[1]] = text
    return found


def _expanded(text: str, constants: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: constants.get(match[1] or match[2] or match[3], match[0]), text)


def active(commands: Sequence[Command]) -> list[Command]:
    """Return the commands without those fixes and dumps that a later one of them removes."""
    found: list[Command] = []
    for command in commands:
        if command.name in ("unfix", "undump"):
            removed = (command.name.removeprefix("un"), *command.words[1:2])
            found = [each for each in found if each.words[:2] != removed]
        else:
            found.append(command)
    return found


def is_in_restart(command: Command) -> bool:
    """Return True for a command whose effect a restart file holds, or that writes a file of the beginning."""
    is_group = command.name == "group" and command.word(2) != "dynamic"
    is_print = command.name == "print" and bool({"file", "append"} & set(command.words[2:]))
    return command.name in ONCE or is_group or is_print


def file_of(command: Command) -> str:
    """Return the file that a command writes as the run proceeds; empty if none."""
    if command.name == "dump":
        return command.word(5)
    if command.name == "log":
        return command.word(1).removeprefix("none")
    return command.value("file", "append", start=4) if command.style in ("ave/time", "print") else ""
