"""Record the call of a run, `exec.json` in its folder, and check that a later call is the same computation."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from unbroken.config.found import absent
from unbroken.engines.files.states import Stamp, stamp_of
from unbroken.errors import AbsentFileError, ConfigError
from unbroken.exec.options import Options
from unbroken.store.layout import Format, known_fields
from unbroken.system import fs
from unbroken.system.digests import sha256_of

CALL = "exec.json"
FORMAT = Format()
# A file as it was last read, and its digest: it is not read again as long as it has this stamp.
Input = tuple[Stamp, str]
# Variables whose texts differ from job to job by themselves.
_VOLATILE = ("TMPDIR", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID")


@dataclass(frozen=True)
class Call:
    """Hold a run's arguments; `volatile` are words of that job alone, such as its temporary folder."""

    program: Sequence[str]
    more: Sequence[str]  # words of --resume, and those that an engine adds
    volatile: Sequence[str]
    folder: str
    inputs: Mapping[str, Input] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    keep: Sequence[str] = ()
    is_finished: bool = False
    refused: Sequence[Sequence[str]] = ()  # `program` and `more` of a later call, for `unbroken accept`

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words by which it is this computation."""
        return (*self.program, *self.more)

    def write(self, store: Path) -> None:
        """Write it in one step; what else is noted in its file stays."""
        FORMAT.update(store / CALL, asdict(self))


def call_of(options: Options, folder: Path, before: Call | None, more: Sequence[str] = ()) -> Call:
    """Return this call; inputs that `before` knows are not read again.  Raise AbsentFileError if one is missing."""
    known = before.inputs if before else {}
    paths = sorted(path for name in options.inputs for path in _files(folder, name))
    inputs = {path: _read(folder / path, known.get(path)) for path in paths}
    resume = ("--resume", *options.resume) if options.resume else ()
    volatile = [os.environ[name] for name in _VOLATILE if os.environ.get(name)]
    return Call(options.program, (*resume, *more), volatile, str(folder), inputs, options.outputs, options.keep)


def read_call(store: Path) -> Call | None:
    """Return what a run was called with; None if it is new."""
    try:
        return Call(**known_fields(Call, FORMAT.read(store / CALL)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError([f"{store / CALL}: not a call of unbroken exec ({error}); remove that file"]) from error


def changed_inputs(was: Call, now: Call) -> list[str]:
    """Return the inputs whose contents differ, and those that came or went."""
    before, after = ({name: digest for name, (_, digest) in call.inputs.items()} for call in (was, now))
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def is_same_program(was: Call, now: Call, ignored: Sequence[str]) -> bool:
    """Return True if the command lines say the same but for what differs by itself, and the ignored options."""
    before, after = _without(was.words, ignored), _without(now.words, ignored)
    if len(before) != len(after):
        return False
    return all(
        one == other or _neutral(one, was.volatile) == _neutral(other, now.volatile)
        for one, other in zip(before, after, strict=True)
    )


def difference(was: Call, now: Call) -> str:
    """Return `was: ...; is: ...`, for a message."""
    return f"was: {shlex.join(was.words)}; is: {shlex.join(now.words)}"


def accept_refused(store: Path) -> str:
    """Make the command line that was refused last the run's own; raise ConfigError if there is none."""
    call = read_call(store)
    if call is None or not call.refused:
        raise ConfigError([f"{store}: no command line was refused, nothing to accept; type the command again"])
    program, more = call.refused
    now = replace(call, program=program, more=more, refused=())
    now.write(store)
    return difference(call, now)


def _without(words: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """Return the words without these options and their values, `--threads 8` and `--threads=8`."""
    left, is_value = [], False
    for word in words:
        if word.partition("=")[0] in ignored:
            is_value = "=" not in word
            continue
        if not is_value or word.startswith("-"):
            left.append(word)
        is_value = False
    return left


def _neutral(word: str, volatile: Sequence[str]) -> str:
    for text in volatile:
        word = re.sub(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])", "\0", word)
    return word


def _files(folder: Path, name: str) -> list[str]:
    """Return the files of an input: itself, or all that lies in it."""
    path = folder / name
    if path.is_dir():
        return [os.path.join(name, below) for below in fs.tree_files(path) if (path / below).is_file()]
    return [name]


def _read(path: Path, known: Input | None) -> Input:
    if (stamp := stamp_of(path)) is None:
        raise AbsentFileError([f"exec: --inputs: {absent(str(path), Path())}"])
    return known if known is not None and tuple(known[0]) == stamp else (stamp, sha256_of(path))
