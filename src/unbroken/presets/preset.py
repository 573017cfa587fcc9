"""Find presets and read them: unbroken's own, those of installed packages, and the user's in `config/presets/`.

    [project.entry-points."unbroken.presets"]
    mine = "my_package.presets"

The entry point names a package whose folder holds YAML files.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import Any

import jsonschema
import yaml

from unbroken.config.found import found as shown
from unbroken.config.found import near
from unbroken.errors import ConfigError, Mistake

GROUP = "unbroken.presets"
OWN_FOLDER = Path("config/presets")
_OURS = Path(__file__).parent / "programs"
_SCHEMA = Path(__file__).parent / "schema.yaml"


@dataclass(frozen=True)
class Reading:
    """Hold what the reader of a preset found in an input: values, further settings, and files that it reads."""

    variables: Mapping[str, str]
    settings: Mapping[str, Any]
    inputs: Sequence[str] = ()  # in the folder of the input


@dataclass(frozen=True)
class Preset:
    """Hold what is known of a program; docs/presets.md says what each key means."""

    name: str
    path: Path
    title: str
    programs: Sequence[str]
    settings: Mapping[str, Any]
    equal: str
    input: Mapping[str, Any] = field(default_factory=dict)
    comment: str = ""
    reads: Sequence[str] = ()
    reads_after: Sequence[str] = ()
    inputs: Sequence[str] = ()
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reader: str = ""
    refuse: Sequence[Mapping[str, Any]] = ()
    rehearse: Mapping[str, Any] = field(default_factory=dict)
    versions: Sequence[str] = ()
    stand_in: bool = False
    notes: Sequence[str] = ()

    def read(self, path: Path) -> Reading:
        """Return what the reader finds in an input; nothing without one.  Raise ConfigError if it cannot be resumed."""
        if not self.reader:
            return Reading({}, {})
        module, _, function = self.reader.partition(":")
        found: Reading = getattr(importlib.import_module(module), function)(path)
        return found

    @property
    def has_input(self) -> bool:
        """Return True if one file says what is computed."""
        return bool(self.input)

    def place_of_program(self, words: Sequence[str]) -> int | None:
        """Return the place of the program's own name in a command line, behind its launcher; None if it is another."""
        for place, word in enumerate(words):
            name = PurePath(word).name
            if any(fnmatchcase(name, glob) for glob in self.programs):
                return place
        return None

    def input_in(self, base: Path, words: Sequence[str]) -> str:
        """Return the word of a command line, or what belongs to it, that is the input; empty if none is."""
        start = self.place_of_program(words)
        found = (word for word in words[(-1 if start is None else start) + 1 :] if self.is_input(base, word))
        return next(found, "") or next(iter(self.inputs_below(base)), "")

    def inputs_below(self, base: Path) -> list[str]:
        """Return the files of a folder that are its input, by their names."""
        globs = self.input.get("files", ())
        names = {path.relative_to(base).as_posix() for glob in globs for path in base.glob(glob) if path.is_file()}
        return sorted(name for name in names if self.is_input(base, name))

    def is_input(self, base: Path, name: str) -> bool:
        """Return True for a file that is recognized by its name and its content."""
        parts = PurePath(name).parts
        if not any(fnmatchcase("/".join(parts[-len(PurePath(glob).parts) :]), glob) for glob in self._input_globs):
            return False
        return self.has_content(base / name)

    @property
    def _input_globs(self) -> Sequence[str]:
        return tuple(self.input.get("files", ()))

    def has_content(self, path: Path) -> bool:
        """Return True for a file whose text is that of an input."""
        try:
            text = self.without_comments(path.read_text())
        except (OSError, UnicodeDecodeError):
            return False
        pattern = self.input.get("content", "")
        return not pattern or re.search(pattern, text, re.MULTILINE) is not None

    def without_comments(self, text: str) -> str:
        """Return the text of an input with its comments left out; the lines stay."""
        return re.sub(self.comment, "", text, flags=re.MULTILINE) if self.comment else text


def presets(base: Path) -> Mapping[str, Preset]:
    """Return all presets by name, in alphabetical order; the user's own stands for one of the same name.

    Raise ConfigError with the file and what is wrong if one cannot be used, or if two packages bring the same name.
    """
    found = dict(installed())
    own = sorted((base / OWN_FOLDER).glob("*.yaml"))
    found |= {path.stem: read_preset(path) for path in own}
    return dict(sorted(found.items()))


def unknown_preset(name: str, base: Path) -> Mistake:
    """Return the mistake of a name that no preset has."""
    known = presets(base)
    guess = near(name, known)
    return Mistake(f"found {shown(name)}", ", ".join(known), f"did you mean `{guess}`?" if guess else "")


@functools.cache
def installed() -> Mapping[str, Preset]:
    """Return unbroken's own presets and those of other packages; raise ConfigError if two have the same name."""
    found: dict[str, Preset] = {path.stem: read_preset(path) for path in sorted(_OURS.glob("*.yaml"))}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        for path in _files_of(point.value):
            other = found.setdefault(path.stem, made := read_preset(path))
            if other is not made:
                raise ConfigError([f"preset {path.stem}: both {other.path} and {path} are one; uninstall one of them"])
    return found


def _files_of(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).glob("*.yaml"))


def read_preset(path: Path) -> Preset:
    """Return the preset of a file; raise ConfigError with the file, the key, and what is wrong."""
    try:
        data = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read: {' '.join(str(error).split())}"]) from error
    mistakes = [
        f"{path}: {'.'.join(map(str, error.absolute_path)) or 'a preset'}: {error.message}"
        for error in _validator().iter_errors(data)
    ]
    if mistakes:
        raise ConfigError(mistakes)
    return Preset(name=path.stem, path=path, **data)


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    document = yaml.safe_load(_SCHEMA.read_text())
    checker = jsonschema.FormatChecker(formats=["regex"])
    return jsonschema.Draft202012Validator(json.loads(json.dumps(document)), format_checker=checker)
