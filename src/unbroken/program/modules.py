"""Environment modules (Tcl or Lmod): which are loaded once those of a run are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from unbroken.errors import SegmentError
from unbroken.program import process

ANSWER_SECONDS = 120.0
_MARK = "unbroken found: "
# Both keep this list [module(1), "ENVIRONMENT"; Lmod, "Environment variables"].
_ASK = f'printf "\\n{_MARK}%s\\n" "$LOADEDMODULES"'


def loaded(names: Sequence[str]) -> dict[str, str]:
    """The modules by name with their versions, those that the named ones have loaded too.

    None if they cannot be loaded: the program will say why, in the log where one looks for it.
    """
    command = process.entered(["sh", "-c", _ASK], names, ())
    with contextlib.suppress(SegmentError):
        answer = process.ask(command, seconds=ANSWER_SECONDS)
        lines = [line.removeprefix(_MARK) for line in answer.lines if line.startswith(_MARK)]
        if answer.code == 0 and lines:
            return dict(_named(word) for word in lines[-1].split(":") if word)
    return {}


def _named(word: str) -> tuple[str, str]:
    """Of `compilers/gcc/12.2` the version is what stands last; one without a version has none."""
    name, _, version = word.rpartition("/")
    return (name, version) if name else (word, "")
