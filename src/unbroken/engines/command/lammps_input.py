"""A LAMMPS input script that can be stopped and resumed: what has to change in it, and the script that resumes.

The commands are those of https://docs.lammps.org/Commands_all.html; `read_restart` brings back the box, the atoms with
positions and velocities, and the step (https://docs.lammps.org/read_restart.html), and no fix, dump or thermo setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.script_edit import NotPlainError, unified_diff

# Makes the system, or changes it once: what a restart file has instead.
_BOX = {"create_box", "read_data"}
_ONCE = {"create_atoms", "velocity", "minimize", "delete_atoms", "displace_atoms", "set", "replicate", "reset_timestep"}
# With these a script is a program, of which the lines alone do not say what runs.
_CONTROL = {"jump", "label", "if", "next", "partition", "rerun", "run_style", "read_restart", "clear", "shell"}
_TEXT_DUMPS = {"atom", "custom"}
_FRAME = r"ITEM: TIMESTEP\n(\d+)\n"
# So often within a run a restart file is written.
_SAVES = 50


@dataclass(frozen=True)
class Command:
    """A command of an input script: its words, and the lines that it stands in."""

    words: tuple[str, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        return self.words[0]


@dataclass(frozen=True)
class LammpsInput:
    """An input script that is plain enough to be changed."""

    path: Path
    lines: tuple[str, ...]
    commands: tuple[Command, ...]
    steps: int

    @property
    def resume_name(self) -> str:
        """The script that resumes."""
        return f"resume_{self.path.name}"

    @property
    def restart_name(self) -> str:
        """What its restart files are called, with `*` for the step."""
        return f"{re.sub(r'^in[.]|[.](in|lmp|lammps)$', '', self.path.name)}.*.rst"

    def outputs(self) -> Iterator[tuple[str, str]]:
        """The trajectories, which grow: name, and the pattern of a frame's beginning."""
        for command in self.commands:
            if command.name == "dump" and len(command.words) > 5 and command.words[3] in _TEXT_DUMPS:
                name = command.words[5]
                if "*" not in name and not name.endswith((".gz", ".zst", ".bin")):
                    yield name, _FRAME

    def inputs(self, folder: Path) -> list[str]:
        """Files of the folder that its commands name."""
        words = [word for command in self.commands for word in command.words[1:]]
        return [word for word in dict.fromkeys(words) if "/" not in word and (folder / word).is_file()]

    def diff(self) -> str:
        """What has to change in it, and the script that resumes, for `patch`."""
        before = self._text(self.lines)
        start, resume = self._text(self._resumable(self.lines)), self._text(self._resuming())
        new = unified_diff(self.resume_name, "", resume).replace(f"--- {self.resume_name}", "--- /dev/null", 1)
        return unified_diff(self.path.name, before, start) + new

    @staticmethod
    def _text(lines: tuple[str, ...] | list[str]) -> str:
        return "".join(f"{line}\n" for line in lines)

    def _resumable(self, lines: tuple[str, ...] | list[str]) -> list[str]:
        run = next(each for each in self.commands if each.name == "run")
        return [*lines[: run.first], *self._run_lines(), *lines[run.last + 1 :]]

    def _run_lines(self) -> list[str]:
        return [
            f"restart         {max(1, self.steps // _SAVES)} {self.restart_name}",
            "timer           timeout ${limit} every 20",
            "run             ${total} upto",
            f"write_restart   {self.restart_name}",
        ]

    def _resuming(self) -> list[str]:
        found = [f"# Resumes {self.path.name}: as it is, but for the lines that make the system."]
        for command in self.commands:
            if command.name in _BOX:
                found.append("read_restart    ${restart}")
            elif command.name == "run":
                found += self._run_lines()
            elif command.name not in _ONCE:
                found += self.lines[command.first : command.last + 1]
        return found


def is_input(path: Path) -> bool:
    """True of a script that begins a simulation of LAMMPS."""
    try:
        names = {command.name for command in _commands(path.read_text().splitlines())}
    except (UnicodeDecodeError, OSError):
        return False
    return {"run", "units"} <= names and bool(names & _BOX)


def read_input(path: Path) -> LammpsInput:
    """NotPlainError saying what in it has to be changed by hand."""
    lines = tuple(path.read_text().splitlines())
    commands = tuple(_commands(lines))
    names = [command.name for command in commands]
    for name in ("run", *sorted(_BOX & set(names))):
        if names.count(name) != 1:
            raise NotPlainError(f"{names.count(name)} times `{name}`")
    if control := [command for command in commands if command.name in {*_CONTROL, "restart", "timer", "write_restart"}]:
        raise NotPlainError(f"line {control[0].first + 1}: `{control[0].name}`")
    run = next(command for command in commands if command.name == "run")
    if len(run.words) != 2:
        raise NotPlainError(f"line {run.first + 1}: `{' '.join(run.words)}`")
    return LammpsInput(path, lines, commands, _steps(run, commands))


def _steps(run: Command, commands: tuple[Command, ...]) -> int:
    word = run.words[1]
    if variable := re.fullmatch(r"\$\{(\w+)\}|\$(\w)", word):
        name = variable[1] or variable[2]
        values = [each.words[3] for each in commands if each.words[:2] == ("variable", name) and len(each.words) == 4]
        word = values[0] if len(values) == 1 else word
    if not word.isdecimal():
        raise NotPlainError(f"line {run.first + 1}: the number of steps is `{run.words[1]}`")
    return int(word)


def _commands(lines: tuple[str, ...] | list[str]) -> Iterator[Command]:
    first, text = 0, ""
    for number, line in enumerate(lines):
        text += line.partition("#")[0].rstrip() + " "
        if text.rstrip().endswith("&"):
            text = text.rstrip()[:-1]
            continue
        if words := text.split():
            yield Command(tuple(words), first, number)
        first, text = number + 1, ""
