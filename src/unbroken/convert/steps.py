"""Steps of a script before its program: where it goes, what it copies, which environment it enters."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from unbroken.convert.expand import Scope
from unbroken.convert.names import REMOVES
from unbroken.convert.seen import Step
from unbroken.convert.words import Kind, Word, shell_line


class StepReader:
    """Notes in `scope.seen` what a shell in the job has to do before the program starts."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.seen = scope.seen
        self._depth = 0

    def cd(self, words: list[Word], line: int) -> None:
        target = words[0] if words else Word.of("~")
        source = target.source
        if self.seen.programs:
            return
        inside = target.with_facts({"base": "."}).text
        if inside is not None and not PurePath(inside).is_absolute() and os.path.isdir(self.scope.path(inside)):
            self.seen.place = str(PurePath("" if target.has(Kind.PLACEHOLDER) else self.seen.place) / inside)
            self.seen.place = "" if self.seen.place == "." else self.seen.place
            self.seen.drop(line, f"cd {source}", "paths count from there")
            return
        if source == "-":
            return
        self._leave_for(target, line)

    def _leave_for(self, target: Word, line: int) -> None:
        """Goes to a folder that the script has made, or that only the job has: what it copied there are inputs."""
        text = shell_line([target]).replace("{{", "{").replace("}}", "}")
        why = "the program has a folder of its own for each attempt, with links to its inputs"
        for step in [each for each in self.seen.prologue if text in each.text]:
            self.seen.prologue.remove(step)
            self.seen.drop(step.line, step.text, why)
            self.seen.staged += [(name, step.line) for name in self._copied(step.text)]
        self.seen.drop(line, f"cd {target.source}", why)

    def _copied(self, step: str) -> Iterator[str]:
        """The files of this folder that a `cp` or `rsync` names, those of a folder too."""
        with suppress(ValueError):
            for word in shlex.split(step)[1:]:
                path = Path(word)
                if os.path.isfile(path):
                    yield self._below(path)
                elif os.path.isdir(path) and path != self.scope.script.folder.resolve():
                    yield from (self._below(each) for each in sorted(path.iterdir()) if each.is_file())

    def _below(self, path: Path) -> str:
        folder = self.scope.script.folder.resolve()
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

    def conda(self, words: list[Word], line: int) -> None:
        name = words[0].source if words else "base"
        hook = 'source "$(conda info --base)/etc/profile.d/conda.sh"'
        self.seen.prologue.append(Step(f"{hook}; conda activate {name}", line, "conda", self._named(words[:1])))

    def prologue(self, words: Sequence[Word], name: str, line: int, text: str) -> None:
        """A step that a shell in the job takes before the program starts."""
        if self.seen.programs:
            self.seen.lose(line, text, "comes after the program")
            return
        bad = next((word for word in words if word.has(Kind.UNSURE) or word.has(Kind.ARGUMENT)), None)
        if bad is not None:
            self.seen.lose(line, text, "what it works on is known in the job alone")
            return
        is_sourced = name == "source"
        of_conda = is_sourced and words[0].text == "activate"
        placed = [
            word if of_conda else self._anchored(word, is_sourced and not number) for number, word in enumerate(words)
        ]
        step = f"{name} {shell_line(placed)}".replace("{{", "{").replace("}}", "}")
        self.seen.prologue.append(Step(step, line, *self._activated(words) if is_sourced else ()))

    def _activated(self, words: Sequence[Word]) -> tuple[str, str]:
        """The key and value for `source venv/bin/activate` and `source activate name`; of anything else none."""
        path = PurePath(words[0].text or "")
        if path.parts[-2:] == ("bin", "activate") and len(words) == 1:
            folder = path.parent.parent
            return "venv", str(folder if folder.is_absolute() else PurePath(self.seen.place) / folder)
        if path.name == "activate" and len(words) == 2:
            return "conda", self._named(words[1:])
        return "", ""

    def _named(self, words: Sequence[Word]) -> str:
        return (words[0].text or "") if words else "base"

    def _anchored(self, word: Word, is_surely_there: bool) -> Word:
        """A path that is there by its whole name, because the step is taken in the program's own folder."""
        folder = self.scope.script.folder.resolve()
        word = word.with_facts({"base": str(folder)})
        text = word.text
        if text is None or not text or text.startswith("-") or PurePath(text).is_absolute():
            return word
        path = self.scope.path(text)
        return Word.of(str(path.resolve())) if is_surely_there or os.path.exists(path) else word

    def files(self, name: str, words: list[Word], line: int, text: str) -> None:
        if self.seen.programs:
            self.seen.lose(line, text, "comes after the program; its results are in results/<run>/final")
        elif name in REMOVES:
            self.seen.lose(line, text, "unbroken removes nothing but what it has made; its own folders are tidied")
        else:
            self.prologue(words[1:], name, line, text)


def base_name(name: str) -> str:
    """The last part of a path, empty of nothing."""
    return PurePath(name).name if name else ""
