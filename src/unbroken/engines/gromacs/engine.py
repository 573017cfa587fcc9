"""Start mdrun in a folder of its own, follow its log, and hand over what it leaves: the GROMACS engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.base import Engine, Task, When
from unbroken.engines.gromacs import checks
from unbroken.engines.gromacs.command import (
    exchange_steps,
    has_plumed,
    has_replicas,
    mdrun_command,
    number_of,
    replica_names,
    threads_per_rank,
)
from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.import_export import export_files, handover, import_files, starters
from unbroken.engines.gromacs.join import SEGMENTS_TABLE, join
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.mdrun_line import CPT, STEM
from unbroken.engines.gromacs.pieces import Leaving, fill, undo_move
from unbroken.engines.gromacs.replicas import CommonEnd, check_replicas, newest_common
from unbroken.engines.gromacs.tool import ENERGY_TABLE, write_energy_table
from unbroken.engines.gromacs.tpr import PREPARED, Simulation, is_prepared_here, prepare
from unbroken.engines.imports import ImportedFiles, ImportSource
from unbroken.engines.starter import Starter
from unbroken.errors import ConfigError, DivergedError, Mistake
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, HandedOver
from unbroken.program.leaving import lead_seconds
from unbroken.program.process import Child
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.own_folder import confirm_all_own, confirm_own
from unbroken.store.progress import write_progress
from unbroken.store.run import RunSpec
from unbroken.system import fs

# What becomes checkpoints in an attempt folder.
_EARLIER, _NEWEST, _SALVAGE = "earlier", "newest", "salvage"
_FOLDER = "mdrun"
# The log is read at most so often.
_LOOK_SECONDS = 0.5
_WITH_PLUMED = "PLUMED's files fit no checkpoint but that with which mdrun leaves: a kill costs the whole segment"
# A kill would take rows from before the checkpoint that mdrun has not yet written, of tables that no checkpoint counts.
_WRITE_AT_ONCE = {"GMX_LOG_BUFFER": "0"}


class GromacsEngine(Engine):
    """Run `mdrun` with its own checkpoints; one object serves one attempt, and those that it saves from."""

    name = "gromacs"
    prepared = PREPARED
    # Logs, sums that begin again with each part, and the table of parts; the energies are in a table of their own.
    results_of_pieces = (f"{STEM}*.log", f"{STEM}.edr", f"*/{STEM}*.log", f"*/{STEM}.edr", SEGMENTS_TABLE)

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._looked_at = 0.0
        self._simulations: dict[str, list[Simulation]] = {}
        self._logs: dict[Path, Log] = {}

    def simulations(self, run: RunSpec) -> list[Simulation]:
        """Return what the run computes: one simulation, or its replicas."""
        made = [Simulation(run, self.base, replica) for replica in replica_names(run)]
        return self._simulations.setdefault(run.name, made)

    def logs(self, task: Task) -> list[Log]:
        """Return mdrun's logs, read to where they are now, or to where they were before they were moved.

        None of them before there is one of each simulation.
        """
        folders = [self.folder(task) / replica for replica in replica_names(task.run)]
        for folder in folders:
            if (path := max(folder.glob(f"{STEM}.part*.log"), default=None)) is not None:
                self._logs.setdefault(folder, Log(path)).read()
        found = [self._logs[folder] for folder in folders if folder in self._logs]
        return found if len(found) == len(folders) else []

    # --- before anything is queued ---

    def progress_evidence(self, run: RunSpec, checkpoint: Path) -> str:
        return f"the step in {CPT}"

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        return starters(self.base, words, is_named=is_named)

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str | Mistake]]:
        return checks.mistakes(run, self.base)

    def prepare(self, run: RunSpec) -> bool:
        if is_prepared_here(run):
            prepare(run, self.base)
        return is_prepared_here(run)

    # --- import and export ---

    def import_files(self, run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
        """Import mdrun's checkpoint and its outputs up to there; a tpr that grompp makes is made first."""
        simulation = self._single(run, "imported")
        self.prepare(run)
        return import_files(run, simulation, source, draft)

    def export(self, run: RunSpec, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Export mdrun's checkpoint, the tpr, and the pieces of the results."""
        return export_files(run, self.base, self._single(run, "exported"), checkpoint, folder)

    def _single(self, run: RunSpec, what: str) -> Simulation:
        if has_replicas(run):
            raise ConfigError([f"{run.name}: replicas cannot be {what}; allowed: a run of one simulation"])
        return Simulation(run, self.base)

    # --- before it starts ---

    def folder(self, task: Task) -> Path:
        """Return a folder for this attempt alone: mdrun locks its log, and renames what it finds in its way."""
        return task.attempt_folder.root / _FOLDER

    def command(self, task: Task) -> list[str]:
        """Return mdrun from the checkpoint that was picked; raise CheckpointError if that is none of mdrun's."""
        if task.origin is None:
            # Without a driver nothing is prepared; once there are checkpoints, another tpr would not be theirs.
            self.prepare(task.run)
        tpr, cpt = fill(task, self.simulations(task.run), self.folder(task))
        left = min(task.stop_unix, task.deadline_unix) - time.time()
        left -= lead_seconds(left, is_launched=bool(task.run.settings["launcher"]))
        return mdrun_command(task.run, tpr, cpt, left, self.base)

    def environment(self, task: Task) -> dict[str, str]:
        """Return the environment; mdrun refuses to start if the number of threads and -ntomp differ."""
        rotates = any(each.tpr.rotates for each in self.simulations(task.run))
        threads = {"OMP_NUM_THREADS": str(threads_per_rank(task.run))}
        return {**super().environment(task), **threads, **(_WRITE_AT_ONCE if rotates else {})}

    def remarks(self, task: Task) -> list[str]:
        """Return what is not equal after a restart; raise SegmentError if it cannot be cut, or not exactly enough."""
        simulations = self.simulations(task.run)
        check_replicas(simulations)
        lines = [line for simulation in simulations for line in simulation.remarks()]
        return list(dict.fromkeys([*lines, *([_WITH_PLUMED] if has_plumed(task.run) else [])]))

    # --- while it runs ---

    def states(self, task: Task, when: When) -> list[HandedOver]:
        """Return none while files grow; note the progress then.  Raise DivergedError if a simulation went wrong."""
        if when is When.WORKS:
            self._watch(task)
            return []
        return self._of_killed(task) if when is When.KILLED else self._left(task)

    def _watch(self, task: Task) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        self._refuse_diverged(task)
        logs, end_step = self.logs(task), self.simulations(task.run)[0].end_step
        if logs and (progress := logs[0].progress(end_step)) is not None:
            write_progress(task.attempt_folder.progress, progress)

    def _refuse_diverged(self, task: Task) -> None:
        """Move mdrun's folder aside if a simulation has gone wrong: nothing of it becomes a checkpoint."""
        limits = [number_of(task.run, name) for name in ("max_temperature", "max_constraint_warnings")]
        found = next(((log, why) for log in self.logs(task) if (why := log.divergence(*limits))), None)
        if found is None:
            return
        log, why = found
        name, aside = log.path.relative_to(self.folder(task)), task.run_folder / "sick" / task.attempt_folder.root.name
        aside.parent.mkdir(exist_ok=True)
        os.rename(self.folder(task), aside)
        what = f"its files, {name} among them, are in {aside}, nothing of them counts"
        raise DivergedError(f"{why}; {what}", todo="fix the system, or the limit", run=task.run.name)

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Send TERM, once, unless mdrun is already leaving: a second one would make it leave in a hurry."""
        if self.leaving_since(task) is None:
            child.terminate()

    def leaving_since(self, task: Task) -> float | None:
        """Return when mdrun's log said that it began to leave."""
        return next((log.leaving_at for log in self.logs(task) if log.leaving_at is not None), None)

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """Return what mdrun meant: it ends with 0 at its goal and at its time, with 1 after a TERM and an error."""
        if not (logs := self.logs(task)) or not all(log.has_finished for log in logs):
            return code if code != EXIT_FINISHED else 1
        _, ending = self._ended(task)
        return EXIT_FINISHED if ending.is_final else EXIT_PAUSED

    def _left(self, task: Task) -> list[HandedOver]:
        """Return the newest complete checkpoint and the one before, if they are further than the origin.

        The pieces go with the earlier one, so that the newest is small and soon verified.
        """
        self._refuse_diverged(task)
        left, ending = self._ended(task)
        newest, earlier = (task.attempt_folder.root / name for name in (_NEWEST, _EARLIER))
        for each, cpt, before in zip(left, ending.cpts, ending.earlier or [None] * len(ending.cpts), strict=False):
            confirm_own(self.folder(task))
            each.move(cpt, before, newest, earlier)
        found = [self._found(earlier, left, ending.earlier)] if ending.earlier else []
        return [*found, *([self._found(newest, left, ending.cpts, is_final=ending.is_final)] if ending.cpts else [])]

    def _of_killed(self, task: Task) -> list[HandedOver]:
        """Return what a killed attempt had in its folder, copied as far as its newest complete checkpoint counts."""
        draft = task.attempt_folder.root / _SALVAGE
        confirm_all_own([self.folder(task)])
        if draft.exists():
            fs.remove_tree(draft)
        for name in (_NEWEST, _EARLIER):
            undo_move(task.attempt_folder.root / name, self.folder(task), replica_names(task.run))
        self._refuse_diverged(task)
        left, ending = self._ended(task, has_left=False)
        for each, cpt in zip(left, ending.cpts, strict=False):
            each.copy(cpt, draft, is_final=ending.is_final)
        return [self._found(draft, left, ending.cpts, is_final=ending.is_final)] if ending.cpts else []

    def _ended(self, task: Task, *, has_left: bool = True) -> tuple[list[Leaving], CommonEnd]:
        """Return what mdrun left, and the checkpoints that count."""
        simulations = self.simulations(task.run)
        left = [
            Leaving(task, self.folder(task) / each.replica, each, log, has_left=has_left)
            for each, log in zip(simulations, self.logs(task), strict=False)
        ]
        ending = newest_common(left, simulations[0].end_step, exchange_steps(task.run)) if left else CommonEnd()
        return left, ending

    def _found(
        self, draft: Path, left: Sequence[Leaving], cpts: Sequence[Cpt], *, is_final: bool = False
    ) -> HandedOver:
        """Return a draft and what its manifest says; of replicas the one counts that is least far."""
        simulation, is_exact = left[0].simulation, all(each.simulation.is_exact for each in left)
        least = min(cpts, key=lambda cpt: cpt.step)
        return HandedOver(draft, handover(least, simulation, is_final=is_final, is_exact=is_exact))

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        """Fill `final` with one trajectory, energy file, log and structure, and the energies as a table.

        Each replica has these in a folder of its own.
        """
        join(checkpoint, final, replica_names(run))
        for folder in [final / replica for replica in replica_names(run)]:
            if (energies := folder / f"{STEM}.edr").exists():
                write_energy_table(run, energies, folder / ENERGY_TABLE, self.base)
