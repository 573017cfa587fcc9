"""Make `results/<run>/final`, what the user came for, of the checkpoint that reached the goal."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError, ResultsError
from unbroken.store.checkpoint import Checkpoint, data_digest
from unbroken.store.history import Attempt, EndCause, EndKind
from unbroken.store.layout import Format, RunFolder
from unbroken.store.own_folder import confirm_own
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now
from unbroken.system.fs import flush_tree

logger = logging.getLogger(__name__)
SUMMARY = "summary.json"
FORMAT = Format()


def is_current(folder: RunFolder, checkpoint: Checkpoint) -> bool:
    """Return True if `final/` stands and was made from this checkpoint."""
    return bool(_summary_of(folder).get("checkpoint_digest") == checkpoint.passport.digest)


def read_doubts(folder: RunFolder) -> tuple[str, ...]:
    """Return why the results in `final/` may not be those of one uninterrupted run; empty if nothing says so."""
    doubts = _summary_of(folder).get("doubts")
    return tuple(map(str, doubts)) if isinstance(doubts, list) else ()


def _summary_of(folder: RunFolder) -> dict[str, Any]:
    """Return the summary in `final/`, an empty one if there is none, or it is torn."""
    return FORMAT.found(folder.final / SUMMARY)


def has_results(folder: RunFolder, checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Return True if a finished run has its results, or had them: what is gone was taken away by the user."""
    if is_current(folder, checkpoint) or not attempts:
        return True
    for attempt in reversed(attempts):
        if attempt.kind is EndKind.FINISHED or attempt.cause is EndCause.NO_RESULTS:
            return attempt.kind is EndKind.FINISHED
    return False


def write(
    folder: RunFolder,
    checkpoint: Checkpoint,
    fill: Callable[[Checkpoint, Path], None],
    *,
    attempts: Sequence[Attempt],
    confirm: Callable[[], None],
    expected: Mapping[str, int | None] | None = None,
    doubts: Sequence[str] = (),
) -> None:
    """Make `final/` again next to the old one and put it in its place; a kill in between leaves none or a whole one.

    `expected` are files that must then be there, with their sizes where known; ResultsError if they are not.  What the
    user has changed in the old one is moved to `replaced/` and logged.  After an error the old one stands as before.
    """
    size = sum(entry.size_bytes for entry in checkpoint.passport.files.values())
    draft = folder.root / fs.unique_name("final")
    try:
        with fs.storage_errors(folder.root, size):
            draft.mkdir(parents=True)
            fill(checkpoint, draft)
            _refuse_own_name(checkpoint, draft)
            made = _stamps(draft)  # before the flush, which would wait at a pipe for a writer
            _confirm_complete(folder.final, made, expected or {})
            fs.write_new(draft / SUMMARY, _summary(checkpoint, attempts, doubts, made))
            flush_tree(draft)
            confirm()
            old = _out_of_the_way(folder)
            os.rename(draft, folder.final)
            fs.flush(folder.root)
    except BaseException:
        fs.remove_tree(draft)  # it may be what fills the disk
        raise
    if old is not None:
        fs.remove_tree(old)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of each file below but the summary; ResultsError if one is no file or link."""
    found = {}
    for name in fs.tree_files(folder):
        state = (folder / name).lstat()
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            raise ResultsError(f"{folder / name}: found a pipe, socket or device, allowed: files, folders, links")
        found[str(name)] = state.st_size, state.st_mtime_ns
    return {name: stamp for name, stamp in found.items() if name != SUMMARY}


def _as_json(made: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    return {name: f"{size} {time_ns}" for name, (size, time_ns) in made.items()}


def _refuse_own_name(checkpoint: Checkpoint, draft: Path) -> None:
    if (draft / SUMMARY).exists():
        raise CheckpointError(f"{checkpoint.folder}: the name {SUMMARY} in final/ belongs to unbroken; rename yours")


def _confirm_complete(final: Path, made: Mapping[str, tuple[int, int]], expected: Mapping[str, int | None]) -> None:
    for name, size in expected.items():
        if name not in made:
            raise ResultsError(f"{final / name}: missing; the engine says that it is one of the results")
        if size is not None and made[name][0] != size:
            raise ResultsError(f"{final / name}: found {made[name][0]:,} bytes, expected {size:,}")


def _out_of_the_way(folder: RunFolder) -> Path | None:
    """Move the old `final/` away; returns where to if it may be removed, None if it is kept or there was none."""
    if not os.path.lexists(folder.final):
        return None
    confirm_own(folder.final)
    if _is_as_written(folder):
        old = folder.root / fs.unique_name("final")
        os.rename(folder.final, old)
        return old
    kept = _free_name(folder.replaced / f"final-{folder_stamp(utc_now())}")
    kept.parent.mkdir(exist_ok=True)
    confirm_own(kept.parent)
    os.rename(folder.final, kept)
    logger.warning(
        "%s is not as unbroken wrote it: it was moved to %s before the new one took its place", folder.final, kept
    )
    return None


def _free_name(path: Path) -> Path:
    while os.path.lexists(path):
        path = path.with_name(f"{path.name}.again")
    return path


def _is_as_written(folder: RunFolder) -> bool:
    """Return True if nothing in `final/` was added, changed or removed since it was put there; doubt is a change."""
    try:
        summary = FORMAT.read(folder.final / SUMMARY)
        summary.pop(FORMAT.key, None)
        is_whole = summary.pop("digest") == data_digest(summary)
        return is_whole and bool(summary["files"] == _as_json(_stamps(folder.final)))
    except (OSError, ValueError, KeyError, ResultsError):
        return False


def remove_leftovers(folder: RunFolder) -> list[str]:
    """Remove drafts of killed writers; return their names."""
    left = [path for path in folder.root.glob(".*") if fs.is_unique_name(path.name) and path.is_dir()]
    for path in left:
        fs.remove_tree(path)
    drafts = fs.remove_drafts(folder.segments) + fs.remove_drafts(folder.root, fs.DRAFT_SECONDS)
    return [path.name for path in left] + drafts


def _summary(
    checkpoint: Checkpoint, attempts: Sequence[Attempt], doubts: Sequence[str], made: Mapping[str, tuple[int, int]]
) -> str:
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
        **({"imported": vars(passport.imported)} if passport.imported else {}),
        "files": _as_json(made),  # to see what the user has changed
    }
    return FORMAT.text({**data, "digest": data_digest(data)})
