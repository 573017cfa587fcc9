"""The `#SBATCH` lines of a script, and options on sbatch's own command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbroken.convert.bash import Script

# The short names, and the long ones that they stand for [sbatch(1), Slurm 26.05].
_SHORT = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir"},
    **{"d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name"},
    **{"k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks"},
    **{"O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec"},
    **{"s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude"},
}
# Those that stand alone; a value, where there may be one, follows a `=`.
_FLAGS = {
    *("contiguous", "exclusive", "hold", "ignore-pbs", "no-kill", "no-requeue", "overcommit", "oversubscribe"),
    *("parsable", "quiet", "reboot", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait"),
    *("get-user-env", "nice", "propagate"),
}
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "": 1.0}


@dataclass(frozen=True)
class Directive:
    """One option of sbatch: its long name, its value (empty for a flag), the line, and how it was written."""

    name: str
    value: str
    line: int
    written: str


def directives_of(script: Script) -> tuple[list[Directive], list[int]]:
    """The options in the order of the script, the last of a name counting; and the lines that Slurm does not read.

    Slurm reads them up to the first line that is neither blank nor a comment.
    """
    found: list[Directive] = []
    late: list[int] = []
    has_begun = False
    for number, line in enumerate(script.lines, 1):
        if line.startswith("#SBATCH"):
            if has_begun:
                late.append(number)
            else:
                found += _options_in(script, number, line)
        elif line.strip() and not line.lstrip().startswith("#"):
            has_begun = True
    return found, late


def _options_in(script: Script, number: int, line: str) -> Iterator[Directive]:
    text = line.removeprefix("#SBATCH")
    if text and not text[0].isspace():
        return  # `#SBATCHX` is a comment
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise script.refused(number, f"this #SBATCH line cannot be read: {error}") from error
    yield from options(words, number)


def options(words: Sequence[str], line: int) -> Iterator[Directive]:
    """The options of sbatch among words, up to the first that is none."""
    yield from parted(words, line)[0]


def parted(words: Sequence[str], line: int) -> tuple[list[Directive], list[str]]:
    """The options of sbatch, and the words behind them: the script and its arguments."""
    found: list[Directive] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        name, has_value, value = _name_and_value(word)
        if not has_value and name not in _FLAGS and at + 1 < len(words):
            at += 1
            value = words[at]
            word = f"{word} {value}"
        if not word.endswith("="):  # a template that nobody filled in
            found.append(Directive(name, value, line, word))
        at += 1
    return found, list(words[at:])


def _name_and_value(word: str) -> tuple[str, bool, str]:
    """`--time=5` as its name and value; a short option may have its value behind it at once."""
    if word.startswith("--"):
        name, mark, value = word[2:].partition("=")
        return name, bool(mark), value
    return _SHORT.get(word[1:2], word[1:2]), len(word) > 2, word[2:].removeprefix("=")


def minutes_of(text: str) -> float | None:
    """`30`, `30:00`, `4:00:00`, `1-12`, `1-12:30` or `1-12:30:00` in minutes [sbatch(1)]; None if it is none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if not found:
        return None
    days, *rest = found.groups()
    first, second, third = (int(part) if part is not None else None for part in rest)
    if days is not None:
        return int(days) * 1440 + (first or 0) * 60 + (second or 0) + (third or 0) / 60
    if third is not None:
        return (first or 0) * 60 + (second or 0) + third / 60
    return (first or 0) + (second or 0) / 60


def megabytes_of(text: str) -> float | None:
    """`16G`, `10Gb`, `500M`, `2000` in Slurm's MB; None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)[bB]?", text.strip(), re.IGNORECASE)
    return float(found[1]) * _UNITS[found[2].upper()] if found else None


def array_of(text: str) -> tuple[list[int], int | None] | None:
    """The numbers of an array and how many of its tasks may run at a time; None if it cannot be read."""
    numbers, _, limit = text.partition("%")
    ids: list[int] = []
    for piece in numbers.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", piece.strip())
        if not found:
            return None
        ids += range(int(found[1]), int(found[2] or found[1]) + 1, int(found[3] or 1))
    return ids, int(limit) if limit.isdecimal() else None


def gpus_of(text: str) -> tuple[str | None, int] | None:
    """`gpu`, `gpu:2`, `gpu:a100:2`, `a100:2` or `2` as type and number; None if it names no GPU."""
    parts = re.sub(r"\(.*\)$", "", text.strip()).split(":")
    if parts[0] == "gpu":
        parts = parts[1:]
    elif len(parts) == 1 and not parts[0].isdecimal():
        return None
    number = int(parts[-1]) if parts and parts[-1].isdecimal() else 1
    kinds = [part for part in parts if not part.isdecimal()]
    return (kinds[0] if kinds else None), number
