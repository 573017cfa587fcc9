"""Refuses an input script of LAMMPS that cannot be resumed right: the line, what is wrong with it, and what to type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.command.lammps.fixes import AVERAGES, confirm_resumes, seed_change, style_of
from unbroken.engines.command.lammps.script import BOX, Command, Variables, active, commands_in, words_of
from unbroken.engines.command.lammps.writers import file_of, is_writer, rewrites_averages
from unbroken.engines.script_edit import NotPlainError

# Done once, before the run: their effect is in the restart file.
ONCE = words_of("""
    balance change_box create_atoms create_bonds delete_atoms delete_bonds displace_atoms minimize read_dump replicate
    reset_atom_ids reset_ids reset_mol_ids reset_timestep set velocity
    write_data write_dump write_restart write_coeff pair_write bond_write
    """)
_ONE_PLAIN = "write one plain input script for each run; a workflow can start the next one when this one is finished"
# With these a script is a program, whose lines alone do not say what runs.
_CONTROL = frozenset({"clear", "if", "jump", "label", "next", "partition", "python", "quit", "rerun", "shell"})
_OTHER_RUNS = frozenset(
    {"dynamical_matrix", "hyper", "neb", "neb/spin", "prd", "tad", "temper", "temper/grem", "temper/npt", "third_order"}
)
# What force fields, and nothing else, are said with: harmless also in a file that is included.
_INCLUDABLE = words_of("""
    angle_coeff angle_style bond_coeff bond_style comm_modify comm_style dielectric dihedral_coeff dihedral_style
    improper_coeff improper_style kspace_modify kspace_style mass neigh_modify neighbor pair_coeff pair_modify
    pair_style special_bonds timestep units variable
    """)
_KEPT = words_of("""
    atom_modify atom_style boundary compute compute_modify dimension dump dump_modify echo fix fix_modify group include
    info lattice log min_modify min_style molecule newton package print processors region restart run run_style suffix
    thermo thermo_modify thermo_style timer uncompute undump unfix
    """)
_KNOWN = _INCLUDABLE | _KEPT | ONCE | BOX
# The variables by which the two scripts learn their goal, their time and their restart file.
_OURS = frozenset({"total", "limit", "restart"})
# They count from the restart: what to type for them.
_COUNTS_AGAIN = {
    "elapsed": "counts from the start of each segment; type elaplong",
    "time": "counts from 0 again after a restart with some releases; define `variable t equal step*dt` and type v_t",
}


def confirm_plain(path: Path, commands: Sequence[Command]) -> Variables:
    """Return the variables of a script that can be resumed; NotPlainError with the line of one that cannot."""
    _confirm_one_run(commands)
    included = [*commands, *(each for command in commands for each in _included(path, command))]
    variables = Variables.of(included)
    before = list(_before_run(commands))
    for command in before:
        for check in _CHECKS:
            check(command, variables)
    for command in active(before):
        _confirm_fix(command, variables)
    _confirm_order(commands)
    _confirm_averaged_dumps(commands)
    return variables


def _confirm_one_run(commands: Sequence[Command]) -> None:
    for command in commands:
        if command.name in _CONTROL:
            raise command.refused(f"what follows depends on more than the lines themselves; {_ONE_PLAIN}")
        if command.name in _OTHER_RUNS:
            raise command.refused(f"it cannot be stopped and resumed; {_ONE_PLAIN}")
    for name, why in (
        ("run", f"the second `run`; {_ONE_PLAIN}"),
        *((each, "makes the system once more") for each in BOX),
    ):
        found = [command for command in commands if command.name == name]
        if len(found) > 1:
            raise found[1].refused(why)
    if not any(command.name == "run" for command in commands):
        raise NotPlainError("no `run`")


def _before_run(commands: Sequence[Command]) -> Iterator[Command]:
    for command in commands:
        if command.name == "run":
            return
        yield command


def _included(path: Path, command: Command) -> list[Command]:
    if command.name != "include" or len(command.words) < 2:
        return []
    file = path.parent / command.words[1]
    if not file.is_file():
        raise command.refused(f"{command.words[1]} is not there, so it is not known what it says")
    found = list(commands_in(file.read_text().splitlines()))
    for each in found:
        if each.name not in _INCLUDABLE:
            raise command.refused(f"its line {each.first + 1} is `{each.name}`; move that line into {path.name}")
    return found


# --- one command each ---


def _confirm_known(command: Command, variables: Variables) -> None:
    if command.name == "read_restart":
        raise command.refused("this script itself resumes; name the script that makes the system")
    if command.name not in _KNOWN:
        raise command.refused("it is not known whether a script that resumes must say it again; " + _ONE_PLAIN)
    if command.name == "run_style" and command.words[1:2] != ("verlet",):
        raise command.refused("only `run_style verlet` was tried with restarts")
    if command.name == "timer" and "timeout" in command.words:
        raise command.refused("it has a limit already: changed by `unbroken init`, or else remove it")
    if command.name == "reset_timestep" and command.words[1:2] != ("0",):
        raise command.refused("the steps must count from 0; type reset_timestep 0")
    if command.name == "group" and {"delete", "clear"} & set(command.words[2:3]):
        raise command.refused("a script that resumes takes its groups from the restart file; remove it")


def _confirm_step_names(command: Command, variables: Variables) -> None:
    named = variables.needed_by(command)
    if command.name == "thermo_style":
        named |= set(command.words[2:])
    for name in sorted(named & set(_COUNTS_AGAIN)):
        raise command.refused(f"`{name}` {_COUNTS_AGAIN[name]}")


def _confirm_not_measured(command: Command, variables: Variables) -> None:
    if command.name in ONCE | BOX or (command.name == "group" and command.words[2:3] != ("dynamic",)):
        return
    if name := variables.measured_in(command):
        raise command.refused(
            f"it takes `{name}` from the system of the moment, which is another at a restart; type the number"
        )


def _confirm_output(command: Command, variables: Variables) -> None:
    name = file_of(command)
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise command.refused(f"{name} is outside of the run's folder; type {PurePath(name).name}")
    if command.name == "dump_modify" and command.value("time") == "yes":
        raise command.refused(
            f"the time {_COUNTS_AGAIN['time'].partition(';')[0]}; remove `time yes`, frames have the step"
        )
    if command.name == "dump_modify" and "LAST" in command.words:
        raise command.refused("`thresh ... LAST` compares with values that are not in the restart file")


def _confirm_variable(command: Command, variables: Variables) -> None:
    if command.name == "variable" and command.words[1:2] and command.words[1] in _OURS:
        raise command.refused(f"unbroken sets {', '.join(sorted(_OURS))} on the command line; type another name")


def _confirm_fix(command: Command, variables: Variables) -> None:
    confirm_resumes(command, variables)
    if command.name == "pair_style" and seed_change(command, variables) is None:
        raise command.refused("its seed is not a number; type a number")


_CHECKS: tuple[Callable[[Command, Variables], None], ...] = (
    _confirm_known,
    _confirm_step_names,
    _confirm_not_measured,
    _confirm_output,
    _confirm_variable,
)


# --- their order ---


def _confirm_order(commands: Sequence[Command]) -> None:
    names = [command.name for command in commands]
    box = next((at for at, name in enumerate(names) if name in BOX), None)
    if box is None:
        raise NotPlainError("neither `read_data` nor `create_box`")
    run = names.index("run")
    for command in commands[:box]:
        if command.name == "fix":
            raise command.refused("a fix before the system is made; not known whether it resumes")
    minimized = [at for at in range(run) if names[at] == "minimize"]
    if not minimized:
        return
    if "reset_timestep" not in names[minimized[-1] : run]:
        raise commands[minimized[-1]].refused("its iterations count as steps; type reset_timestep 0 behind it")
    reset = max(at for at in range(run) if names[at] == "reset_timestep")
    for command in commands[:reset]:
        if is_writer(command):
            raise command.refused("it would write the steps of the minimization too; move it behind reset_timestep 0")


def _confirm_averaged_dumps(commands: Sequence[Command]) -> None:
    averages = {each.words[1] for each in commands if each.name == "fix" and style_of(each) in AVERAGES}
    for command in commands:
        if command.name == "dump" and rewrites_averages(command, averages):
            raise command.refused(
                "a restart would write its last frame again, with averages of 0; dump what comes from fixes and what "
                "comes from computes or variables into two files"
            )
