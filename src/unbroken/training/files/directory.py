"""Write several files as one checkpoint, complete or absent, by one process or all ranks; standard library alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.store.progress import Handover, Progress
from unbroken.system import fs
from unbroken.training.core.process_group import Processes
from unbroken.training.core.run_directory import Home
from unbroken.training.core.save_policy import Saves

VOTES = {"any": any, "all": all}


class AtomicDirectory(AbstractContextManager["AtomicDirectory"]):
    """Keep a folder of checkpoints that are published by one rename; `latest` and `best` are links to two of them.

    Kept are the newest `keep` (-1: all), the best, every `milestone_every`-th, and the milestones.  In a process group
    of torch.distributed all ranks make it and call its methods together; a checkpoint is then a milestone if any rank
    calls it one, or only if all do (`milestones`).  With `per_rank` each rank has a folder of its own instead, and
    waits for no other.  Raise LeaseError if another program, or another rank alone, writes the folder.  Raise
    CheckpointError if not all ranks name the same one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 2,
        milestone_every: int = 0,
        milestones: str = "any",
        per_rank: bool = False,
    ) -> None:
        if milestones not in VOTES:
            raise ValueError(f"AtomicDirectory(milestones={milestones!r}), allowed: 'any' or 'all'")
        if keep < 1 and keep != -1:
            raise ValueError(f"AtomicDirectory(keep={keep!r}), allowed: 1 or more, or -1 for all")
        self._vote, self._ranks = VOTES[milestones], Processes() if per_rank else _ranks()
        self._check_same(Path(folder).absolute())
        self._home: Home | None = None  # of the first rank
        self._newest = self._ranks.by_first(
            lambda: self._open(Path(folder), keep if keep > 0 else sys.maxsize, milestone_every)
        )

    @property
    def newest(self) -> Path | None:
        """Return the newest checkpoint, every byte of it checked when this was opened; None if there is none yet."""
        return self._newest

    @contextmanager
    def checkpoint(
        self, done: float, *, unit: str = "steps", is_best: bool = False, is_milestone: bool = False
    ) -> Iterator[Path]:
        """Yield a new folder to write into, for all ranks the same; at the end of the block it is a checkpoint.

        Each rank writes files of its own names and closes them.  After an exception in the block of any rank nothing
        is shown, and all raise.
        """
        draft = self._ranks.by_first(lambda: self._opened.new_draft())
        error: BaseException | None = None
        try:
            yield draft
        except BaseException as raised:  # noqa: BLE001  (raised again once all ranks know)
            error = raised
        votes = self._ranks.all_gather((repr(error) if error else "", is_milestone))
        failed = [f"rank {rank}: {told}" for rank, (told, _) in enumerate(votes) if told]
        if failed:
            self._ranks.by_first(lambda: fs.remove_tree(draft))
            raise error or CheckpointError(f"{draft.parent}: no checkpoint at {done:g}: {'; '.join(failed)}")
        is_kept = self._vote(vote for _, vote in votes)
        handover = Handover(Progress(done, None, unit), is_best=is_best, is_milestone=is_kept)
        self._newest = self._ranks.by_first(lambda: self._opened.hand_over(draft, handover).folder)

    def close(self) -> None:
        """Let others write the folder; the end of the process does it too."""
        if self._home:
            self._home.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _opened(self) -> Home:
        if self._home is None:
            raise CheckpointError("only the first rank writes the folder")
        return self._home

    def _check_same(self, folder: Path) -> None:
        others = [(rank, told) for rank, told in enumerate(self._ranks.all_gather(str(folder))) if told != str(folder)]
        if others:
            rank, told = others[0]
            raise CheckpointError(
                f"AtomicDirectory({str(folder)!r}), and rank {rank} has {told!r}; allowed: one folder for all ranks, "
                "which write files of their own names into one checkpoint; type draft / f'rank{rank}.pt', or "
                "AtomicDirectory(..., per_rank=True) for checkpoints that have nothing to do with each other"
            )

    def _open(self, folder: Path, keep: int, milestone_every: int) -> Path | None:
        self._home = Home(folder, "files", Saves(keep=keep, milestone_every=milestone_every))
        return self._home.origin.folder if self._home.origin else None


def _ranks() -> Processes:
    # Who has not imported it has no ranks, and need not have torch.
    if "torch.distributed" not in sys.modules:
        return Processes()
    from unbroken.training.torch.process_group import here

    return here()
