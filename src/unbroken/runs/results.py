"""`results/<run>/final`: what the user came for, made from the checkpoint that reached the goal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_own
from unbroken.system import fs, jsontext
from unbroken.system.clock import utc_now
from unbroken.system.flush import flush_tree

SUMMARY = "summary.json"


def is_current(places: RunFolder, checkpoint: Checkpoint) -> bool:
    """True if `final/` stands and was made from this checkpoint."""
    try:
        summary = jsontext.parse((places.final / SUMMARY).read_text())
    except (OSError, ValueError):
        return False
    return bool(summary.get("checkpoint_digest") == checkpoint.passport.digest)


def write(
    places: RunFolder,
    checkpoint: Checkpoint,
    fill: Callable[[Checkpoint, Path], None],
    attempts: Sequence[Attempt],
    confirm: Callable[[], None],
) -> None:
    """Makes `final/` anew beside the old one and puts it in its place; a kill in between leaves none or a whole one."""
    size = sum(entry.size_bytes for entry in checkpoint.passport.files.values())
    draft = places.root / fs.unique_name("final")
    with fs.storage_errors(places.root, size):
        draft.mkdir(parents=True)
        fill(checkpoint, draft)
        if (draft / SUMMARY).exists():
            raise CheckpointError(
                f"{checkpoint.folder}: the name {SUMMARY} in final/ belongs to unbroken; rename yours"
            )
        fs.write_new(draft / SUMMARY, _summary(checkpoint, attempts))
        flush_tree(draft)
        confirm()
        old = places.root / fs.unique_name("final")
        if os.path.lexists(places.final):
            confirm_own(places.final)
            os.rename(places.final, old)
        os.rename(draft, places.final)
        fs.flush_folder(places.root)
    if old.exists():
        fs.remove_tree(old)


def remove_leftovers(places: RunFolder) -> list[str]:
    """Removes drafts of killed writers; returns their names."""
    left = [path for path in places.root.glob(".*") if fs.is_unique_name(path.name) and path.is_dir()]
    for path in left:
        fs.remove_tree(path)
    drafts = fs.remove_drafts(places.segments) + fs.remove_drafts(places.root, fs.DRAFT_SECONDS)
    return [path.name for path in left] + drafts


def _summary(checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> str:
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
        "written_utc": utc_now(),
        **({"adopted": passport.adopted.to_json()} if passport.adopted else {}),
    }
    return json.dumps(data, indent=2) + "\n"
