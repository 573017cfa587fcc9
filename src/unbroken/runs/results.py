"""`results/<run>/final`: what the user came for, made from the checkpoint that reached the goal."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from unbroken.errors import CheckpointError, ResultsError, StorageError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.formats import Format
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_own
from unbroken.runs.segment_end import EndCause, EndKind
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now
from unbroken.system.flush import flush_tree

SUMMARY = "summary.json"
FORMAT = Format()  # of the summary, and of the note of what was put into `final/`


def is_current(places: RunFolder, checkpoint: Checkpoint) -> bool:
    """Return True if `final/` stands and was made from this checkpoint."""
    return _summary_digest(places) == checkpoint.passport.digest


def _summary_digest(places: RunFolder) -> str | None:
    """Return the digest of the checkpoint from which `final/` was made; None if there is none, or it is torn."""
    return FORMAT.found(places.final / SUMMARY).get("checkpoint_digest")


def has_results(places: RunFolder, checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Return True if a finished run has its results, or had them: what is gone was taken away by the user."""
    if is_current(places, checkpoint) or not attempts:
        return True
    for attempt in reversed(attempts):
        if attempt.kind is EndKind.FINISHED or attempt.cause is EndCause.NO_RESULTS:
            return attempt.kind is EndKind.FINISHED
    return False


def write(
    places: RunFolder,
    checkpoint: Checkpoint,
    fill: Callable[[Checkpoint, Path], None],
    attempts: Sequence[Attempt],
    confirm: Callable[[], None],
    tell: Callable[[str], None] = lambda _line: None,
    expected: Mapping[str, int | None] | None = None,
    doubts: Sequence[str] = (),
) -> None:
    """Make `final/` again next to the old one and put it in its place; a kill in between leaves none or a whole one.

    `expected` are files that must then be there, with their sizes where known; ResultsError if they are not.  What the
    user has changed in the old one is moved to `replaced/` and logged.  After an error the old one stands as before.
    """
    size = sum(entry.size_bytes for entry in checkpoint.passport.files.values())
    draft = places.root / fs.unique_name("final")
    try:
        with fs.storage_errors(places.root, size):
            draft.mkdir(parents=True)
            fill(checkpoint, draft)
            _refuse_own_name(checkpoint, draft)
            fs.write_new(draft / SUMMARY, _summary(checkpoint, attempts, doubts))
            made = stamps(draft)  # before the flush, which would wait at a pipe for a writer
            flush_tree(draft)
            _confirm_complete(places.final, made, expected or {})
            confirm()
            old = _out_of_the_way(places, tell)
            os.rename(draft, places.final)
            fs.flush_folder(places.root)
            _note(places, checkpoint, made)
    except BaseException:
        fs.remove_tree(draft)  # it may be what fills the disk
        raise
    if old is not None:
        fs.remove_tree(old)


def stamps(folder: Path) -> dict[str, list[int]]:
    """Return size and time of change of each file below; raise ResultsError if one is neither a file nor a link."""
    found = {}
    for name in fs.tree_files(folder):
        state = (folder / name).lstat()
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            raise ResultsError(f"{folder / name}: found a pipe, socket or device, allowed: files, folders, links")
        found[str(name)] = [state.st_size, state.st_mtime_ns]
    return found


def _refuse_own_name(checkpoint: Checkpoint, draft: Path) -> None:
    if (draft / SUMMARY).exists():
        raise CheckpointError(f"{checkpoint.folder}: the name {SUMMARY} in final/ belongs to unbroken; rename yours")


def _confirm_complete(final: Path, made: Mapping[str, list[int]], expected: Mapping[str, int | None]) -> None:
    for name, size in expected.items():
        if name not in made:
            raise ResultsError(f"{final / name}: missing; the engine says that it is one of the results")
        if size is not None and made[name][0] != size:
            raise ResultsError(f"{final / name}: found {made[name][0]:,} bytes, expected {size:,}")


def _out_of_the_way(places: RunFolder, tell: Callable[[str], None]) -> Path | None:
    """Move the old `final/` away; returns where to if it may be removed, None if it is kept or there was none."""
    if not os.path.lexists(places.final):
        return None
    confirm_own(places.final)
    if _is_as_written(places):
        old = places.root / fs.unique_name("final")
        os.rename(places.final, old)
        return old
    kept = _free_name(places.replaced / f"final-{folder_stamp(utc_now())}")
    kept.parent.mkdir(exist_ok=True)
    confirm_own(kept.parent)
    os.rename(places.final, kept)
    tell(f"{places.final} is not as unbroken wrote it: it was moved to {kept} before the new one took its place")
    return None


def _free_name(path: Path) -> Path:
    while os.path.lexists(path):
        path = path.with_name(f"{path.name}.again")
    return path


def _is_as_written(places: RunFolder) -> bool:
    """Return whether nothing in `final/` was added, changed or removed since it was put there; doubt is a change."""
    try:
        note, found = FORMAT.read(places.final_files), stamps(places.final)
        return bool(note["files"] == found) and _summary_digest(places) == note["checkpoint_digest"]
    except (OSError, ValueError, KeyError, ResultsError):
        return False


def _note(places: RunFolder, checkpoint: Checkpoint, made: Mapping[str, list[int]]) -> None:
    """Note what was put there; without the note the next one keeps it, so no error is raised for it."""
    note = {"checkpoint_digest": checkpoint.passport.digest, "files": made}
    with contextlib.suppress(StorageError):
        FORMAT.write(places.final_files, note, indent=None)


def remove_leftovers(places: RunFolder) -> list[str]:
    """Remove drafts of killed writers; return their names."""
    left = [path for path in places.root.glob(".*") if fs.is_unique_name(path.name) and path.is_dir()]
    for path in left:
        fs.remove_tree(path)
    drafts = fs.remove_drafts(places.segments) + fs.remove_drafts(places.root, fs.DRAFT_SECONDS)
    # Written by the owner of the run, as this is removed.
    drafts += fs.remove_drafts(places.root, kind=places.final_files.name)
    return [path.name for path in left] + drafts


def read_doubts(places: RunFolder) -> tuple[str, ...]:
    """Return why the results in `final/` may not be those of one uninterrupted run; empty if nothing says so."""
    doubts = FORMAT.found(places.final / SUMMARY).get("doubts")
    return tuple(map(str, doubts)) if isinstance(doubts, list) else ()


def _summary(checkpoint: Checkpoint, attempts: Sequence[Attempt], doubts: Sequence[str]) -> str:
    passport = checkpoint.passport
    data = {
        "run": passport.run,
        "note": passport.note,
        "progress": passport.progress.to_json(),
        "segments": passport.segment,
        "attempts": len(attempts),
        "identity": passport.identity,
        "identity_parts": dict(passport.identity_parts),
        "versions": dict(passport.versions),
        **({"environment": dict(passport.environment)} if passport.environment else {}),
        "checkpoint": checkpoint.name,
        "checkpoint_digest": passport.digest,
        **({"doubts": list(doubts)} if doubts else {}),
        "written_utc": utc_now(),
        **({"imported": passport.imported.to_json()} if passport.imported else {}),
    }
    return FORMAT.text(data)
