"""Well-known programs: files that they read although no command line names them, and how they are told to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# By fixed names, in the folder that it is started in (VASP's manual, "Input files").
_VASP, _VASP_FILES = re.compile(r"vasp([_-]\w+)*"), ("INCAR", "KPOINTS", "POSCAR", "POTCAR", "ML_AB", "ML_FF")
# Scripts of a folder are called by their names without `.m`.
_MATLAB, _MATLAB_CODE = re.compile(r"(matlab|octave)([_-]\w+)*"), ("-batch", "-r", "--eval")
_NAME = re.compile(r"[A-Za-z]\w*")
# modules/check_stop.f90 of Quantum ESPRESSO; cp_external_control of CP2K.
_ESPRESSO = re.compile(r"(pw|cp|ph|neb)\.x")
_PREFIX = re.compile(r"^[^!\n]*\bprefix\s*=\s*['\"]([\w.-]+)['\"]", re.MULTILINE)
_CP2K = re.compile(r"cp2k(\.\w+)?")


def unnamed_inputs(program: str, words: Sequence[str]) -> Iterator[str]:
    """Names of files that it may read, whether they are there or not; `words` are all of its command line."""
    if _VASP.fullmatch(program):
        yield from _VASP_FILES
    elif _MATLAB.fullmatch(program):
        code = [words[at + 1] for at, word in enumerate(words[:-1]) if word in _MATLAB_CODE]
        yield from dict.fromkeys(f"{name}.m" for text in code for name in _NAME.findall(text))


def stop_file(program: str, input_text: str) -> tuple[str, str] | None:
    """The setting with the file that makes it save and leave, and what to know of it; `input_text` is its own input."""
    if _ESPRESSO.fullmatch(program):
        found = _PREFIX.search(input_text)
        name = found[1] if found else "pwscf"
        return f"stop_file: {name}.EXIT", "it saves and leaves when this file is there, with exit code 2"
    if _CP2K.fullmatch(program):
        return "stop_file: EXIT", "it saves and leaves when this file is there, with exit code 0"
    return None
