"""A program's verdict on itself, obeyed: a checkpoint that it rejects is set aside, a hopeless run is stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unbroken.errors import DivergedError, SegmentError
from unbroken.program.verdict import Kind, Verdict, read_verdict
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.segment_end import FIX
from unbroken.runs.store import Store
from unbroken.segment.supervisor import Work


class Rejections:
    """What the program has rejected while one job worked for the run."""

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        self._store, self._tell = store, tell
        self._aside: tuple[Path, str] | None = None

    def apply(self, work: Work) -> bool:
        """True if the checkpoint that the work went on from was set aside, so that the one before is to be taken.

        DivergedError if the program calls the run hopeless, or if no checkpoint suits it.
        """
        verdict = read_verdict(work.task.attempt_folder.verdict)
        if verdict is None:
            return False
        run, origin = work.job.run.name, work.task.origin
        if verdict.kind is Kind.HOPELESS:
            kept = (
                f"the checkpoint of before is kept ({describe_done(work.last)})" if work.last else "nothing was saved"
            )
            raise DivergedError(f"runs.{run}: {verdict.message}; {kept}", log=work.job.log, todo=FIX)
        if origin is None or work.last is not origin:
            found = "it was given none" if origin is None else "it has gone on from it and saved"
            raise SegmentError(f"runs.{run}: the program calls its checkpoint bad ({verdict.message}), but {found}")
        self._set_aside(work, origin, verdict)
        return True

    def _set_aside(self, work: Work, origin: Checkpoint, verdict: Verdict) -> None:
        """One, if there is another; a second in a row says that the fault lies elsewhere, and nothing stays moved."""
        bad = f"runs.{work.job.run.name}: the program calls the checkpoint {origin.name} bad ({verdict.message})"
        if self._aside is not None:
            self._store.put_back(*self._aside)
            found = f"and {self._aside[1]}, the one after it, too: the fault may be the program's or the machine's"
            raise DivergedError(f"{bad}, {found}; nothing was set aside", log=work.job.log)
        if len(self._store.readable()) == 1:
            raise DivergedError(f"{bad}, and there is no other; nothing was set aside", log=work.job.log)
        target = self._store.quarantine(origin.name, verdict.message, is_whole=True)
        self._aside = target, origin.name
        self._tell(f"bad checkpoint {origin.name}: {verdict.message}; moved to {target}; taking the one before")
