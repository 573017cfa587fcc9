"""The output files of a run: how much space they take, and which are not as its newest checkpoint lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from unbroken.engines.command.folder import OWN_FOLDER
from unbroken.engines.files.content import OutputFile, is_as_listed
from unbroken.engines.files.outputs import OutputList, bytes_words, piece_path, pieces_of, read_outputs
from unbroken.engines.files.settings import words
from unbroken.engines.files.states import PRINTED
from unbroken.errors import CheckpointError, FormatError
from unbroken.exec.call import Call
from unbroken.exec.engine import PRINTED_NAME
from unbroken.report.known import call_of
from unbroken.store import lease
from unbroken.store.checkpoint import Checkpoint, read_passport
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec


@dataclass(frozen=True)
class OutputSpace:
    """Count the output files of a checkpoint and their bytes, and list the globs of what the run drops."""

    files: int = 0
    size_bytes: int = 0
    dropped: tuple[str, ...] = ()

    def words(self) -> str:
        """Return it as `unbroken status` shows it; empty if the run has no list of outputs and drops nothing."""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        told = [f"output: {files}, {bytes_words(self.size_bytes)}"] if self.files else []
        told += [f"dropped, as `discard` says: {', '.join(self.dropped)}"] if self.dropped else []
        return "; ".join(told)


def output_space(newest: Checkpoint | None, run: RunSpec | None) -> OutputSpace:
    """Return the space that the outputs of a run take at its newest checkpoint; zeros if that is not known."""
    files, size_bytes, _ = _totals(newest.folder, newest.passport.digest) if newest else (0, 0, ())
    return OutputSpace(files, size_bytes, words(run.settings.get("discard")) if run else ())


def listed_doubts(newest: Checkpoint) -> tuple[str, ...]:
    """Return the doubts that a checkpoint lists with its outputs."""
    return _totals(newest.folder, newest.passport.digest)[2]


@lru_cache(maxsize=1024)  # a checkpoint never changes, its list may be long, and `unbroken watch` asks again and again
def _totals(folder: Path, _digest: str) -> tuple[int, int, tuple[str, ...]]:
    try:
        listed = read_outputs(Checkpoint(folder, read_passport(folder)))
    except (CheckpointError, FormatError, FileNotFoundError):  # corrupt, as `unbroken verify` says; or just pruned
        return 0, 0, ()
    sizes = [entry.size_bytes for entry in listed.files.values()] + [piece.size_bytes for piece in listed.pieces]
    return len(sizes), sum(sizes), listed.doubts


# --- compared with the list ---


@dataclass(frozen=True)
class ComparedOutputs:
    """Count the outputs of a run compared with the list of its newest checkpoint; hold a line for each fault."""

    count: int = 0
    faults: tuple[tuple[Path, str], ...] = ()
    is_held: bool = False  # by a job, whose program writes them: nothing was compared


def compare_outputs(places: RunFolder, checkpoint: Checkpoint) -> ComparedOutputs:
    """Compare the outputs of a run, those in pieces too, with the list of its newest checkpoint.

    Raise CheckpointError or FormatError if the list cannot be read.
    """
    call, listed = call_of(places), read_outputs(checkpoint)
    if call is not None and call.is_finished:  # its results are in the checkpoint; the files are the user's
        return ComparedOutputs()
    files = {name: entry for name, entry in listed.files.items() if _is_compared(entry, checkpoint)}
    if not files and not listed.pieces:
        return ComparedOutputs()
    claim, why_free = lease.current_claim(places.lease)
    if claim is not None and not why_free:
        return ComparedOutputs(is_held=True)
    found = [*_file_faults(places, checkpoint, call, files, listed.algorithm), *_piece_faults(places, listed)]
    return ComparedOutputs(len(files) + len(listed.pieces), tuple(found))


def _is_compared(entry: OutputFile, checkpoint: Checkpoint) -> bool:
    """Leave out what lies in the checkpoint, and what no attempt puts back."""
    return not entry.is_rewritten and (entry.resume_bytes >= 0 or checkpoint.passport.is_finished)


def _file_faults(
    places: RunFolder, checkpoint: Checkpoint, call: Call | None, files: dict[str, OutputFile], algorithm: str
) -> Iterator[tuple[Path, str]]:
    folder = _program_folder(places) if call is None else Path(call.folder)
    least = checkpoint.passport.is_finished
    for name, entry in files.items():
        path = places.root / PRINTED_NAME if name == PRINTED else folder / name
        pieces = [piece for _, piece in pieces_of(places.root, name)] if call is None and not least else []
        wanted = entry.size_bytes if least else entry.resume_bytes
        if not any(_is_good(each, entry, wanted, algorithm) for each in (path, *pieces)):
            yield path, f"{_found(path, wanted)}; {_what_to_do(places, path, entry, call, is_finished=least)}"


def _piece_faults(places: RunFolder, listed: OutputList) -> Iterator[tuple[Path, str]]:
    for piece in listed.pieces:
        path = piece_path(places.root, piece.sequence, piece.name)
        if not _is_good(path, piece.listed, piece.size_bytes, listed.algorithm):
            yield path, f"{_found(path, piece.size_bytes)}; put it back from a backup: it is a piece of {piece.name}"


def _program_folder(places: RunFolder) -> Path:
    """Return where the program's files lie: in `output`, or with an attempt that was killed."""
    left = sorted(places.work.glob(f"[0-9]*/{OWN_FOLDER}"))
    return places.output if places.output.is_dir() or not left else left[-1]


def _is_good(path: Path, entry: OutputFile, wanted: int, algorithm: str) -> bool:
    if not path.is_file() or path.stat().st_size < wanted:
        return False
    return entry.resume_bytes < 0 or is_as_listed(path, entry, algorithm)


def _found(path: Path, wanted: int) -> str:
    if not path.is_file():
        return f"gone; the newest checkpoint lists {wanted:,} bytes"
    size = path.stat().st_size
    how = "are listed" if size < wanted else "are listed, with other content"
    return f"found {size:,} bytes; {wanted:,} of the newest checkpoint {how}"


def _what_to_do(places: RunFolder, path: Path, entry: OutputFile, call: Call | None, *, is_finished: bool) -> str:
    if is_finished:
        return "put it back from a backup"
    is_needed = path.name == PRINTED_NAME and path.parent == places.root if call else entry.has_grown and path.exists()
    name = places.name
    if is_needed:
        return f"put it back from a backup, or resume from an earlier checkpoint: unbroken back {name}"
    return "put it back from a backup; without it the result is `finished, with doubts`"
