"""What a run was called with, `exec.json` in its folder, and whether the present call is the same computation."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from unbroken.config.found import absent
from unbroken.errors import AbsentFileError, ConfigError
from unbroken.exec.options import Options
from unbroken.exec.place import CALL
from unbroken.system import fs, jsontext

REFUSED = "refused.json"
_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class InputFile:
    """An input as it was last read: as long as nothing else has changed, it is not read again."""

    size_bytes: int
    mtime_ns: int
    inode: int
    digest: str


@dataclass(frozen=True)
class Call:
    """A command line with what it means: `volatile` are words of this job alone, such as its temporary folder."""

    program: tuple[str, ...]
    volatile: tuple[str, ...]
    folder: str
    inputs: Mapping[str, InputFile] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    is_finished: bool = False
    more: tuple[str, ...] = ()  # what an engine adds to the words of the program

    @property
    def words(self) -> tuple[str, ...]:
        """What says which computation it is."""
        return (*self.program, *self.more)

    def write(self, store: Path) -> None:
        """In one step."""
        store.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(store / CALL, json.dumps(asdict(self), indent=2) + "\n")

    def finished(self) -> Call:
        """The same of a run that is done."""
        return replace(self, is_finished=True)

    def unfinished(self) -> Call:
        """The same of a run that begins anew."""
        return replace(self, is_finished=False)


def call_of(
    options: Options,
    folder: Path,
    before: Call | None,
    more: tuple[str, ...] = (),
    environment: Mapping[str, str] = os.environ,
) -> Call:
    """This call; inputs that `before` knows are not read again.  ConfigError if one is missing."""
    known = before.inputs if before else {}
    paths = sorted(path for name in options.inputs for path in _files(folder, name))
    inputs = {path: _read(folder / path, known.get(path)) for path in paths}
    program = (*options.program, *(("--resume", *shlex.split(options.resume)) if options.resume else ()))
    words = volatile_words(environment)
    return Call(program, words, str(folder), inputs, options.outputs, options.keep, more=more)


def read_call(store: Path) -> Call | None:
    """What a run was called with; None if it is new."""
    try:
        data: dict[str, Any] = jsontext.parse((store / CALL).read_text())
        data["inputs"] = {name: InputFile(**entry) for name, entry in data["inputs"].items()}
        return Call(
            program=tuple(data["program"]),
            volatile=tuple(data["volatile"]),
            folder=str(data["folder"]),
            inputs=data["inputs"],
            outputs=tuple(data["outputs"]),
            keep=tuple(data["keep"]),
            is_finished=bool(data["is_finished"]),
            more=tuple(data.get("more", ())),  # none before there were engines
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError([f"{store / CALL}: not a call of unbroken exec ({error}); remove that file"]) from error


def volatile_words(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Texts that differ from job to job by themselves: the temporary folder, and the numbers of Slurm's job."""
    names = ("TMPDIR", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID")
    return tuple(environment[name] for name in names if environment.get(name))


def changed_inputs(was: Call, now: Call) -> list[str]:
    """The inputs whose contents differ, and those that came or went."""
    names = sorted(was.inputs.keys() | now.inputs.keys())
    return [name for name in names if _digest(was, name) != _digest(now, name)]


def is_same_program(was: Call, now: Call, ignored: Sequence[str]) -> bool:
    """True if the command lines say the same, but for what differs by itself and the options to be ignored."""
    before, after = _without(was.words, ignored), _without(now.words, ignored)
    if len(before) != len(after):
        return False
    return all(
        one == other or _neutral(one, was.volatile) == _neutral(other, now.volatile)
        for one, other in zip(before, after, strict=True)
    )


def difference(was: Call, now: Call) -> str:
    """`was ..., is ...`, for a message."""
    return f"was: {shlex.join(was.words)}; is: {shlex.join(now.words)}"


def keep_refused(store: Path, call: Call) -> None:
    """Notes what was refused, for `unbroken accept`."""
    fs.write_atomic(store / REFUSED, json.dumps({"program": call.program, "more": call.more}) + "\n")


def accept_refused(store: Path) -> list[str]:
    """The command line that was refused last is from now on the run's own; ConfigError if there is none."""
    call = read_call(store)
    try:
        refused = jsontext.parse((store / REFUSED).read_text())
        program, more = tuple(refused["program"]), tuple(refused["more"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # none, or a spoilt one
        call = None
    if call is None:
        raise ConfigError([f"{store}: no command line was refused, nothing to accept; type the command again"])
    now = replace(call, program=program, more=more)
    now.write(store)
    (store / REFUSED).unlink()
    return [difference(call, now)]


def _without(words: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """The words but for these options and their values, `--threads 8` and `--threads=8`."""
    left, is_value = [], False
    for word in words:
        if word in ignored:
            is_value = True
        elif word.partition("=")[0] in ignored or (is_value and not word.startswith("-")):
            is_value = False
        else:
            is_value = False
            left.append(word)
    return left


def _neutral(word: str, volatile: Sequence[str]) -> str:
    for text in volatile:
        word = re.sub(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])", "\0", word)
    return word


def _digest(call: Call, name: str) -> str:
    return call.inputs[name].digest if name in call.inputs else ""


def _files(folder: Path, name: str) -> list[str]:
    """An input's files: itself, or all that lies in it."""
    path = folder / name
    if path.is_dir():
        return [os.path.join(name, below) for below in fs.tree_files(path) if (path / below).is_file()]
    return [name]


def _why(path: Path, error: OSError) -> str:
    return f"{path}: {error.strerror}" if path.exists() else absent(str(path), Path())


def _read(path: Path, known: InputFile | None) -> InputFile:
    try:
        state = path.stat()
        stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
        if known is not None and stamp == (known.size_bytes, known.mtime_ns, known.inode):
            return known
        with path.open("rb") as file:
            return InputFile(*stamp, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise AbsentFileError([f"exec: --inputs: {_why(path, error)}"]) from error
