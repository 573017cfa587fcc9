"""Keep the folder of a training that no workflow manages; standard library alone.

It has one writer, complete checkpoints and the result, and is laid out like a run: `checkpoints/` with the links
`latest` and `best`, `lease/`, `final/`, and for a training `history.jsonl`.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from unbroken.errors import CheckpointError, NoCheckpointError
from unbroken.program.contract import FINAL, Kind
from unbroken.slurm.this_job import job_around_us
from unbroken.store import lease
from unbroken.store import results as final
from unbroken.store.attempts import note_died
from unbroken.store.checkpoint import Checkpoint, Passport, describe_done, passport_of
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndCause, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.own_folder import confirm_all_own
from unbroken.store.progress import Handover
from unbroken.store.select import refuse_newer, select
from unbroken.store.trackers import set_tracker_variables
from unbroken.system import fs, log
from unbroken.system.clock import utc_now
from unbroken.training.core.account import Account
from unbroken.training.core.environment import (
    Contract,
    Outbox,
    SavePlace,
    check_thread,
    deadline_by_hand,
    give_verdict,
    read_contract,
    say,
)
from unbroken.training.core.process_group import Processes
from unbroken.training.core.save_policy import Saves


class Home(SavePlace):
    """Hold the folder open; this process alone writes it until `close`.

    Raise LeaseError if another process writes it, NoCheckpointError if there were checkpoints and none of them is good,
    FormatError if a newer unbroken wrote there.
    `origin` is the checkpoint to resume from, every byte of it checked; None at the very start.  `saves` says what is
    kept.  With `has_history` the attempts are written down (`account`).
    """

    def __init__(self, folder: Path, engine: str, saves: Saves, *, has_history: bool = False) -> None:
        self.places = places = RunFolder(engine, store=folder.absolute())
        self._store, self._saves = Store(places.checkpoints), saves
        # All others of the names in a run's folder are the user's.
        confirm_all_own((places.checkpoints, places.archive, places.lease, places.final))
        refuse_newer(self.places)
        with log.lines_to(say):
            segment = History(places.history).next_segment() if has_history else 1
            self._lease = lease.take_if_idle(places.lease, segment)
        self._lease.__enter__()
        self._pid = os.getpid()
        atexit.register(self.close)
        self._started_utc, self._slurm_job = utc_now(), job_around_us()
        self._started = time.monotonic()
        self.origin: Checkpoint | None = None
        self._last: Checkpoint | None = None
        self._account: Account | None = None
        try:
            refuse_newer(self.places)  # the owner until now may have been a newer one
            self._account = Account(self.places, self._lease, self._slurm_job) if has_history else None
            self.origin = self._last = self._open()
        except BaseException as error:
            self.note_end(EndKind.FAILED, str(error))
            self.close()
            raise

    def new_draft(self) -> Path:
        draft = self._store.root / fs.unique_name("draft")
        with fs.storage_errors(draft):
            draft.mkdir()
        return draft

    def hand_over(self, draft: Path, handover: Handover) -> Checkpoint:
        """Make the draft the newest checkpoint, remove old ones, and renew `final/` at the end."""
        origin, began = self._last, time.monotonic()
        self._last = self._store.publish(draft, self._passport(handover), self._lease.confirm)
        if origin is None or origin.passport.segment != self._last.passport.segment:
            say(f"{describe_done(self._last)}: {self._last.folder}")
        if self._account:
            self._account.note_save(handover, time.monotonic() - began)
        self._store.prune(self._saves.keep, self._saves.milestone_every)
        if self._last.passport.is_finished:
            _trained.add(self.places.root)
            self._write_results(self._last)
            self.note_end(EndKind.FINISHED)
        return self._last

    def reject(self, reason: str) -> Path | None:
        """Quarantine the checkpoint that this process began with; return the one before, to resume from.

        Where there is none, and for a second one in a row, nothing is moved, which is said, and it closes.
        """
        if self.origin is None or len(self._store.readable()) < 2:
            say("there is no other checkpoint to go on from, so this one was not set aside")
        elif self._store.last_sequence() > self.origin.passport.sequence:  # a second one in a row
            say(
                f"{self.origin.name} was not set aside, because the one after it was: the fault may be the program's "
                "or the machine's"
            )
        else:
            target = self._store.quarantine(bad := self.origin.name, reason, is_whole=True)
            self.origin = self._last = self._select()
            say(f"bad checkpoint {bad}: {reason}; moved to {target}")
            return self.origin.folder if self.origin else None
        self.note_end(EndKind.FAILED, reason)
        self.close()
        return None

    def note(self, moment: str) -> None:
        if self._account:
            self._account.note(moment)

    def note_end(self, kind: EndKind, message: str = "", cause: EndCause | None = None) -> None:
        if self._account and os.getpid() == self._pid:
            self._account.end(kind, self.origin, self._last, message, cause)

    def close(self) -> None:
        """Let others write the folder; a process that has not said how it ends has failed, or had nothing to do."""
        atexit.unregister(self.close)
        had_nothing_to_do = self._last and self._last is self.origin and self._last.passport.is_finished
        has_error = getattr(sys, "last_value", None) is not None  # that ends the process
        self.note_end(EndKind.FINISHED if had_nothing_to_do and not has_error else EndKind.FAILED)
        if os.getpid() == self._pid:  # not a fork that ends like its parent
            self._lease.__exit__()

    def contract(self) -> Contract:
        """Return what a workflow would pass: the end of the Slurm job, if there is one, is the deadline."""
        stop = self.places.root / "stop"
        stop.unlink(missing_ok=True)  # it was meant for the process before
        return Contract(
            run=self.places.name,
            resume=self.origin.folder if self.origin else None,
            save=self._store.root,
            deadline=deadline_by_hand(self._slurm_job),
            stop=stop,
            progress=self.places.root / "progress.json",
            save_seconds=self._saves.minutes * 60,
        )

    def _open(self) -> Checkpoint | None:
        with fs.storage_errors(self.places.root):
            self._store.root.mkdir(parents=True, exist_ok=True)
            removed = self._store.remove_leftovers() + final.remove_leftovers(self.places)
        if removed:
            say(f"removed the unfinished files of a killed process: {len(removed)} in {self.places.root}")
        found = self._select()
        if self._account:
            note_died(History(self.places.history), self._lease, self._store)
            if found and found.passport.is_finished:  # not to be missed where the data or the script are others now
                if not final.has_results(self.places, found, History(self.places.history).attempts()):
                    self._write_results(found)  # a kill came between the checkpoint and its results
                root = self.places.root
                say(
                    f"{root}: finished before, at {describe_done(found)}; nothing is trained but for a higher goal; "
                    f"to begin anew: mv {root} {root}.old"
                )
        self._lease.forget_earlier()
        return found

    def _write_results(self, last: Checkpoint) -> None:
        with log.lines_to(say):
            final.write(self.places, last, _copy_final, attempts=(), confirm=self._lease.confirm)

    def _select(self) -> Checkpoint | None:
        """Return the newest checkpoint that is good, every byte of it checked; quarantine bad ones."""
        try:
            with log.lines_to(say):
                found = select(self._store, self.places.name, lambda identity: True)
        except NoCheckpointError as error:
            root = self.places.root
            todo = f"put a good copy into {self._store.root}, or begin anew with: mv {root} {root}.old"
            raise NoCheckpointError(f"{root}: {error.text}", todo=todo) from error
        if found:
            self._store.mend_links(found)
        return found

    def _passport(self, handover: Handover) -> Passport:
        name = self.places.name
        return passport_of(
            handover,
            self._last,
            run=name,
            engine=name,
            identity="",
            identity_parts={},
            segment=1 + (self.origin.passport.segment if self.origin else 0),
            sequence=self._store.last_sequence() + 1,
            token=self._lease.claim.token,
            slurm_job=self._slurm_job.to_json() if self._slurm_job else None,
            attempt_started_utc=self._started_utc,
            work_seconds=round(time.monotonic() - self._started, 3),
        )


# Where trainings of this process have begun by a contract, or ended in a folder.  A second one, such as the next fold
# of a cross-validation, would resume from the checkpoints of the first; another process may do that.
_trained: set[object] = set()


def connect(
    folder: str | os.PathLike[str] | None, saves: Saves, ranks: Processes | None = None
) -> tuple[Contract, SavePlace] | None:
    """Return each rank's contract, and where its checkpoints go: to unbroken's workflow, else to a folder.

    UNBROKEN_FOLDER may name the folder as well, which the first rank opens and locks.  Return None if there is neither.
    Raise CheckpointError if a training of this process was there before, RuntimeError outside of the main thread.
    """
    ranks = ranks or Processes()
    if contract := read_contract():
        check_thread()
        check_run(contract)
        return contract, Outbox(contract.save) if ranks.is_first else SavePlace()
    homes: list[Home] = []

    def open_folder() -> Contract | None:
        if place := folder or os.environ.get("UNBROKEN_FOLDER"):
            homes.append(_open(Path(place), saves))
        return homes[0].contract() if homes else None

    if (contract := ranks.by_first(open_folder)) is None:
        return None
    if homes:
        return contract, homes[0]
    # The deadline is on the clock of the first rank's node, and one rank that knows it is enough.
    return replace(contract, deadline=math.inf), SavePlace()


def check_run(contract: Contract) -> None:
    """Raise CheckpointError if a training of this process has begun with this contract before."""
    if (contract.save, contract.resume) in _trained:
        _refuse(
            f"this process has a training of the run {contract.run!r} already, and a second one would go on from its "
            "checkpoints; allowed: one in a run; type a run for each (each fold), with args: [...] in its settings"
        )


def note_begun(contract: Contract) -> None:
    """Note that a training has begun with this contract."""
    _trained.add((contract.save, contract.resume))


def _open(folder: Path, saves: Saves) -> Home:
    check_thread()
    if folder.absolute() in _trained:
        _refuse(
            f"{folder}: this process has finished a training there, and a second one would go on from its end; type "
            "Training(folder=...) with a folder for each (each fold), or start a new process to go on with it"
        )
    home = Home(folder, "training", saves, has_history=True)
    set_tracker_variables(home.places.live, folder.absolute().name, os.environ)
    return home


def _refuse(message: str) -> NoReturn:
    give_verdict(Kind.HOPELESS, message)
    raise CheckpointError(message)


def _copy_final(checkpoint: Checkpoint, folder: Path) -> None:
    source = checkpoint.folder / FINAL
    if source.is_dir():
        shutil.copytree(source, folder, dirs_exist_ok=True)
