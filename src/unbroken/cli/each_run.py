"""A question to several runs: one that a newer unbroken has touched hides none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from unbroken.cli.say import complain
from unbroken.errors import FormatError

Answer = TypeVar("Answer")


def ask_each(names: Iterable[str], ask: Callable[[str], Answer]) -> tuple[dict[str, Answer], int]:
    """The answers by name, and the exit code: 1 if a newer unbroken has touched a run, which a line then says."""
    answers, code = dict[str, Answer](), 0
    for name in names:
        try:
            answers[name] = ask(name)
        except FormatError as error:
            complain(str(error))
            code = 1
    return answers, code
