"""Refuse an input script of LAMMPS that cannot resume correctly: the line, what is wrong with it, and what to type.

Only commands and fixes that are known to resume are let through; measured with the release of 29 Sep 2021
(tests/engines/test_lammps_fixes.py), and read from the pages of the fixes: "Restart, fix_modify, output".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePath

from unbroken.engines.command.lammps.script import BOX, Command, Variables, active, commands_in, formulas, words_of
from unbroken.engines.script_edit import NotPlainError

# Done once, before the run: their effect is in the restart file.
ONCE = words_of("""
    balance change_box create_atoms create_bonds delete_atoms delete_bonds displace_atoms minimize read_dump replicate
    reset_atom_ids reset_ids reset_mol_ids reset_timestep set velocity
    write_data write_dump write_restart write_coeff pair_write bond_write
    """)
# What force fields, and nothing else, are said with: harmless also in a file that is included.
_INCLUDABLE = words_of("""
    angle_coeff angle_style bond_coeff bond_style comm_modify comm_style dielectric dihedral_coeff dihedral_style
    improper_coeff improper_style kspace_modify kspace_style mass neigh_modify neighbor pair_coeff pair_modify
    pair_style special_bonds timestep units variable
    """)
_SAID_AGAIN = words_of("""
    atom_modify atom_style boundary compute compute_modify dimension dump dump_modify echo fix fix_modify group include
    info lattice log min_modify min_style molecule newton package print processors region restart run run_style suffix
    thermo thermo_modify thermo_style timer uncompute undump unfix
    """)
# These keep nothing from step to step, or their state is in the restart file; so do the families.
_FIXES = words_of("""
    adapt addforce addtorque atom/swap ave/time aveforce balance box/relax deform deposit dt/reset efield ehex enforce2d
    freeze gcmc gravity heat indent langevin lineforce momentum move nve oneway planeforce press/berendsen print rattle
    recenter restrain setforce shake spring store/state temp/berendsen temp/rescale viscous widom
    """)
_FIX_FAMILIES = ("nve/", "nvt", "npt", "nph", "rigid", "wall/", "qeq/", "spring/")
# The variables by which the two scripts learn their goal, their time and their restart file.
_OURS = ("limit", "restart", "total")
_ONE_PLAIN = "write one plain input script for each run; a workflow can start the next one when this one is finished"
_UNKNOWN = (
    f"it is not known how it resumes from a restart file; if its page says so, do as examples/lammps; {_ONE_PLAIN}"
)
# What is refused of some commands: the name, a pattern of the words after it, and why.
_REFUSED = (
    ("read_restart", "", "this script itself resumes; name the script that makes the system"),
    ("reset_timestep", r"(?!0$)", "the steps must count from 0; type reset_timestep 0"),
    ("run_style", r"(?!verlet)", "only `run_style verlet` was tried with restarts"),
    ("timer", r"timeout", "it has a limit already: changed by `unbroken init`, or else remove it"),
    ("group", r"\S+ (delete|clear)\b", "a script that resumes takes its groups from the restart file; remove it"),
    ("pair_style", r"dpd", "each segment would draw the same random numbers again"),
    ("restart", r"\S+ \S*%", "a restart file for each process (`%`) cannot be resumed from; remove the `%`"),
    ("compute", r"\S+ \S+ msd\b.* average yes", "its mean is not in the restart file; remove `average yes`"),
    ("compute", r"\S+ \S+ chunk/atom\b.* once\b", "`once` is done again at a restart; type `every`"),
    ("fix", r"\S+ \S+ ave/time .*(ave (running|window)|mode vector)\b", "it does not continue; average later"),
    ("dump_modify", r".*\btime yes", "the time counts from 0 again after a restart; remove `time yes`"),
    ("dump_modify", r".*\bLAST\b", "`thresh ... LAST` compares with values that are not in the restart file"),
    ("variable", rf"({'|'.join(_OURS)}) ", f"unbroken sets {', '.join(_OURS)} on the command line; type another name"),
)
# They count from the restart: what to type for them.
_COUNTS_AGAIN = {
    "elapsed": "counts from the start of each segment; type elaplong",
    "time": "counts from 0 again after a restart; define `variable t equal step*dt` and type v_t",
}


def confirm_plain(path: Path, commands: Sequence[Command]) -> Variables:
    """Return the variables of a script that can be resumed; raise NotPlainError with the line that prevents it."""
    variables = Variables([*commands, *(each for command in commands for each in _included(path, command))])
    for command in commands:
        _confirm_known(command)
    _confirm_order(commands)
    before = commands[: next(at for at, each in enumerate(commands) if each.name == "run")]
    for command in before:
        _confirm_words(command, variables)
        name = PurePath(file_of(command))
        if name.is_absolute() or ".." in name.parts:
            raise command.refused(f"{name} is outside of the run's folder; type {name.name}")
    for command in active(before):
        _confirm_fix(command, variables)
    return variables


def _included(path: Path, command: Command) -> list[Command]:
    if command.name != "include" or not command.word(1):
        return []
    file = path.parent / command.word(1)
    if not file.is_file():
        raise command.refused(f"{command.word(1)} is not there, so it is not known what it says")
    found = list(commands_in(file.read_text().splitlines()))
    for each in found:
        if each.name not in _INCLUDABLE:
            raise command.refused(f"its line {each.first + 1} is `{each.name}`; move that line into {path.name}")
    return found


def _confirm_known(command: Command) -> None:
    words = " ".join(command.words[1:])
    for name, pattern, why in _REFUSED:
        if command.name == name and re.match(pattern, words):
            raise command.refused(why)
    if command.name not in _INCLUDABLE | _SAID_AGAIN | ONCE | BOX:
        raise command.refused(_UNKNOWN)


def _confirm_order(commands: Sequence[Command]) -> None:
    names = [command.name for command in commands]
    if "run" not in names or not BOX & set(names):
        raise NotPlainError("no `run`, or neither `read_data` nor `create_box`")
    for name in ("run", *BOX):
        for second in [each for each in commands if each.name == name][1:]:
            raise second.refused(f"the second `{name}`; {_ONE_PLAIN}")
    steps = [each for each in commands if each.name in ("minimize", "reset_timestep", "run")]
    for minimize, after in pairwise(steps):
        if minimize.name == "minimize" and after.name == "run":
            raise minimize.refused("its iterations count as steps; type reset_timestep 0 behind it")
    for command in commands[: names.index("reset_timestep") if "minimize" in names else 0]:
        if file_of(command) and command.name != "log":
            raise command.refused("it would write the steps of the minimization too; move it behind reset_timestep 0")


def _confirm_words(command: Command, variables: Variables) -> None:
    """Refuse what counts from the restart, and what takes a value of the moment in which the line is read."""
    needed = [formula for word in command.parts for formula in formulas(word)]
    needed += command.words[2:] if command.name in ("variable", "thermo_style") else ()
    for name, why in _COUNTS_AGAIN.items():
        if any(re.search(rf"(?<![\w.]){name}\b", each) for each in needed):
            raise command.refused(f"`{name}` {why}")
    if is_in_restart(command) or command.name in BOX:
        return
    if found := next(filter(None, map(variables.changing_value, command.parts)), ""):
        raise command.refused(
            f"it takes `{found}` when it is read, which is another value at a restart; type the number"
        )


def _confirm_fix(command: Command, variables: Variables) -> None:
    style = command.style
    if command.name != "fix":
        return
    if style not in _FIXES and not style.startswith(_FIX_FAMILIES):
        raise command.refused(_UNKNOWN)
    if style == "ave/time" and variables.number(command.word(6)) is None:
        raise command.refused("over how many steps it averages is not a number; type numbers for its first three words")
    if style == "langevin" and variables.number(command.word(7)) is None:
        raise command.refused("its seed is not a number; type a number")
    if style == "print" and file_of(command) and not says_its_step(command, variables):
        raise command.refused(
            "its rows do not say their step, so that of a restart step would stand there twice; begin them with "
            '"$(step) "'
        )


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


def says_its_step(command: Command, variables: Variables) -> bool:
    """Return True for a `fix print` whose rows begin with their step."""
    match = re.match(r"(?:\$\{?(\w+)\}?|\$\(step(?::[^)]*)?\))(?:[ ,;]|$)", command.word(5))
    return match is not None and (match[1] is None or variables.is_step(match[1]))
