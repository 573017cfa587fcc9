"""Write the two scripts that LAMMPS needs for a run in segments: the changed one that starts, and one that resumes.

`read_restart` brings back the box, the atoms with positions and velocities, the groups and the step, and no fix,
dump or thermo setting (https://docs.lammps.org/read_restart.html).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unbroken.engines.command.lammps.checks import confirm_plain, is_in_restart
from unbroken.engines.command.lammps.outputs import LOG, continued, continued_dumps, folders, outputs_of
from unbroken.engines.command.lammps.script import AVERAGES, BOX, Command, Variables, active, commands_in
from unbroken.engines.script_edit import unified_diff

# So often within a run a restart file is written.
_SAVES = 50
# The clock is looked at after so many steps, or after the next multiple of all averaging windows.
_CLOCK_STEPS = 20
# Where the start of a ramp is in a fix, or the keywords before it.
_RAMPED_AT = {"langevin": 4, "temp/berendsen": 4, "temp/rescale": 5}
_RAMPED_KEYWORDS = frozenset({"temp", "iso", "aniso", "tri", "x", "y", "z", "xy", "yz", "xz"})
_RAMPED_FIXES = ("nvt", "npt", "nph", "rigid/", "press/berendsen")


@dataclass(frozen=True)
class LammpsInput:
    """Hold an input script that can be resumed once it is changed."""

    path: Path
    lines: tuple[str, ...]
    commands: tuple[Command, ...]
    variables: Variables
    steps: int

    @property
    def resume_name(self) -> str:
        """Return the name of the script that resumes."""
        return f"resume_{self.path.name}"

    @property
    def restart_name(self) -> str:
        """Return the name of its restart files, with `*` for the step."""
        return f"{re.sub(r'^in[.]|[.](in|lmp|lammps)$', '', self.path.name)}.*.rst"

    @cached_property
    def has_ramp(self) -> bool:
        """Return True if the values of a command run to an end at the last step."""
        return any(_is_ramp(command) for command in self._active)

    def outputs(self) -> dict[str, str]:
        """Return the files that grow by records with their steps, each with the pattern of a record's beginning."""
        return outputs_of(self._active, self.variables, self.save_steps)

    def inputs(self, folder: Path) -> list[str]:
        """Return the files of the folder that its commands name."""
        words = [word for command in self.commands for word in command.words[1:]]
        return [word for word in dict.fromkeys(words) if "/" not in word and (folder / word).is_file()]

    def diff(self) -> str:
        """Return what has to change in it, and the script that resumes, for `patch`."""
        before, start, resume = (_text(each) for each in (self.lines, self._starting(), self._resuming()))
        new = unified_diff(self.resume_name, "", resume).replace(f"--- {self.resume_name}", "--- /dev/null", 1)
        return unified_diff(self.path.name, before, start) + new

    # --- when it saves ---

    @cached_property
    def clock_steps(self) -> int:
        """Return the steps between two looks at the clock: a multiple of every averaging window.

        What a fix has averaged of a window is not in a restart file, so a restart is right at a window's end alone.
        Where neighbor lists are built after a fixed number of steps, restarts there can be bit-exact.
        """
        averages = [each for each in self._active if each.style in AVERAGES]
        windows = {each: self.variables.number(each.words[6]) or 1 for each in averages}
        fixed = [each for each in self._before if each.name == "neigh_modify" and each.value("check") == "no"]
        rebuilt = [self.variables.number(each.value("every")) or 1 for each in fixed]
        unit = math.lcm(*windows.values(), *(each for each in rebuilt if 2 * each <= self.steps))
        for command, steps in windows.items():
            if 2 * unit > self.steps and steps > 1:
                raise command.refused(
                    f"a restart is right only where all averages are complete, each {unit} steps of {self.steps}; "
                    "choose shorter averages (third number), whose lengths divide each other"
                )
        return unit * math.ceil(_CLOCK_STEPS / unit)

    @property
    def save_steps(self) -> int:
        """Return the steps between two restart files."""
        return max(1, self.steps // _SAVES // self.clock_steps) * self.clock_steps

    # --- the two scripts ---

    @cached_property
    def _run(self) -> Command:
        return next(each for each in self.commands if each.name == "run")

    @cached_property
    def _before(self) -> tuple[Command, ...]:
        return tuple(each for each in self.commands if each.first < self._run.first)

    @cached_property
    def _active(self) -> tuple[Command, ...]:
        return active(self._before)

    @cached_property
    def _after(self) -> tuple[Command, ...]:
        return tuple(each for each in self.commands if each.first > self._run.first)

    def _starting(self) -> Iterator[str]:
        yield from (f"shell           mkdir {each}" for each in folders(self._before))
        dropped = {each.first for each in self._before if _is_own_restart(each)}
        yield from (line for at, line in enumerate(self.lines[: self._run.first]) if at not in dropped)
        yield from self._run_lines()
        yield from self.lines[self._run.last + 1 :]

    def _resuming(self) -> Iterator[str]:
        yield f"# Resumes {self.path.name}: as it is, but for the lines that make the system."
        yield from (f"shell           mkdir {each}" for each in folders(self._before))
        if not any(each.name == "log" for each in self._before):
            yield f"log             {LOG} append"
        for command in self._before:
            if command.name in BOX:
                yield "read_restart    ${restart}"
            elif not is_in_restart(command) and not _is_own_restart(command):
                yield from self._said_again(command)
        yield from continued_dumps(self._active)
        yield from self._run_lines()
        yield from (line for each in self._after for line in self.lines[each.first : each.last + 1])

    def _said_again(self, command: Command) -> Sequence[str]:
        text = continued(command)
        if command.name == "fix" and command.style == "langevin":
            # With the same seed each segment would draw the same random numbers again.
            seed = (self.variables.number("".join(command.words[7:8])) or 1) - 1
            text = command.changed({7: f"$(1+({seed}+step)%900000000)"})
        return self.lines[command.first : command.last + 1] if text == command.changed({}) else (text,)

    def _run_lines(self) -> Iterator[str]:
        stop = self.steps if self.has_ramp else "${total}"  # LAMMPS refuses a goal beyond the end of a ramp
        if not any(each.name == "thermo_modify" and "flush" in each.words for each in self._before):
            yield "thermo_modify   flush yes"
        yield f"restart         {self.save_steps} {self.restart_name}"
        yield f"timer           timeout ${{limit}} every {self.clock_steps}"
        yield f"run             ${{total}} upto start 0 stop {stop}"
        yield f"write_restart   {self.restart_name}"
        if self._after:
            yield 'if              "$(step) < ${total}" then quit'


def _is_own_restart(command: Command) -> bool:
    """Return True for a `restart` with one file name, which ours replaces; one with two only adds files of its own."""
    return command.name == "restart" and len(command.words) == 3


def _is_ramp(command: Command) -> bool:
    """Return True for a command whose values run from a start to an end, which `run ... stop` says."""
    words, style = command.words, command.style
    if command.name == "variable":
        return "ramp(" in " ".join(words[3:]).replace(" ", "")
    if command.name != "fix":
        return False
    if style == "deform":
        return bool({"final", "delta", "scale", "volume"} & set(words[5:]))
    places = [_RAMPED_AT[style]] if style in _RAMPED_AT else []
    if style.startswith(_RAMPED_FIXES):
        places += [at + 1 for at in range(4, len(words) - 2) if words[at] in _RAMPED_KEYWORDS]
    return any(words[at] != words[at + 1] for at in places if at + 1 < len(words) and not words[at].startswith("v_"))


def _text(lines: Sequence[str] | Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def read_input(path: Path) -> LammpsInput:
    """Return the script if it can be resumed; raise NotPlainError with the line that prevents it."""
    lines = tuple(path.read_text().splitlines())
    commands = tuple(commands_in(lines))
    variables = confirm_plain(path, commands)
    run = next(command for command in commands if command.name == "run")
    steps = variables.number(run.words[1]) if len(run.words) == 2 else None
    if not steps:
        raise run.refused("the number of steps is not known; type `run N` with a number and nothing behind it")
    script = LammpsInput(path, lines, commands, variables, steps)
    _ = script.clock_steps
    return script
