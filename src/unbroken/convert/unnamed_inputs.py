"""Files that a program reads although its command line does not name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# By fixed names, in the folder that it is started in (VASP's manual, "Input files").
_VASP, _VASP_FILES = re.compile(r"vasp([_-]\w+)*"), ("INCAR", "KPOINTS", "POSCAR", "POTCAR", "ML_AB", "ML_FF")
# Scripts of a folder are called by their names without `.m`.
_MATLAB, _MATLAB_CODE = re.compile(r"(matlab|octave)([_-]\w+)*"), ("-batch", "-r", "--eval")
_NAME = re.compile(r"[A-Za-z]\w*")


def unnamed_inputs(program: str, words: Sequence[str]) -> Iterator[str]:
    """Names of files that it may read, whether they are there or not; `words` are all of its command line."""
    if _VASP.fullmatch(program):
        yield from _VASP_FILES
    elif _MATLAB.fullmatch(program):
        code = [words[at + 1] for at, word in enumerate(words[:-1]) if word in _MATLAB_CODE]
        yield from dict.fromkeys(f"{name}.m" for text in code for name in _NAME.findall(text))
