"""Make the settings of a run of a preset: fill what it says with what the input says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from unbroken.errors import ConfigError
from unbroken.presets.preset import Preset, Reading

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
# A file that an input reads is searched for further ones if it is not larger.
_MOST_BYTES = 1024 * 1024
# These stand for several words of a command line.
_WORDS = ("start", "program")
# What `refuse` is looked for in, if not in a file: the command line that the user has typed.
START = "start"


class _Missing(Exception):
    """Report that an input does not say a value, and that what names it is left out."""


@dataclass(frozen=True)
class Case:
    """Hold one computation of a preset: the input and the command line, as the user named them."""

    preset: Preset
    base: Path
    input: str = ""  # relative to `base`
    words: tuple[str, ...] = ()  # the command line; empty for that of the preset

    @cached_property
    def folder(self) -> PurePosixPath:
        """Return the folder of the case, in which the names of the preset lie, relative to `base`."""
        globs = self.preset.input.get("files", ())
        parts = PurePosixPath(self.input).parts
        depth = next((len(PurePosixPath(g).parts) for g in globs if PurePosixPath(self.input).match(g)), 1)
        return PurePosixPath(*parts[:-depth]) if len(parts) > depth else PurePosixPath()

    @property
    def input_name(self) -> str:
        """Return the name of the input in the program's folder."""
        return PurePosixPath(self.input).relative_to(self.folder).as_posix() if self.input else ""

    def text_of(self, name: str = "") -> str:
        """Return the text of the input, or of another file of the case, without comments; empty if it is not there.

        START is the command line.
        """
        if name == START:
            return " ".join(self.words or map(str, self.preset.settings["start"]))
        path = self.base / self.folder / name if name else self.base / self.input
        try:
            return self.preset.without_comments(path.read_text(errors="replace"))
        except OSError:
            return ""

    # --- what the input says ---

    @cached_property
    def reading(self) -> Reading:
        """Return what the reader of the preset finds in the input."""
        return self.preset.read(self.base / self.input)

    @cached_property
    def values(self) -> Mapping[str, str | None]:
        """Return the variables; None for what the input does not say."""
        stem = PurePosixPath(self.input).stem
        found: dict[str, str | None] = {"input": self.input_name, "stem": stem} if self.input else {}
        found |= self.reading.variables
        for name, spec in self.preset.variables.items():
            found[name] = self._value(spec, found)
        return found

    def _value(self, spec: Mapping[str, Any], known: Mapping[str, str | None]) -> str | None:
        default = spec.get("default")
        text = None if default is None else str(default)
        if "after" in spec:
            text = self._word_after(spec["after"]) or text
        if "find" in spec:
            matches = [match[1] for match in re.finditer(spec["find"], self.text_of(spec.get("in", "")), re.MULTILINE)]
            text = _taken([each for each in matches if each is not None], spec.get("take", "last"), text)
        return _calculated(text, spec, known)

    def _word_after(self, option: str) -> str:
        """Return the name of the file after an option of the command line; empty if it is not there."""
        words = self.words or tuple(map(str, self.preset.settings["start"]))
        place = words.index(option) + 1 if option in words else len(words)
        return PurePosixPath(words[place]).name if place < len(words) else ""

    def reads(self) -> Iterator[str]:
        """Yield what the input names and the program reads, relative to `base`; of a file in a folder, the folder."""
        waiting, seen = [self.text_of()], set()
        while waiting:
            text = waiting.pop()
            for name in (match[1] for each in self.preset.reads for match in re.finditer(each, text, re.MULTILINE)):
                path = PurePosixPath(name.strip("\"'"))
                if path.is_absolute() or ".." in path.parts or path in seen or not path.parts:
                    continue
                seen.add(path)
                if not (self.base / self.folder / path).exists():
                    path = path.with_name(path.name + PurePosixPath(self.input).suffix)  # import a_module
                place = self.base / self.folder / path
                if place.exists():
                    yield (self.folder / path.parts[0]).as_posix()
                if place.is_file() and place.stat().st_size <= _MOST_BYTES:
                    waiting.append(self.text_of(path.as_posix()))

    def outside(self) -> Iterator[str]:
        """Yield what the input names by a way out of its folder: the program would look in another one."""
        for pattern in self.preset.reads:
            names = (match[1].strip("\"'") for match in re.finditer(pattern, self.text_of(), re.MULTILINE))
            yield from (name for name in names if ".." in PurePosixPath(name).parts)

    # --- the settings ---

    def settings(self) -> dict[str, Any]:
        """Return the settings that the preset stands for; raise ConfigError if the input lacks what they need."""
        said = dict(self.preset.settings)
        start, named = self._own_words(list(self.words) or self._words(said["start"], {}))
        program = self.preset.place_of_program(start)
        words = {"start": start, "program": start[: (len(start) if program is None else program + 1)]}
        found = {key: self._filled(value, words) for key, value in said.items() if key != "start"}
        # Of one in a folder of the case, such as system/controlDict, the folder.
        inputs = [(self.folder / PurePosixPath(self.input_name).parts[0]).as_posix()] if self.input else []
        patterns = [self._text(name) for name in self.preset.inputs]
        root = self.base / self.folder
        inputs += [
            (self.folder / path.relative_to(root)).as_posix() for each in patterns for path in sorted(root.glob(each))
        ]
        read = [*self.reads(), *named, *((self.folder / name).as_posix() for name in self.reading.inputs)]
        # What the program saves or prints itself is none, though a script reads it and a run before has left one here.
        own = [*map(str, found.get("files") or ()), str(found.get("stdout") or "")]
        inputs += [name for name in read if not _is_own(PurePosixPath(name).name, own)]
        found |= self.reading.settings
        whole = {name for name in inputs if (self.base / name).is_dir()}
        plain = [name for name in dict.fromkeys(inputs) if name in whole or not _is_below(name, whole)]
        return {key: value for key, value in found.items() if value is not None} | {"start": start, "inputs": plain}

    def _own_words(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Return a command line as it is in the program's own folder, and the files and folders in it that it reads."""
        found, named, is_read = [], [], "" in self.preset.reads_after
        place = self.preset.place_of_program(words)
        for at, word in enumerate(words):
            option, equal, value = word.partition("=") if word.startswith("-") else ("", "", word)
            if option and not equal:
                is_read = word in self.preset.reads_after
            is_value = is_read if not option else bool(equal) and option in self.preset.reads_after
            is_named = value and (value == self.input or (is_value and at > (place or 0) and self._is_there(value)))
            if is_named and value != self.input:
                named.append(value)
            name = self.input_name if value == self.input else PurePosixPath(value).name if is_named else value
            found.append(f"{option}{equal}{name}" if option and equal else word if option else name)
        return found, named

    def _is_there(self, name: str) -> bool:
        return not PurePosixPath(name).is_absolute() and len(name) < 256 and (self.base / name).exists()

    def mistakes(self) -> Iterator[str]:
        """Yield what of the input cannot be resumed right, each with the reason."""
        try:
            _ = self.reading
        except ConfigError as error:
            yield from (f"{self.input_name}: {line}" for line in error.mistakes)
            return
        for rule in self.preset.refuse:
            name = rule.get("in", "")
            text = self.text_of(name)
            if name == START and not self.words:
                continue
            if "unless" in rule and re.search(rule["unless"], text, re.MULTILINE):
                continue
            where = name or self.input_name
            if "find" in rule and (match := re.search(rule["find"], text, re.MULTILINE)):
                line = text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
                yield f"{where} line {line}: found '{' '.join(match[0].split())}': {rule['why']}"
            if "lacks" in rule and not re.search(rule["lacks"], text, re.MULTILINE):
                yield f"{where}: {rule['why']}"
        for name in self.outside():
            yield f"{self.input_name}: found '{name}', which is not below its folder; type its absolute path"

    def _filled(self, value: object, words: Mapping[str, list[str]]) -> Any:
        """Return a setting with its variables filled; None if it, or a part of a list, needs one that is not said."""
        try:
            if isinstance(value, Mapping):
                return {self._text(str(key)): self._filled(each, words) for key, each in value.items()}
            if isinstance(value, list):
                if all(isinstance(each, str) for each in value):
                    return self._words(value, words)
                return [each for item in value if (each := self._item(item, words)) is not None]
            return self._scalar(value) if isinstance(value, str) else value
        except _Missing:
            return None

    def _item(self, item: object, words: Mapping[str, list[str]]) -> Any:
        made = self._filled(item, words)
        return None if isinstance(made, dict) and None in made.values() else made

    def _words(self, value: Sequence[object], words: Mapping[str, list[str]]) -> list[str]:
        found: list[str] = []
        for word in map(str, value):
            if (name := word.removeprefix("${").removesuffix("}")) in words and word == f"${{{name}}}":
                found += words[name]
                continue
            try:
                found.append(self._text(word))
            except _Missing:
                continue
        return found

    def _scalar(self, text: str) -> str | float:
        made = self._text(text)
        is_number = _VARIABLE.fullmatch(text) and _NUMBER.fullmatch(made)
        return _number(made) if is_number else made

    def _text(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in self.values:
                raise ConfigError([f"{self.preset.path}: found ${{{match[1]}}}, allowed: {', '.join(self.values)}"])
            if (found := self.values[match[1]]) is None:
                raise _Missing
            return found

        return _VARIABLE.sub(value, text)


def _is_own(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob.replace("{progress}", "*")) for glob in globs)


def _is_below(name: str, folders: set[str]) -> bool:
    return any(str(parent) in folders for parent in PurePosixPath(name).parents)


def _number(text: str) -> float:
    number = float(re.sub("[dD]", "e", text))
    return int(number) if number.is_integer() else number


def _taken(matches: Sequence[str], take: str, default: str | None) -> str | None:
    if take == "count":
        return str(len(matches))
    if not matches:
        return default
    if take in ("first", "last"):
        return matches[0 if take == "first" else -1]
    numbers = [_number(each) for each in matches]
    made = math.lcm(*map(int, numbers)) if take == "lcm" else max(numbers) if take == "max" else sum(numbers)
    return f"{made:.15g}"


def _calculated(text: str | None, spec: Mapping[str, Any], known: Mapping[str, str | None]) -> str | None:
    """Return a number times another variable, divided, and as the next lower multiple of one, at least one of it."""
    if text is None or not {"times", "divided_by", "multiple_of"} & set(spec):
        return text
    number = _number(text)
    if "times" in spec:
        number *= _number(known[spec["times"]] or "1")
    number /= spec.get("divided_by", 1)
    if "multiple_of" in spec:
        unit = _number(known[spec["multiple_of"]] or "1")
        number = max(unit, number // unit * unit)
    return f"{number:.15g}"
