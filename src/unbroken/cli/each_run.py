"""A question to several runs: one that cannot be read now, or by this unbroken, hides none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from unbroken.cli.say import complain
from unbroken.errors import FormatError, StorageError
from unbroken.system import fs

Answer = TypeVar("Answer")


def ask_each(names: Iterable[str], ask: Callable[[str], Answer]) -> tuple[dict[str, Answer], int]:
    """Return the answers by name, and the exit code; print a line for each run without an answer, with code 1."""
    answers, code = dict[str, Answer](), 0
    for name in names:
        try:
            with fs.os_errors(Path(name)):
                answers[name] = ask(name)
        except (FormatError, StorageError) as error:
            complain(str(error))
            code = 1
    return answers, code
