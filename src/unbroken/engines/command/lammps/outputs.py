"""List what a script of LAMMPS writes: the files, where their records begin, and how a resumed one continues them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from unbroken.engines.command.lammps.script import AVERAGES, Command, Variables
from unbroken.engines.files.settings import ROWS_KIND

LOG = "log.lammps"
_FRAME = r"ITEM: TIMESTEP\n(\d+)\n"
_XYZ_FRAME = r"^\d+\nAtoms\. Timestep: (\d+)"
_FRAME_OF = {"atom": _FRAME, "custom": _FRAME, "local": _FRAME, "grid": _FRAME, "xyz": _XYZ_FRAME}
# The head of a block says its step; the block's own rows begin otherwise.
_BLOCK_OF = {
    "ave/time": r"^(\d+) \d+\n1 ",
    "ave/chunk": r"^(\d+) \d+ \S+$",
    "ave/histo": r"^(\d+) \d+( \S+){4}$",
    "ave/histo/weight": r"^(\d+) \d+( \S+){4}$",
    "ave/correlate": r"^(\d+) \d+$",
}
_PACKED = (".gz", ".zst", ".bin")
_STEP = re.compile(r"(?:\$\{?(\w+)\}?|\$\(step(?::[^)]*)?\))(?:[ ,;]|$)")
# A checkpoint waits for the next row, so a log with rows much rarer than restart files is not joined by them.
_RARE = 5
_NUMBER = r"[-+.\deEinfa]+"


def is_writer(command: Command) -> bool:
    """Return True for a command that writes a file as the run proceeds."""
    return command.name == "dump" or (command.name == "fix" and command.style in {*AVERAGES, "print"})


def file_of(command: Command) -> str:
    """Return the file that a command writes as the run proceeds; empty if none."""
    if command.name == "dump":
        return "".join(command.words[5:6])
    if command.name == "log":
        return "".join(command.words[1:2]).removeprefix("none")
    return (command.value("file", 4) or command.value("append", 4)) if is_writer(command) else ""


def folders(commands: Sequence[Command]) -> list[str]:
    """Return the folders, from the outermost on, in which the script writes."""
    names = [PurePath(file_of(command)) for command in commands]
    return list(dict.fromkeys(str(each) for name in names for each in reversed(name.parents) if str(each) != "."))


def outputs_of(commands: Sequence[Command], variables: Variables, save_steps: int) -> dict[str, str]:
    """Return each file that grows by records with their steps, and the pattern of a record's beginning."""
    found = {file_of(command): record_of(command, variables) for command in commands}
    logs = [file_of(command) for command in commands if command.name == "log"] or [LOG]
    if len(logs) == 1:
        found[logs[0]] = _log_record(commands, variables, save_steps)
    return {name: pattern for name, pattern in found.items() if name and pattern}


def record_of(command: Command, variables: Variables) -> str:
    """Return the pattern of the beginning of a record that a dump or fix writes; empty if none says its step."""
    name = file_of(command)
    if not name or "*" in name or "%" in name or name.endswith(_PACKED) or "overwrite" in command.words:
        return ""
    if command.name == "dump":
        return _FRAME_OF.get(command.words[3], "")
    if command.style == "print":
        return ROWS_KIND if _says_its_step("".join(command.words[5:6]), variables) else ""
    is_rows = command.style == "ave/time" and command.value("mode") != "vector"
    return ROWS_KIND if is_rows else _BLOCK_OF.get(command.style, "")


def _says_its_step(row: str, variables: Variables) -> bool:
    """Return True for a printed row that begins with its step."""
    match = _STEP.match(row)
    return match is not None and (match[1] is None or variables.is_step(match[1]))


def _log_record(commands: Sequence[Command], variables: Variables, save_steps: int) -> str:
    """Return the pattern of a row of the thermo table in the log; empty where the log is no plain table."""
    every = [variables.number("".join(each.words[1:2])) for each in commands if each.name == "thermo"]
    is_often = len(every) == 1 and every[0] is not None and 0 < every[0] <= _RARE * save_steps
    if not is_often or any(_disturbs_the_log(command) for command in commands):
        return ""
    style = [each.words[1:] for each in commands if each.name == "thermo_style"]
    words = style[-1] if style else ("one",)
    if words == ("one",):
        columns = "5,6"  # one more where the box changes
    elif words[:2] == ("custom", "step") and len(words) > 2:
        columns = f"{len(words) - 2}," if any("*" in word for word in words) else str(len(words) - 2)
    else:
        return ""
    return rf"^ *(\d+)(?: +{_NUMBER}){{{columns}}} *$"


def _disturbs_the_log(command: Command) -> bool:
    is_printed = command.style == "print" and command.value("screen") != "no"
    is_other = command.name == "thermo_modify" and bool({"line", "format"} & set(command.words))
    return is_printed or is_other or command.name == "minimize"


# --- how they are continued ---


def continued(command: Command) -> str:
    """Return a command for a script that resumes: it continues its file."""
    words = command.words
    if command.name == "log" and file_of(command) and "append" not in words:
        return command.changed({1: f"{command.words[1]} append"})
    places = range(6, len(words) - 1) if command.style == "print" else ()
    changes = {at: "append" for at in places if words[at] == "file"}
    # The title is written again: as a comment it does no harm.
    changes |= {at + 1: '"# resumed"' for at in places if words[at] == "title" and words[at + 1][:1] != "#"}
    return command.changed(changes)


def continued_dumps(commands: Sequence[Command]) -> Iterator[str]:
    """Yield what a script that resumes says of its dumps, so that they continue their files.

    LAMMPS writes the frame of the restart step again.  `delay` prevents it; where a dump needs computes or variables
    it must not be used, because they are then not ready for the next frame.
    """
    for dump in commands:
        if dump.name != "dump" or len(dump.words) < 6:
            continue
        modifiers = [each for each in commands if each.name == "dump_modify" and each.words[1:2] == dump.words[1:2]]
        said = {word for each in modifiers for word in each.words[2:]}
        is_one_text = "*" not in dump.words[5] and not dump.words[5].endswith(_PACKED)
        settings = [f"{each} no" for each in ("first", "units") if each in said]
        settings += ["append yes"] if dump.words[3] in _FRAME_OF and is_one_text else []
        needs_computes = any(word.startswith(("c_", "v_")) for word in dump.words[6:])
        is_plain = not needs_computes and dump.words[4].isdecimal()
        settings += ["delay $(step+1)"] if is_plain and not {"delay", "thresh", "every"} & said else []
        if settings:
            yield f"dump_modify     {dump.words[1]} {' '.join(settings)}"
