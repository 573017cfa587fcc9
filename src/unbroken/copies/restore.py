"""The way back: a run whose first place is lost is rebuilt from its copies.

It is built beside the place where it will stand, `results/.restoring-<run>`, under a lease of its own, and comes there
by one rename: whoever looks sees no run or a whole one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from unbroken.copies.outputs import OutputTransfer, shortened
from unbroken.copies.place import NOTE, Note, SecondPlace, file_system_of, new_number, number_of, said, write_number
from unbroken.copies.transfer import Transfer
from unbroken.errors import CheckpointError, ConfigError, NoCheckpointError, StorageError
from unbroken.runs import lease
from unbroken.runs.checkpoint import Checkpoint, age_by_name, describe_done
from unbroken.runs.claim import Claim
from unbroken.runs.history import Attempt, History
from unbroken.runs.known_formats import refuse_newer_files
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import Lease
from unbroken.runs.lineage import only_parts
from unbroken.runs.own_folder import confirm_own
from unbroken.runs.passport import read_passport
from unbroken.runs.record import read_record
from unbroken.runs.run_output import OutputPlace, OutputsOf, RunOutput
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.system import fs
from unbroken.system.clock import utc_now

# Claims may have followed the last one that the copies know of; the lost run's jobs shall never meet their own number.
TOKENS_APART = 1000
Tell = Callable[[str], None]


def restore(run: str, source: Path, base: Path, tell: Tell, outputs_of: OutputsOf) -> Checkpoint:
    """Rebuilds `results/<run>` from copies and returns the checkpoint that it goes on from.

    `source` is the folder of `copies:`, or the run's folder in there; `outputs_of` says what lies outside of a
    checkpoint and belongs to it.  ConfigError if the run exists or there are no copies of it, CheckpointError if none
    of them is good, LeaseError if another process is at it, StorageError for a disk.  If the process dies inside, the
    run is absent, and the next call goes on from there.
    """
    try:
        newest = _restored(run, source, base, tell, outputs_of)
    except OSError as error:
        raise StorageError(f"{said(error)}; {run} was not restored; start again when that answers") from error
    return newest


def _restored(run: str, source: Path, base: Path, tell: Tell, outputs_of: OutputsOf) -> Checkpoint:
    places, draft = RunFolder(run, base), RunFolder(f".restoring-{run}", base)
    place, note = _place(run, source)
    _refuse_existing(places, place)
    refuse_newer_files(place.store, place.segments, place.history, is_thorough=True)
    with fs.storage_errors(draft.root, fs.tree_bytes(place.root)):
        _make(draft.root)
        confirm_own(draft.root)
        _forget_others(draft.root, note)
        with lease.take(_seeded(draft, place), 0, 0.0, tell) as held:
            newest = _Rebuilding(run, place, draft, held, tell, outputs_of).fill()
            _take_over(place, note, places, draft, tell)
            _refuse_existing(places, place)
            held.forget_earlier()
            os.rename(draft.root, places.root)
            held.folder = places.lease
            fs.flush_folder(places.root.parent)
    tell(f"{run}: rebuilt in {places.root} from {place.root}: {describe_done(newest)}, checkpoint {newest.name}")
    return newest


class _Rebuilding:
    """Fills the folder beside the run's place."""

    def __init__(
        self, run: str, place: SecondPlace, draft: RunFolder, held: Lease, tell: Tell, outputs_of: OutputsOf
    ) -> None:
        self.run, self.place, self.draft, self.tell, self.outputs_of = run, place, draft, tell, outputs_of
        token = held.claim.token
        self.to_store = Transfer(draft.checkpoints, token, confirm=held.confirm)
        self.to_archive = Transfer(draft.archive, token, confirm=held.confirm)

    def fill(self) -> Checkpoint:
        """All that is good; returns the newest checkpoint, NoCheckpointError if none is good."""
        newest = self._with_outputs(self._checkpoints())
        self._pieces()
        self._history(newest)
        for source, target in self._texts(newest):
            target.parent.mkdir(exist_ok=True)
            fs.write_atomic(target, source.read_text())
        Store(self.draft.checkpoints).mend_links(newest)
        return newest

    def _checkpoints(self) -> list[Checkpoint]:
        self.draft.checkpoints.mkdir(exist_ok=True)
        for name in reversed(self.place.store.names()):
            self._bring(self.to_store, self.place.store.root / name)
        self.to_store.drop_drafts()
        good = Store(self.draft.checkpoints).readable()
        if not good:
            raise NoCheckpointError(f"{self.place.root}: no good copy of a checkpoint; {self.run} was not rebuilt")
        return good

    def _with_outputs(self, good: list[Checkpoint]) -> Checkpoint:
        """Bring what lies outside of these checkpoints; return the newest that lacks nothing, or else the newest."""
        place = OutputPlace(self.place.root)
        outputs = {each.name: list(self.outputs_of(each)) for each in good}
        lacking = {each.name: place.lacking(outputs[each.name]) for each in good}
        newest = next((each for each in reversed(good) if not lacking[each.name]), good[-1])
        transfer, there = OutputTransfer(place, self.draft.root), list[RunOutput]()
        for each in good:
            if lacking[each.name] and each.age >= newest.age:
                what = "is left out" if each.age > newest.age else "a run that resumes from it may end with doubts"
                names = shortened(lacking[each.name])
                self.tell(f"{self.run}: the copy of {each.name} lacks outputs, and {what}: {names}")
            if each.age > newest.age:
                fs.remove_tree(each.folder)
            else:
                transfer.copy(outputs[each.name], there, each.passport.sequence)
                there += outputs[each.name]
        transfer.drop_unneeded(there)
        return newest

    def _pieces(self) -> None:
        for name in self.place.store.archived():
            self._bring(self.to_archive, self.place.store.archive / name, has_parts_alone=True)
        self.to_archive.drop_drafts()

    def _bring(self, transfer: Transfer, folder: Path, has_parts_alone: bool = False) -> None:
        """A bad one is told and left out."""
        try:
            checkpoint = Checkpoint(folder, read_passport(folder))
            if checkpoint.passport.run != self.run:
                raise CheckpointError(f"{folder}: the passport belongs to the run {checkpoint.passport.run!r}")
            transfer.copy(only_parts(checkpoint) if has_parts_alone else checkpoint)
        except CheckpointError as error:
            self.tell(f"{self.run}: a copy is bad and left out: {error}")

    def _history(self, newest: Checkpoint) -> None:
        self.draft.history.unlink(missing_ok=True)
        history = History(self.draft.history)
        for attempt in History(self.place.history).attempts():
            history.append(_as_it_counts_now(attempt, newest))

    def _texts(self, newest: Checkpoint) -> list[tuple[Path, Path]]:
        """The records of what was not lost, and what the user has accepted."""
        found = [(self.place.accepted, self.draft.accepted)] if self.place.accepted.exists() else []
        for path in sorted(self.place.segments.glob("[0-9]*.json")):
            record = read_record(path)
            if record is not None and not _is_lost(record.checkpoint, newest):
                found.append((path, self.draft.segments / path.name))
        return found


def _place(run: str, source: Path) -> tuple[SecondPlace, Note]:
    """The copies that are meant, and what they say of themselves."""
    for root in (source, source / run):
        place = SecondPlace(root)
        if (note := place.note()) is not None:
            if note.run != run:
                raise ConfigError([f"--from: {root} holds copies of the run {note.run!r}, not of {run!r}"])
            return place, note
    allowed = f"the folder of `copies:`, with {run}/{NOTE} in it"
    raise ConfigError([f"--from: found {source}, which holds no copies of {run}; allowed: {allowed}"])


def _refuse_existing(places: RunFolder, place: SecondPlace) -> None:
    if os.path.lexists(places.root):
        again = f"unbroken restore {places.name} --from {place.root}"
        advice = f"type: snakemake (it goes on), or: unbroken restart {places.name} (sets it aside), then: {again}"
        raise ConfigError([f"{places.root}: the run is there, nothing was restored; {advice}"])


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StorageError(f"{folder.parent}: a link to nowhere, or no folder; put it back and start again") from error


def _forget_others(draft: Path, note: Note) -> None:
    """What an earlier call left that was killed counts only if it took the same copies."""
    if number_of(draft) != note.number:
        for path in draft.iterdir():
            if path.name != "lease":
                _remove(path)
        write_number(draft, note.number)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        fs.remove_tree(path)
    else:
        path.unlink()


def _seeded(draft: RunFolder, place: SecondPlace) -> Path:
    """The folder of the lease, whose next claim is above all that the lost run may have used."""
    draft.lease.mkdir(exist_ok=True)
    confirm_own(draft.lease)
    if not any(draft.lease.glob("*.json")):
        tokens = [attempt.token for attempt in History(place.history).attempts()]
        tokens += [age_by_name(name)[1] for name in place.store.names()]
        token = max(tokens, default=0) + TOKENS_APART
        claim = Claim(token, 0, "", 0, "", "", "", "", "", utc_now(), released_utc=utc_now())
        fs.create_exclusive(draft.lease / f"{token:06d}.json", json.dumps(vars(claim)) + "\n")
    return draft.lease


def _take_over(place: SecondPlace, note: Note, places: RunFolder, draft: RunFolder, tell: Tell) -> None:
    """A new number for the run and its copies: the lost one, should it come back, copies nothing there any more."""
    number = new_number()
    root = places.root.parent.resolve() / places.name
    try:
        place.write_note(Note(places.name, number, str(root), file_system_of(draft.root), utc_now()))
    except StorageError as error:
        tell(f"{places.name}: {error}; should the lost run come back, it copies there too")
        return
    write_number(draft.root, number)


def _as_it_counts_now(attempt: Attempt, newest: Checkpoint) -> Attempt:
    """What an attempt did that the copies do not have has to be done again."""
    left = attempt.to_checkpoint or attempt.from_checkpoint
    if left is None or not _is_lost(left, newest):
        return attempt
    message = f"its checkpoints were lost; the run was restored from the copy of {newest.name}"
    done = min(attempt.progress_to, newest.passport.progress.done)
    return replace(attempt, kind=EndKind.DIED, to_checkpoint=None, progress_to=done, message=message)


def _is_lost(name: str, newest: Checkpoint) -> bool:
    return age_by_name(name) > newest.age
