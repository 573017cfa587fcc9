"""Write the two scripts that LAMMPS needs for a run in segments: the changed one that starts, and one that resumes.

`read_restart` brings back the box, the atoms with positions and velocities, the groups and the step, and no fix,
dump or thermo setting (https://docs.lammps.org/read_restart.html).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unbroken.engines.command.lammps.script import (
    BOX,
    Command,
    active,
    commands_in,
    confirm_plain,
    file_of,
    is_in_restart,
)
from unbroken.engines.files.settings import ROWS_KIND, When
from unbroken.engines.script_edit import NotPlainError
from unbroken.errors import ConfigError
from unbroken.presets.preset import Reading

LOG = "log.lammps"
_WRITERS = {"dump", "log", "print", "restart", "write_coeff", "write_data", "write_dump", "write_restart"}
# So often within a run a restart file is written.
_SAVES = 50
# The clock is looked at after so many steps, or after the next multiple of all averaging windows.
_CLOCK_STEPS = 20
_FRAME = r"ITEM: TIMESTEP\n(\d+)\n"
_FRAME_OF = {"atom": _FRAME, "custom": _FRAME, "local": _FRAME, "grid": _FRAME, "xyz": r"^\d+\nAtoms\. Timestep: (\d+)"}
_BLOCK = r"^(\d+) \d+$"  # of `fix ave/time mode vector`: the step, and how many rows follow
_PACKED = (".gz", ".zst", ".bin")
# A checkpoint waits for the next row, so a log with rows much rarer than restart files is not joined by them.
_RARE = 5
# A value that a fix changes in the course of the run, from a start to an end.
_RAMPED_FIX = re.compile(r"(nvt|npt|nph|rigid|langevin|temp/|press/berendsen)")
_RAMP = re.compile(
    r"(?:^langevin|^temp/berendsen|^temp/rescale \S+| temp| iso| aniso| tri| [xyz]| xy| yz| xz) (?!v_)(\S+) (?!\1 )\S"
)
_RAMPED_BOX = {"final", "delta", "scale", "volume"}


@dataclass(frozen=True)
class LammpsInput:
    """Hold an input script that can be resumed once it is changed."""

    path: Path
    lines: tuple[str, ...]
    commands: Sequence[Command]  # with constants filled in

    @property
    def restart_name(self) -> str:
        """Return the name of its restart files, with `*` for the step."""
        return f"{re.sub(r'^in[.]|[.](in|lmp|lammps)$', '', self.path.name)}.*.rst"

    @property
    def steps(self) -> int:
        """Return for how many steps it runs."""
        return int(self._run.words[1])

    @cached_property
    def has_ramp(self) -> bool:
        """Return True if the values of a command run to an end at the last step."""
        return any(_is_ramp(command) for command in self._active)

    def inputs(self, folder: Path) -> list[str]:
        """Return the files of the folder that its commands read; what they write may lie there from a run before."""
        readers = [each for each in self.commands if each.name not in _WRITERS]
        words = [word for each in readers for word in each.words[1:] if word != file_of(each)]
        return [word for word in dict.fromkeys(words) if "/" not in word and (folder / word).is_file()]

    @property
    def starting(self) -> str:
        """Return the script that starts, changed so that it saves, leaves in time, and stops at the goal."""
        return _text(self._starting())

    @property
    def resuming(self) -> str:
        """Return the script that resumes."""
        return _text(self._resuming())

    # --- when it saves ---

    @cached_property
    def clock_steps(self) -> int:
        """Return the steps between two looks at the clock: a multiple of every averaging window.

        What a fix has averaged of a window is not in a restart file, so a restart is right at a window's end alone.
        Where neighbor lists are built after a fixed number of steps, restarts there can be bit-exact.
        """
        windows = {each: int(each.words[6]) for each in self._active if each.style == "ave/time"}
        fixed = [each for each in self._before if each.name == "neigh_modify" and each.value("check") == "no"]
        rebuilt = [int(each.value("every") or 1) for each in fixed]
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

    # --- what it writes ---

    def outputs(self) -> dict[str, str]:
        """Return the files that grow by records with their steps, each with the pattern of a record's beginning."""
        found = {file_of(command): _record_of(command) for command in self._active}
        found[self._log] = self._log_record()
        return {name: pattern for name, pattern in found.items() if name and pattern}

    @property
    def _log(self) -> str:
        return next((file_of(each) for each in reversed(self._active) if each.name == "log"), LOG)

    def _log_record(self) -> str:
        """Return the pattern of a row of the thermo table in the log; empty where the log is no plain table."""
        every = next(
            (int(each.word(1)) for each in self._active if each.name == "thermo" and each.word(1).isdecimal()), 0
        )
        style = next((each.words[1:] for each in reversed(self._active) if each.name == "thermo_style"), ("one",))
        if not 0 < every <= _RARE * self.save_steps or any(_disturbs_the_log(command) for command in self._active):
            return ""
        if style[:2] == ("custom", "step") and len(style) > 2:
            return rf"^ *(\d+)(?: +[-+.\deEinfa]+){{{len(style) - 2},}} *$"
        return r"^ *(\d+)(?: +[-+.\deEinfa]+){5,6} *$" if style == ("one",) else ""  # one more where the box changes

    # --- the two scripts ---

    @cached_property
    def _run(self) -> Command:
        return next(each for each in self.commands if each.name == "run")

    @cached_property
    def _before(self) -> list[Command]:
        return [each for each in self.commands if each.first < self._run.first]

    @cached_property
    def _active(self) -> list[Command]:
        return active(self._before)

    @property
    def _after(self) -> list[Command]:
        return [each for each in self.commands if each.first > self._run.first]

    def _starting(self) -> Iterator[str]:
        dropped = {each.first for each in self._before if _is_own_restart(each)}
        yield from (line for at, line in enumerate(self.lines[: self._run.first]) if at not in dropped)
        yield from self._run_lines()
        yield from self.lines[self._run.last + 1 :]

    def _resuming(self) -> Iterator[str]:
        yield f"# Resumes {self.path.name}: as it is, but for the lines that make the system."
        if not any(each.name == "log" for each in self._before):
            yield f"log             {LOG} append"
        for command in self._before:
            if command.name in BOX:
                yield "read_restart    ${restart}"
            elif not is_in_restart(command) and not _is_own_restart(command):
                text = command.changed(_changes(command))
                yield from self._lines_of(command) if text == command.changed({}) else (text,)
        for dump in self._active:
            if settings := self._dump_settings(dump):
                yield f"dump_modify     {dump.words[1]} {' '.join(settings)}"
        yield from self._run_lines()
        for each in self._after:
            yield from self._lines_of(each)

    def _lines_of(self, command: Command) -> Sequence[str]:
        return self.lines[command.first : command.last + 1]

    def _dump_settings(self, dump: Command) -> list[str]:
        """Return what a script that resumes says of a dump, so that it continues its file.

        LAMMPS writes the frame of the restart step again.  `delay` prevents it; where a dump needs computes or
        variables it must not be used, because they are then not ready for the next frame.
        """
        if dump.name != "dump":
            return []
        of_it = [each for each in self._active if each.name == "dump_modify" and each.word(1) == dump.word(1)]
        said = {word for each in of_it for word in each.words[2:]}
        settings = [f"{each} no" for each in ("first", "units") if each in said]
        settings += ["append yes"] if dump.style in _FRAME_OF and _is_one_text(dump.word(5)) else []
        needs_computes = any(word.startswith(("c_", "v_")) for word in dump.words[6:])
        is_plain = not needs_computes and dump.word(4).isdecimal() and not {"delay", "thresh", "every"} & said
        return [*settings, *(["delay $(step+1)"] if is_plain else [])]

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


def read_case(path: Path) -> Reading:
    """Return what the preset `lammps` must know of a script; raise ConfigError with the line that prevents it."""
    try:
        script = read_input(path)
    except NotPlainError as error:
        raise ConfigError([f"{error}; or write both scripts by hand: examples/lammps"]) from error
    texts = {When.START: script.starting, When.RESUME: script.resuming}
    edits = [
        {"file": path.name, "find": r"\A(?s:.*)\Z", "put": _with_placeholders(text), "when": when.value}
        for when, text in texts.items()
    ]
    variables = {"steps": str(script.steps), "restart": script.restart_name.replace("*", "{progress}")}
    return Reading(variables, {"edits": edits, "outputs": script.outputs()}, script.inputs(path.parent))


def _with_placeholders(text: str) -> str:
    """Return a script with what the command line would say in it, and all other braces and backslashes as they are."""
    text = text.replace("{", "{{").replace("}", "}}")
    for variable, placeholder in (("total", "{goal}"), ("limit", "{hms}"), ("restart", "{file}")):
        text = text.replace(f"${{{{{variable}}}}}", placeholder)
    return text.rstrip("\n")


def read_input(path: Path) -> LammpsInput:
    """Return the script if it can be resumed; raise NotPlainError with the line that prevents it."""
    lines = tuple(path.read_text().splitlines())
    script = LammpsInput(path, lines, confirm_plain(list(commands_in(lines))))
    _ = script.clock_steps
    return script


def _changes(command: Command) -> dict[int, str]:
    """Return the words, by their place, that a command has in the script that resumes: it continues its file."""
    words = command.words
    if command.name == "log" and file_of(command) and "append" not in words:
        return {1: f"{command.words[1]} append"}
    if command.style == "langevin":
        # With the same seed each segment would draw the same random numbers again.
        return {7: f"$(1+({int(command.words[7]) - 1}+step)%900000000)"}
    places = range(6, len(words) - 1) if command.style == "print" else ()
    changes = {at: "append" for at in places if words[at] == "file"}
    # The title is written again: as a comment it does no harm.
    return changes | {at + 1: '"# resumed"' for at in places if words[at] == "title" and words[at + 1][:1] != "#"}


def _record_of(command: Command) -> str:
    """Return the pattern of a record's beginning in the file that a command writes; empty if none says its step."""
    if not _is_one_text(file_of(command)) or "overwrite" in command.words:
        return ""
    if command.name == "fix":
        return _BLOCK if command.value("mode", start=7) == "vector" else ROWS_KIND
    return _FRAME_OF.get(command.style, "") if command.name == "dump" else ""


def _is_one_text(name: str) -> bool:
    """Return True for a file of text that grows, not one for each step or process."""
    return bool(name) and not {"*", "%"} & set(name) and not name.endswith(_PACKED)


def _is_own_restart(command: Command) -> bool:
    """Return True for a `restart` with one file name, which ours replaces; one with two only adds files of its own."""
    return command.name == "restart" and len(command.words) == 3


def _is_ramp(command: Command) -> bool:
    """Return True for a command whose values run from a start to an end, which `run ... stop` says."""
    if command.name == "variable":
        return "ramp(" in "".join(command.words[3:])
    if command.style == "deform":
        return bool(_RAMPED_BOX & set(command.words[5:]))
    words = " ".join((command.style, *command.words[4:], ""))
    return command.name == "fix" and _RAMPED_FIX.match(words) is not None and _RAMP.search(words) is not None


def _disturbs_the_log(command: Command) -> bool:
    is_printed = command.style == "print" and command.value("screen") != "no"
    is_other = command.name == "thermo_modify" and bool({"line", "format"} & set(command.words))
    return is_printed or is_other or command.name == "minimize"


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
