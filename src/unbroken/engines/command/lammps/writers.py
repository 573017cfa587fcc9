"""Says what a script of LAMMPS writes: the files, where their records begin, and how a resumed one continues them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from pathlib import PurePath

from unbroken.engines.command.lammps.fixes import AVERAGES, style_of
from unbroken.engines.command.lammps.script import IMMEDIATE, Command, Variables

ROWS = "rows"
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
_VALUE = re.compile(rf"\$\{{(\w+)\}}|{IMMEDIATE}|\$(\w)")
# A checkpoint waits for the next row, so a log with rows much rarer than restart files is not joined by them.
_RARE = 5
_NUMBER = r"[-+.\deEinfa]+"
# At least so many columns has the table of `thermo_style one`; one more where the box changes.
_ONE_COLUMNS = (6, 7)
# Writes into a named file where one of these words stands before the name.
_PRINTS_TO = ("file", "append")


def is_writer(command: Command) -> bool:
    """Return True for a command that writes a file as the run proceeds."""
    return command.name == "dump" or (command.name == "fix" and style_of(command) in {*AVERAGES, "print"})


def writes_once(command: Command) -> bool:
    """Return True for a command that writes a file when it is read."""
    is_print = command.name == "print" and bool(set(_PRINTS_TO) & set(command.words[2:]))
    return is_print or command.name in {"write_data", "write_dump", "write_restart", "write_coeff", "pair_write"}


def file_of(command: Command) -> str:
    """Return the file that a command writes as the run proceeds; empty if none."""
    if command.name == "dump":
        return command.words[5] if len(command.words) > 5 else ""
    if command.name == "log":
        return command.words[1] if len(command.words) > 1 and command.words[1] != "none" else ""
    return (command.value("file", 4) or command.value("append", 4)) if is_writer(command) else ""


def folders(commands: Sequence[Command]) -> list[str]:
    """Return the folders, from the outermost on, in which the script writes."""
    names = [PurePath(file_of(command)) for command in commands]
    return list(dict.fromkeys(str(each) for name in names for each in reversed(name.parents) if str(each) != "."))


def records(commands: Sequence[Command], variables: Variables) -> Iterator[tuple[str, str]]:
    """Yield each file that grows by records with their steps, and the pattern of a record's beginning."""
    for command in commands:
        name = file_of(command)
        if not name or "*" in name or "%" in name or name.endswith(_PACKED) or "overwrite" in command.words:
            continue
        if pattern := _record_of(command, variables):
            yield name, pattern


def _record_of(command: Command, variables: Variables) -> str:
    if command.name == "dump":
        return _FRAME_OF.get(command.words[3], "")
    style = style_of(command) if command.name == "fix" else ""
    if style == "print":
        return _record_of_print(command.words[5], variables) if len(command.words) > 5 else ""
    if style == "ave/time" and command.value("mode") != "vector":
        return ROWS
    return _BLOCK_OF.get(style, "")


def _record_of_print(text: str, variables: Variables) -> str:
    """Return the pattern of a printed row up to its step; empty if the row does not say it."""
    pattern, at = "^", 0
    for match in _VALUE.finditer(text):
        before, at = text[at : match.start()], match.end()
        pattern += re.escape(before).replace(r"\ ", " ")
        name = match[1] or match[3] or ""
        if variables.is_step(name) or (match[2] or "").partition(":")[0].strip() == "step":
            is_first = pattern == "^" and text[at : at + 1] in ("", " ", ",", ";")
            return ROWS if is_first and text[at:] else rf"{pattern}(\d+)\b"
        pattern += ".+?"
    return ""


def log_record(commands: Sequence[Command], variables: Variables, save_steps: int) -> str:
    """Return the pattern of a row of the thermo table in the log; empty where the log is no plain table."""
    every = [
        variables.number(command.words[1]) for command in commands if command.name == "thermo" and command.words[1:]
    ]
    is_often = len(every) == 1 and every[0] is not None and 0 < every[0] <= _RARE * save_steps
    is_printed_into = any(
        command.name == "fix" and style_of(command) == "print" and command.value("screen") != "no"
        for command in commands
    )
    is_other = any(command.name == "thermo_modify" and {"line", "format"} & set(command.words) for command in commands)
    if not is_often or is_printed_into or is_other or any(command.name == "minimize" for command in commands):
        return ""
    styles = [command.words[1:] for command in commands if command.name == "thermo_style" and command.words[1:]] or [
        ("one",)
    ]
    return _row_of(styles[-1])


def _row_of(style: tuple[str, ...]) -> str:
    if style == ("one",):
        return _row(*(str(count - 1) for count in _ONE_COLUMNS))
    if style[0] != "custom" or style[1:2] != ("step",) or len(style) < 3:
        return ""
    count = str(len(style) - 2)
    return _row(count, "") if any("*" in word for word in style) else _row(count)


def _row(*counts: str) -> str:
    return rf"^ *(\d+)(?: +{_NUMBER}){{{','.join(counts)}}} *$"


# --- how they go on ---


def continued(command: Command) -> str:
    """Return a writer's command for a script that resumes: it continues its file where it can."""
    words = command.words
    if command.name == "log" and file_of(command) and "append" not in words:
        return f"{command.text} append"
    if command.name != "fix" or style_of(command) != "print":
        return command.text
    changes = {at: "append" for at in range(6, len(words) - 1) if words[at] == "file"}
    # The title is written once more: as a comment it does no harm.
    titles = [at + 1 for at in range(6, len(words) - 1) if words[at] == "title"]
    changes |= {at: '"# resumed"' for at in titles if not words[at].startswith("#")}
    return command.changed(changes)


def continued_dumps(commands: Sequence[Command]) -> Iterator[str]:
    """Yield what a script that resumes says of its dumps, so that they continue their files.

    LAMMPS writes the frame of the restart step again.  `delay` prevents it; where a dump needs computes or variables
    it must not be used, because they are then not ready for the next frame.
    """
    for dump in commands:
        if dump.name != "dump" or len(dump.words) < 6:
            continue
        modifiers = _modifiers(dump, commands)
        said = {word for each in modifiers for word in each.words[2:]}
        settings = [f"{each} no" for each in ("first", "units") if each in said]
        settings += ["append yes"] if dump.words[3] in _FRAME_OF and not _is_other_file(dump.words[5]) else []
        is_plain = not _needs_computes(dump) and dump.words[4].isdecimal()
        settings += ["delay $(step+1)"] if is_plain and not {"delay", "thresh", "every"} & said else []
        if settings:
            yield f"dump_modify     {dump.words[1]} {' '.join(settings)}"


def rewrites_averages(dump: Command, averages: Set[str]) -> bool:
    """Return True for a dump that writes the frame of the restart step again, with averages that are 0 by then."""
    columns = dump.words[6:]
    is_averaged = any(word.startswith("f_") and word[2:].partition("[")[0] in averages for word in columns)
    return is_averaged and _needs_computes(dump) and len(dump.words) > 5 and _is_other_file(dump.words[5])


def _needs_computes(dump: Command) -> bool:
    return any(word.startswith(("c_", "v_")) for word in dump.words[6:])


def _is_other_file(name: str) -> bool:
    return "*" in name or name.endswith(_PACKED)


def _modifiers(dump: Command, commands: Sequence[Command]) -> list[Command]:
    return [each for each in commands if each.name == "dump_modify" and each.words[1:2] == dump.words[1:2]]
