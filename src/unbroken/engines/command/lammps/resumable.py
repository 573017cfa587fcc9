"""Writes the two scripts that LAMMPS needs for a run in segments: the changed one that starts, and one that resumes.

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

from unbroken.engines.command.lammps.checks import ONCE, confirm_plain
from unbroken.engines.command.lammps.fixes import AVERAGES, is_ramp, seed_change, style_of, window_steps
from unbroken.engines.command.lammps.script import BOX, Command, Variables, active, commands_in
from unbroken.engines.command.lammps.writers import (
    continued,
    continued_dumps,
    file_of,
    folders,
    log_record,
    records,
    writes_once,
)
from unbroken.engines.script_edit import unified_diff

LOG = "log.lammps"
# So often within a run a restart file is written.
_SAVES = 50
# The clock is looked at after so many steps, or after the next multiple of all averaging windows.
_CLOCK_STEPS = 20


@dataclass(frozen=True)
class LammpsInput:
    """An input script that can be resumed once it is changed."""

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
        if own := self._own_restart:
            return own.words[2] if "*" in own.words[2] else f"{own.words[2]}.*"
        return f"{re.sub(r'^in[.]|[.](in|lmp|lammps)$', '', self.path.name)}.*.rst"

    @property
    def ramp(self) -> Command | None:
        """Return the first command whose values run to an end at the last step."""
        return next((command for command in self._active if is_ramp(command)), None)

    def outputs(self) -> dict[str, str]:
        """Return the files that grow by records with their steps, each with the pattern of a record's beginning."""
        found = dict(records(self._active, self.variables))
        logs = [file_of(command) for command in self._before if command.name == "log"] or [LOG]
        pattern = log_record(self._active, self.variables, self.save_steps)
        if len(logs) == 1 and logs[0] and pattern:
            found[logs[0]] = pattern
        return found

    def doubled(self) -> Iterator[Command]:
        """Yield each `fix print` whose rows do not say their step: that of a restart step comes twice in its file."""
        known = self.outputs()
        for command in self._active:
            if command.name == "fix" and style_of(command) == "print" and file_of(command) not in {"", *known}:
                yield command

    def inputs(self, folder: Path) -> list[str]:
        """Return the files of the folder that its commands name."""
        words = [word for command in self.commands for word in command.words[1:]]
        return [word for word in dict.fromkeys(words) if "/" not in word and (folder / word).is_file()]

    def diff(self) -> str:
        """Return what has to change in it, and the script that resumes, for `patch`."""
        before = _text(self.lines)
        start, resume = _text(list(self._starting())), _text(list(self._resuming()))
        new = unified_diff(self.resume_name, "", resume).replace(f"--- {self.resume_name}", "--- /dev/null", 1)
        return unified_diff(self.path.name, before, start) + new

    # --- when it saves ---

    @cached_property
    def clock_steps(self) -> int:
        """Return the steps between two looks at the clock: a multiple of every averaging window.

        What a fix has averaged of a window is not in a restart file, so a restart is right at a window's end alone.
        """
        unit = math.lcm(*self._windows().values(), *self._fixed_neighbor_steps())
        for command, steps in self._windows().items():
            if 2 * math.lcm(steps, unit) > self.steps and steps > 1:
                raise command.refused(
                    f"a restart is right only where all averages are complete, each {unit} steps of {self.steps}; "
                    "choose shorter averages (third number), whose lengths divide each other"
                )
        return unit * math.ceil(_CLOCK_STEPS / unit)

    @property
    def save_steps(self) -> int:
        """Return the steps between two restart files."""
        if own := self._own_restart:
            return self.variables.number(own.words[1]) or 0
        return max(1, self.steps // _SAVES // self.clock_steps) * self.clock_steps

    def confirm_restart(self) -> None:
        """Raise NotPlainError if the script's own `restart` is not at the end of all averaging windows."""
        own, unit = self._own_restart, self.clock_steps
        if own is None:
            return
        if "%" in own.words[2]:
            raise own.refused("a restart file for each process (`%`) cannot be resumed from; remove the `%`")
        if not self.save_steps or self.save_steps % unit:
            raise own.refused(f"a restart is right only where all averages are complete; type a multiple of {unit}")

    def _windows(self) -> dict[Command, int]:
        averages = (each for each in self._active if each.name == "fix" and style_of(each) in AVERAGES)
        return {each: window_steps(each, self.variables) or 1 for each in averages}

    def _fixed_neighbor_steps(self) -> Iterator[int]:
        """Yield after how many steps neighbor lists are built, if that is fixed: then restarts can be bit-exact."""
        for command in self._before:
            if command.name == "neigh_modify" and command.value("check") == "no":
                steps = self.variables.number(command.value("every")) or 1
                if 2 * steps <= self.steps:
                    yield steps

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

    @cached_property
    def _own_restart(self) -> Command | None:
        """Return the script's own `restart` with one file name; one with two names only adds a file of its own."""
        found = [each for each in self._before if each.name == "restart" and len(each.words) == 3]
        return found[-1] if found else None

    def _starting(self) -> Iterator[str]:
        yield from (f"shell           mkdir {each}" for each in folders(self._before))
        dropped = {self._own_restart.first} if self._own_restart else set()
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
            elif not self._is_in_restart(command) and command is not self._own_restart:
                yield from self._said_again(command)
        yield from continued_dumps(self._active)
        yield from self._run_lines()
        yield from (line for each in self._after for line in self.lines[each.first : each.last + 1])

    @staticmethod
    def _is_in_restart(command: Command) -> bool:
        """Return True for a command whose effect a restart file holds, or that writes a file of the beginning."""
        is_group = command.name == "group" and command.words[2:3] != ("dynamic",)
        return command.name in ONCE or is_group or writes_once(command)

    def _said_again(self, command: Command) -> Sequence[str]:
        text = continued(command)
        if changes := seed_change(command, self.variables):
            text = command.changed(changes)
        return self.lines[command.first : command.last + 1] if text == command.text else (text,)

    def _run_lines(self) -> Iterator[str]:
        stop = self.steps if self.ramp else "${total}"  # LAMMPS refuses a goal beyond the end of a ramp
        if not any(each.name == "thermo_modify" and "flush" in each.words for each in self._before):
            yield "thermo_modify   flush yes"
        yield f"restart         {self.save_steps} {self.restart_name}"
        yield f"timer           timeout ${{limit}} every {self.clock_steps}"
        yield f"run             ${{total}} upto start 0 stop {stop}"
        yield f"write_restart   {self.restart_name}"
        if self._after:
            yield 'if              "$(step) < ${total}" then quit'


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def read_input(path: Path) -> LammpsInput:
    """Return the script, if it can be resumed; NotPlainError with the line that is in the way."""
    lines = tuple(path.read_text().splitlines())
    commands = tuple(commands_in(lines))
    variables = confirm_plain(path, commands)
    run = next(command for command in commands if command.name == "run")
    steps = variables.number(run.words[1]) if len(run.words) == 2 else None
    if not steps:
        raise run.refused("the number of steps is not known; type `run N` with a number and nothing behind it")
    script = LammpsInput(path, lines, commands, variables, steps)
    script.confirm_restart()
    return script
