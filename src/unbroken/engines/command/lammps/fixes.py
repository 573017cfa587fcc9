"""Says how a fix, a compute or a pair style of LAMMPS resumes from a restart file.

Measured with the release of 29 Sep 2021 (tests/engines/test_lammps_fixes.py), and read from the pages of the fixes:
"Restart, fix_modify, output, run start/stop, minimize info".
"""

from __future__ import annotations

from unbroken.engines.command.lammps.script import Command, Variables, words_of

# They keep nothing from step to step, or their state is in the restart file.
_RESUMES = words_of("""
    adapt addforce addtorque atom/swap aveforce balance cmap deform deposit dt/reset efield ehex enforce2d freeze gcmc
    gravity heat indent lineforce momentum move nve oneway planeforce press/berendsen print property/atom rattle
    recenter restrain setforce shake spring store/state temp/berendsen temp/rescale viscous widom
    """)
_FAMILIES = ("nve/", "nvt", "npt", "nph", "rigid", "wall/", "qeq/", "spring/")
# A number of the command begins their random numbers: where it stands.
_SEED_AT = {"langevin": 7, "temp/csvr": 7, "temp/csld": 7, "brownian": 5, "tfmc": 6}
_PAIR_SEED_AT = {"dpd": 4, "dpd/tstat": 5}
AVERAGES = frozenset(
    {"ave/atom", "ave/chunk", "ave/correlate", "ave/grid", "ave/histo", "ave/histo/weight", "ave/time"}
)
_WHY_NOT = {
    "vector": "its list is not in the restart file and begins again at a restart; write the values by "
    "`fix ... ave/time ... file NAME`",
    "thermal/conductivity": "what it has exchanged is not in the restart file and begins again at 0",
    "viscosity": "what it has exchanged is not in the restart file and begins again at 0",
    "halt": "it can end the run before its goal, which then looks like a run that does not advance; remove it",
}
_UNKNOWN = (
    "it is not known whether this fix resumes from a restart file; if its page says so, write the script that resumes "
    "by hand, as in examples/lammps"
)
_SUFFIXES = ("/omp", "/gpu", "/intel", "/opt", "/kk", "/kk/device", "/kk/host")
_RAMPED_KEYWORDS = frozenset({"temp", "iso", "aniso", "tri", "x", "y", "z", "xy", "yz", "xz"})
_RAMPED_AT = {"langevin": 4, "temp/berendsen": 4, "temp/csvr": 4, "temp/csld": 4, "temp/rescale": 5}


def style_of(command: Command) -> str:
    """Return the style of a `fix` or `compute` without the suffix of an accelerator; empty if it has none."""
    style = command.words[3] if len(command.words) > 3 else ""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        style = style.removesuffix(suffix)
    return style


def confirm_resumes(command: Command, variables: Variables) -> None:
    """Raise NotPlainError for a fix or compute whose result after a restart is another one."""
    style = style_of(command)
    if command.name == "compute" and style == "msd" and command.value("average") == "yes":
        raise command.refused("its mean is not in the restart file and begins again at a restart; remove `average yes`")
    is_bound_once = style == "chunk/atom" and "once" in (command.value("ids"), command.value("nchunk"))
    if is_bound_once and command.words[4:5] not in (("type",), ("molecule",)):
        raise command.refused("`once` is done again at a restart, with the positions of then; type `every`")
    if command.name != "fix":
        return
    if style in AVERAGES:
        _confirm_average(command, variables)
    elif style in _SEED_AT:
        if seed_change(command, variables) is None:
            raise command.refused("its seed is not a number; type a number")
    elif style not in _RESUMES and not style.startswith(_FAMILIES):
        raise command.refused(_WHY_NOT.get(style, _UNKNOWN))


def _confirm_average(command: Command, variables: Variables) -> None:
    ave = command.value("ave", 7)
    if ave in ("running", "window"):
        raise command.refused(
            f"`ave {ave}` averages over earlier blocks, which are not in the restart file; remove it, and average the "
            "blocks in the file afterwards"
        )
    if window_steps(command, variables) is None:
        raise command.refused("over how many steps it averages is not a number; type numbers for its first three words")


def window_steps(command: Command, variables: Variables) -> int | None:
    """Return after how many steps an average is complete (`Nfreq`); None if it is not a number."""
    return variables.number(command.words[6]) if len(command.words) > 6 else None


def seed_change(command: Command, variables: Variables) -> dict[int, str] | None:
    """Return the seed's place and what to write there on a resume; None if it is not a number, {} if there is none.

    With the same seed each segment would draw the same random numbers again.
    """
    if command.name == "fix":
        at = _SEED_AT.get(style_of(command))
    else:
        at = _PAIR_SEED_AT.get(command.words[1]) if command.name == "pair_style" else None
    if at is None:
        return {}
    seed = variables.number(command.words[at]) if len(command.words) > at else None
    return None if seed is None else {at: f"$(1+({seed - 1}+step)%900000000)"}


def is_ramp(command: Command) -> bool:
    """Return True for a command whose values run from a start to an end, which `run ... stop` says."""
    words = command.words
    if command.name == "variable":
        return len(words) > 3 and "ramp(" in " ".join(words[3:]).replace(" ", "")
    if command.name == "pair_style":
        return words[1:2] == ("dpd/tstat",) and words[2:3] != words[3:4]
    if command.name != "fix":
        return False
    style = style_of(command)
    if style == "deform":
        return bool({"final", "delta", "scale", "volume"} & set(words[5:]))
    places = [_RAMPED_AT[style]] if style in _RAMPED_AT else []
    if style.startswith(("nvt", "npt", "nph", "rigid/", "press/berendsen")):
        places += [at + 1 for at in range(4, len(words) - 2) if words[at] in _RAMPED_KEYWORDS]
    return any(words[at] != words[at + 1] for at in places if at + 1 < len(words) and not words[at].startswith("v_"))
