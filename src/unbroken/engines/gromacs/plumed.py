"""Find in PLUMED's input what a run could not resume: another unit of time, and files outside of mdrun's folder.

A table of PLUMED has the time in its first column, in ps unless UNITS says otherwise, and is cut at a checkpoint by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

DEFAULT_NAME = "plumed.dat"
# Their FILE is written; that of another action is taken for one it reads if it is there.
_WRITERS = re.compile(r"METAD|PBMETAD|PRINT|COMMITTOR|MAXENT|EDS|LOGMFD|DUMP.*|OPES.*|VES.*")
_KEY = re.compile(r"(?P<key>[A-Za-z_0-9]+)=(?P<value>\{[^}]*\}|\S+)")
_PICOSECONDS = "ps"
_MOST_INCLUDED = 20


def mistakes_in(path: Path) -> Iterator[str]:
    """Yield what PLUMED's input asks for that cannot be resumed, a line each."""
    for where, action, keys in _actions(path, []):
        for key, value in keys:
            if (why := _mistake(action, key, value, path.parent)) is not None:
                yield f"{where}: found {key}={value}; {why}"


def _mistake(action: str, key: str, value: str, folder: Path) -> str | None:
    if action == "UNITS" and key == "TIME" and value != _PICOSECONDS:
        return "PLUMED's tables are cut at the time of mdrun's checkpoint, in ps; allowed: TIME=ps, or leave it out"
    if key == "WALKERS_DIR":
        return "not possible: the hills of other walkers are in no checkpoint; allowed: one walker"
    names = [name.strip() for name in value.strip("{}").split(",")]
    is_read = action == "INCLUDE" or (
        not _WRITERS.fullmatch(action) and all((folder / name).is_file() for name in names)
    )
    if not key.endswith("WFILE") and (key != "FILE" or is_read):
        return None
    if any(PurePath(name).parent != PurePath() for name in names):
        return "it would be in no checkpoint; allowed: a name without a folder, which final/ has in the end"
    return None


def _actions(path: Path, seen: list[Path]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each action with its keys, and those of the files that it includes; a missing file has none."""
    if path in seen or len(seen) > _MOST_INCLUDED:
        return
    seen.append(path)
    for number, line in _lines(path):
        words = [word for word in line.split() if not word.endswith(":")]
        action = words[0].upper() if words else ""
        keys = [(match["key"].upper(), match["value"]) for match in _KEY.finditer(line)]
        yield f"{path}:{number}", action, keys
        if action == "INCLUDE":
            for key, value in keys:
                if key == "FILE":
                    yield from _actions(path.parent / value, seen)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, without comments; those between two `...` count as one."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if begun and line.startswith("..."):
            yield first, begun
            begun = ""
        elif begun:
            begun = f"{begun} {line}"
        elif line.endswith("..."):
            begun, first = line.removesuffix("...").strip(), number
        elif line == "ENDPLUMED":
            break
        elif line:
            yield number, line
    if begun:
        yield first, begun
