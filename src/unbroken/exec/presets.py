"""Know the names of the programs that have a preset, without reading YAML: the standard library alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from unbroken import presets

_PROGRAMS = re.compile(r"^programs: *\[(.*)\]", re.MULTILINE)
# These run scripts of any kind.
_INTERPRETERS = re.compile(r"(?:python|Rscript|octave|matlab|R)(?:[\d.-].*)?")


def preset_of(words: Sequence[str]) -> str:
    """Return the preset of the program that a command line starts; empty if there is none, or it is an interpreter."""
    name = next((Path(word).name for word in words if not word.startswith("-")), "")
    if _INTERPRETERS.fullmatch(name):
        return ""
    for path in sorted((Path(presets.__file__).parent / "programs").glob("*.yaml")):
        if (found := _PROGRAMS.search(path.read_text())) and any(
            fnmatchcase(name, glob.strip(" \"'")) for glob in found[1].split(",")
        ):
            return path.stem
    return ""
