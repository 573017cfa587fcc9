"""Exchange data with a child program: the contract, which any program can keep without importing us.

docs/contract.md is the user's description of it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.program.held_folder import HeldFolder
from unbroken.store.own_folder import confirm_own
from unbroken.store.progress import Handover, parse_handover, read_progress, read_told
from unbroken.store.times import FILE_NAME as NOTE
from unbroken.system.copying import link_or_copy
from unbroken.system.fs import flush_tree, remove_tree, storage_errors, write_atomic

logger = logging.getLogger(__name__)

EXIT_FINISHED = 0
EXIT_PAUSED = 85  # HTCondor's convention for a job that checkpointed itself
READY = ".ready"
HANDOVER_FILE = "progress.json"
# Before the name of what is being published.
TAKEN = "taken-"
# Before the name of a state, next to the save folder: what it said of itself, until it is a checkpoint.
TOLD = "told-"
# Before the name of a note next to a state that its program said nothing about; the note is there only once all that is
# in the folder is on the disk.
WHOLE = "whole-"
COPIES = "salvage-whole"
# What a checkpoint's folder of this name holds is what the user came for.
FINAL = "final"


@dataclass
class AttemptFolder:
    """The folder that a child works with: it saves there, writes its progress, and finds the request to stop."""

    root: Path
    save_inode: int | None = None  # of the save folder, as the attempt noted it
    # Held open by its maker, so that no other folder gets its inode.
    _save: HeldFolder | None = field(default=None, repr=False, compare=False)

    @property
    def save(self) -> Path:
        return self.root / "save"

    @property
    def progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def verdict(self) -> Path:
        """Return the file of what no exit code can say (verdict.py)."""
        return self.root / "verdict.json"

    @property
    def live(self) -> Path:
        """Return the folder of files to look at during the run, which stay when the attempt folder is cleared."""
        return self.root.parents[1] / "live"

    @property
    def deadline(self) -> Path:
        return self.root / "deadline"

    @property
    def note(self) -> Path:
        """Return the file of the times so far, and what a successor must know, should this attempt be killed."""
        return self.root / NOTE

    def prepare(self) -> None:
        """Make the folders of a new attempt folder."""
        self.save.mkdir(parents=True)
        self._save = HeldFolder(self.save)

    def open_save(self) -> HeldFolder:
        """Return the save folder, without following a link; raise ForeignFolderError if something else replaced it."""
        if self._save is not None:
            self._save.confirm()
            return self._save
        found = HeldFolder(self.save)
        confirm_own(self.save, self.save_inode)
        return found

    def close(self) -> None:
        """Close the save folder."""
        if self._save is not None:
            self._save.close()

    def write_deadline(self, unix: float) -> None:
        """Write by when the program should be out, now; never half."""
        draft = self.deadline.with_suffix(".tmp")
        draft.write_text(f"{unix:.3f}\n")
        draft.replace(self.deadline)


@dataclass(frozen=True)
class HandedOver:
    """A complete state that the program left for us: a folder ready to become a checkpoint."""

    draft: Path
    handover: Handover | None  # None from a program that says nothing of its progress
    # The save folder, if `draft` lies in it yet: a program that lives can put a link in its place at any moment.
    save: HeldFolder | None = None
    told: Path | None = None  # the file that holds the handover meanwhile, for a successor
    is_loose: bool = False  # its files lay directly in the save folder when the program had left
    is_judged: bool = False  # by the attempt that made it: the handover is what the checkpoint says, goal and end too

    def move(self, target: Path) -> None:
        """Rename it, and never what may have replaced the save folder by now.

        Raise StorageError if the disk does not take it, ForeignFolderError if the save folder is not ours any more.
        """
        with storage_errors(self.draft):
            if self.save is None:
                os.rename(self.draft, target)
                return
            self.save.confirm()
            self.save.move_out(self.draft.name, target)

    def taken(self) -> HandedOver:
        """Move it next to the save folder, where no program puts anything in its place while it is published."""
        if self.save is None:
            return self
        target = self.draft.parent.parent / f"{TAKEN}{self.draft.name}"
        self.move(target)
        return HandedOver(target, self.handover, told=self.told)

    def forget(self) -> None:
        """Remove its note: it is a checkpoint now."""
        if self.told is not None:
            with suppress(OSError):
                self.told.unlink(missing_ok=True)


def ready_states(attempt_folder: AttemptFolder) -> list[HandedOver]:
    """Return what the program has handed over with `.ready` folders, in name order, without their progress file.

    Raise CheckpointError if a progress file is malformed, ForeignFolderError if the save folder is not ours any more.
    """
    return _ready_in(attempt_folder.open_save(), attempt_folder)


def copied_states(attempt_folder: AttemptFolder) -> list[HandedOver]:
    """Return copies of what a killed attempt had handed over and not published; its program may live.

    Only a state with a progress file of its own says how far it is: by now the program may be further.
    CheckpointError and ForeignFolderError as above.
    """
    copies = AttemptFolder(attempt_folder.root / "salvage")
    shutil.rmtree(copies.root, ignore_errors=True)
    copies.prepare()
    for path in left_states(attempt_folder):
        target = copies.save / path.name.removeprefix(TAKEN)
        shutil.copytree(path, target, symlinks=True, copy_function=link_or_copy)
        told = _told(attempt_folder, target.name)
        if told.is_file() and not os.path.lexists(target / HANDOVER_FILE):
            link_or_copy(told, target / HANDOVER_FILE)
    return _ready_in(copies.open_save(), copies)


def _ready_in(save: HeldFolder, attempt_folder: AttemptFolder) -> list[HandedOver]:
    names = sorted(name for name in save.names() if name.endswith(READY))
    if links := [name for name in names if save.is_link(name)]:
        raise CheckpointError(f"{save.path / links[0]}: a link; a checkpoint is a folder of its own")
    return [_found(save.below(name), attempt_folder, save) for name in names if save.is_folder(name)]


def left_states(attempt_folder: AttemptFolder) -> list[Path]:
    """Return the states of a killed attempt as they lie there; first the one that was being published."""
    save = attempt_folder.open_save()
    taken = sorted(path for path in attempt_folder.root.glob(f"{TAKEN}*{READY}") if not path.is_symlink())
    return taken + [attempt_folder.save / name for name in sorted(save.names()) if _is_ready(save, name)]


def noted(found: HandedOver, handover: Handover) -> HandedOver:
    """Return the state with a note, by which a successor can publish it; raise StorageError on a full disk."""
    if found.draft.name.endswith(READY):
        return found
    note = found.draft.with_name(f"{WHOLE}{found.draft.name}.json")
    with storage_errors(found.draft):
        flush_tree(found.draft)
        write_atomic(note, json.dumps(handover.to_json()))
    return replace(found, told=note)


def noted_states(attempt_folder: AttemptFolder) -> list[HandedOver]:
    """Return copies of what a killed attempt had noted and not published, the least progress first.

    A malformed note is logged, and takes nothing else with it.
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
            logger.warning(f"what was being published is left out: {said}")
            continue
        shutil.copytree(draft, copies / draft.name, symlinks=True, copy_function=link_or_copy)
        found.append(HandedOver(copies / draft.name, handover, is_judged=True))
    return sorted(found, key=lambda each: each.handover.progress.done if each.handover else 0.0)


def loose_state(attempt_folder: AttemptFolder, scratch: Path) -> HandedOver | None:
    """Move to `scratch` the files that a program left directly in its save folder; None if there are none."""
    save = attempt_folder.open_save()
    names = [name for name in save.names() if not _is_ready(save, name) and not _is_draft(save, name)]
    if not names:
        return None
    scratch.mkdir()
    for name in names:
        save.move_out(name, scratch / name)
    return replace(_found(HeldFolder(scratch), attempt_folder), is_loose=True)


def _is_ready(save: HeldFolder, name: str) -> bool:
    return name.endswith(READY) and save.is_folder(name)


def _is_draft(save: HeldFolder, name: str) -> bool:
    return name.startswith(".") or name.endswith(".tmp") or (name.startswith("draft") and save.is_folder(name))


def _told(attempt_folder: AttemptFolder, state: str) -> Path:
    return attempt_folder.root / f"{TOLD}{state}.json"


def _found(folder: HeldFolder, attempt_folder: AttemptFolder, save: HeldFolder | None = None) -> HandedOver:
    own, told = folder.path / HANDOVER_FILE, _told(attempt_folder, folder.path.name)
    with folder:
        has_own = HANDOVER_FILE in folder.names()
        if not has_own and not told.is_file():
            progress = read_progress(attempt_folder.progress)
            return HandedOver(folder.path, Handover(progress) if progress else None, save)
        try:
            handover = parse_handover(read_told(own if has_own else told), str(own))
        except ValueError as error:
            raise CheckpointError(f"{own}: not JSON ({error})") from error
        except IsADirectoryError as error:
            raise CheckpointError(f"{own}: a folder, allowed: a file with an object in it") from error
        if has_own:
            folder.move_out(HANDOVER_FILE, told)
    return HandedOver(folder.path, handover, save, told)
