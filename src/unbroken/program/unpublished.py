"""Folders that were to become checkpoints when their attempt was killed, with what was known of each.

What a program hands over says it of itself (`contract`); of what was made of its files only the attempt knew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace

from unbroken.errors import CheckpointError
from unbroken.program.contract import READY, AttemptFolder, HandedOver
from unbroken.runs.progress import Handover, parse_handover, read_told
from unbroken.system.flush import flush_tree
from unbroken.system.fs import link_or_copy, remove_tree, storage_errors, write_atomic

# Before the name of the folder, beside it; there is one only once all that is in the folder is on the disk.
WHOLE = "whole-"
COPIES = "salvage-whole"


def noted(found: HandedOver, handover: Handover) -> HandedOver:
    """The same, so that a successor can publish it should we be killed meanwhile; StorageError if the disk is full."""
    if found.draft.name.endswith(READY):
        return found
    note = found.draft.with_name(f"{WHOLE}{found.draft.name}.json")
    with storage_errors(found.draft):
        flush_tree(found.draft)
        write_atomic(note, json.dumps(handover.to_json()))
    return replace(found, told=note)


def noted_states(attempt_folder: AttemptFolder, tell: Callable[[str], None]) -> list[HandedOver]:
    """Copies of what a killed attempt had noted so and not published, the least progress first.

    A malformed note is told of, and takes nothing else with it.
    """
    copies = attempt_folder.root / COPIES
    remove_tree(copies)
    found = []
    for note in attempt_folder.root.glob(f"{WHOLE}*.json"):
        draft = attempt_folder.root / note.stem.removeprefix(WHOLE)
        if draft.is_symlink() or not draft.is_dir():
            continue  # it is a checkpoint
        try:
            handover = parse_handover(read_told(note), str(note))
        except (CheckpointError, ValueError) as error:
            said = str(error) if isinstance(error, CheckpointError) else f"{note}: {error}"
            tell(f"what was being published is left out: {said}")
            continue
        shutil.copytree(draft, copies / draft.name, symlinks=True, copy_function=link_or_copy)
        found.append(HandedOver(copies / draft.name, handover, is_judged=True))
    return sorted(found, key=lambda each: each.handover.progress.done if each.handover else 0.0)
