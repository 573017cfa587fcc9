"""The GROMACS engine: starts mdrun in a folder of its own, follows its log, and hands over what it leaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.base import Engine, SaveFiles, Task
from unbroken.engines.gromacs import checks
from unbroken.engines.gromacs.command import (
    CPT,
    mdrun_command,
    result_names,
    threads_per_rank,
)
from unbroken.engines.gromacs.drafts import Drafts, Ended
from unbroken.engines.gromacs.energy import ENERGY_TABLE, write_energy_table
from unbroken.engines.gromacs.export import export_files
from unbroken.engines.gromacs.filling import fill
from unbroken.engines.gromacs.frames import frame_at
from unbroken.engines.gromacs.health import first_divergence, limits_of
from unbroken.engines.gromacs.imports import import_files
from unbroken.engines.gromacs.join import SEGMENTS_TABLE, join
from unbroken.engines.gromacs.leaving import Leaving, leavings
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.outcome import MdrunEnd, handover, live_progress
from unbroken.engines.gromacs.outputs import STEM, newest_log
from unbroken.engines.gromacs.parts import undo_move, whole_checkpoints
from unbroken.engines.gromacs.prepare import PREPARED, is_prepared_here, prepare
from unbroken.engines.gromacs.replicas import CommonEnd, Left, check_replicas, newest_common
from unbroken.engines.gromacs.rotation import WRITE_AT_ONCE
from unbroken.engines.gromacs.settings import ALONE, exchange_steps, has_replicas, replica_names
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.starter import starters
from unbroken.engines.imports import ImportedFiles, ImportSource
from unbroken.engines.starter import Starter
from unbroken.errors import ConfigError, DivergedError, SegmentError
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, HandedOver
from unbroken.program.own_clock import lead_seconds
from unbroken.program.process import Child
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.runs.run import Run
from unbroken.system import fs

# What becomes checkpoints in an attempt folder.
EARLIER, NEWEST = "earlier", "newest"
FOLDER = "mdrun"
# The log is read at most so often.
LOOK_SECONDS = 0.5


class GromacsEngine(Engine):
    """`mdrun` with its own checkpoints; one object serves one attempt, and those that it saves from."""

    name = "gromacs"
    prepared = PREPARED
    # Logs, sums that begin anew with each part, and the table of the parts; the energies are in a table of their own.
    results_of_pieces = (f"{STEM}.log", f"{STEM}.edr", f"*/{STEM}.log", f"*/{STEM}.edr", SEGMENTS_TABLE)

    def position(self, run: Run, path: Path, offset_bytes: int) -> str:
        frame = frame_at(path, offset_bytes) if path.suffix in (".xtc", ".trr") else None
        return frame.describe() if frame else ""

    def progress_evidence(self, run: Run, checkpoint: Path) -> str:
        return f"the step in {CPT}"

    def starters(self, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
        return starters(self.base, words, is_named)

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._looked_at = 0.0
        self._refused = ""
        self._simulations: dict[str, Simulation] = {}
        self._logs: dict[Path, Log] = {}

    def simulation(self, task: Task, replica: str = ALONE) -> Simulation:
        """What the run computes, or one of its replicas."""
        made = Simulation(task.run, self.base, replica or replica_names(task.run)[0])
        return self._simulations.setdefault(f"{task.run.name}/{made.replica}", made)

    def simulations(self, task: Task) -> list[Simulation]:
        """Return what the run computes: one simulation, or its replicas."""
        return [self.simulation(task, replica) for replica in replica_names(task.run)]

    def logs(self, task: Task) -> list[Log]:
        """Return mdrun's logs, read to where they are now, or to where they were before they were moved.

        None of them before there is one of each simulation.
        """
        folders = [self.folder(task) / replica for replica in replica_names(task.run)]
        for folder in folders:
            if (path := newest_log(folder)) is not None:
                self._logs.setdefault(folder, Log(path)).read()
        found = [self._logs[folder] for folder in folders if folder in self._logs]
        return found if len(found) == len(folders) else []

    def mistakes(self, run: Run) -> Iterator[tuple[str, str]]:
        return checks.mistakes(run, self.base)

    def prepare(self, run: Run) -> bool:
        if is_prepared_here(run):
            prepare(run, self.base)
        return is_prepared_here(run)

    # --- import and export ---

    def import_files(self, run: Run, source: ImportSource, draft: Path) -> ImportedFiles:
        """Import mdrun's checkpoint and its outputs up to there; a tpr that grompp makes is made first."""
        if has_replicas(run):
            raise ConfigError([f"{run.name}: replicas cannot be imported; allowed: a run of one simulation"])
        if is_prepared_here(run):
            prepare(run, self.base)
        return import_files(run, Simulation(run, self.base), source, draft)

    def export(self, run: Run, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Export mdrun's checkpoint, the tpr, and the pieces of the results."""
        if has_replicas(run):
            raise ConfigError([f"{run.name}: replicas cannot be exported; allowed: a run of one simulation"])
        return export_files(run, self.base, Simulation(run, self.base), checkpoint, folder)

    def save_files(self, run: Run) -> SaveFiles:
        """mdrun writes `md_step<n>.cpt` and renames it."""
        folder = f"{RunFolder(run.name).work}/*/{FOLDER}{'/*' if has_replicas(run) else ''}"
        return SaveFiles((f"{folder}/*.cpt",), (f"{folder}/{STEM}.cpt",))

    # --- before it starts ---

    def folder(self, task: Task) -> Path:
        """A folder for this attempt alone: mdrun locks its log, and renames what it finds in its way."""
        return task.attempt_folder.root / FOLDER

    def command(self, task: Task) -> list[str]:
        """mdrun from the checkpoint that was picked; CheckpointError if that is none of mdrun's."""
        if (
            task.origin is None
        ):  # without a driver nobody has; once there are checkpoints, another tpr would not be theirs
            self.prepare(task.run)
        reads = fill(task, self.simulations(task), self.folder(task))
        left = min(task.stop_unix, task.deadline_unix) - time.time()
        left -= lead_seconds(left, bool(task.run.settings["launcher"]))
        return mdrun_command(task.run, reads.tpr, reads.cpt, left, self.base)

    def environment(self, task: Task) -> dict[str, str]:
        """mdrun refuses to start if the number of threads and -ntomp differ."""
        tprs = [simulation.tpr for simulation in self.simulations(task)]
        extra = WRITE_AT_ONCE if any(tpr is not None and tpr.slab_steps for tpr in tprs) else {}
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads_per_rank(task.run)), **extra}

    def remarks(self, task: Task) -> list[str]:
        """What is not equal after a restart; SegmentError if the simulation cannot be cut, or not exactly enough."""
        simulations = self.simulations(task)
        check_replicas(simulations)
        return list(dict.fromkeys(line for simulation in simulations for line in simulation.remarks()))

    # --- while it runs ---

    def states(self, task: Task) -> list[HandedOver]:
        """None while it runs, because its files grow; notes how far it is.  DivergedError if it has gone wrong."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        if logs := self.logs(task):
            self._refuse_diverged(task, logs)
            self._note_progress(task, logs[0])
        return []

    def _refuse_diverged(self, task: Task, logs: Sequence[Log]) -> None:
        """Sets mdrun's folder aside, to be looked at: nothing of it becomes a checkpoint."""
        if (found := first_divergence(logs, limits_of(task.run))) is None:
            return
        name = found.log.path.relative_to(self.folder(task))
        aside = task.run_folder / "sick" / task.attempt_folder.root.name
        aside.parent.mkdir(exist_ok=True)
        os.rename(self.folder(task), aside)
        raise DivergedError(
            f"runs.{task.run.name}: {found.illness}; its files, {name} among them, are in {aside}, nothing of them "
            "counts",
            todo="fix the system, or the limit",
        )

    def _note_progress(self, task: Task, log: Log) -> None:
        """For `unbroken status`, and for `stall_minutes`."""
        progress = live_progress(log, self.simulation(task).end_step)
        if progress is not None:
            draft = task.attempt_folder.progress.with_suffix(".tmp")
            draft.write_text(json.dumps(progress.to_json()))
            os.replace(draft, task.attempt_folder.progress)

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """TERM, once, unless mdrun is already leaving: a second one would make it leave in a hurry."""
        if self.leaving_since(task) is None:
            child.terminate()

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """mdrun ends with 0 when it finished and when its time was up, with 1 after a TERM and after an error."""
        logs = self.logs(task)
        if not logs or not all(log.has_finished for log in logs):
            return code if code != EXIT_FINISHED else 1
        return EXIT_FINISHED if self._ending(task, logs).is_final else EXIT_PAUSED

    def leaving_since(self, task: Task) -> float | None:
        """When its log said so."""
        return next((log.leaving_at for log in self.logs(task) if log.leaving_at is not None), None)

    def last_states(self, task: Task, has_left_well: bool) -> list[HandedOver]:
        """The newest whole checkpoint and its pieces, if it is further than the one before."""
        logs = self.logs(task)
        if not logs:
            return []
        self._refuse_diverged(task, logs)
        ending = self._ending(task, logs)
        if ending.cpts:
            return self._moved(task, ending, logs)
        fatal = next((log.fatal for log in logs if log.fatal), [])
        if fatal and not has_left_well:
            raise SegmentError(f"runs.{task.run.name}: mdrun: {' '.join(fatal)}; nothing new was saved")
        return []

    def why_nothing_newer(self, task: Task) -> str:
        """Say which file of the newest checkpoint could not be cut."""
        return self._refused

    def _moved(self, task: Task, ending: CommonEnd, logs: Sequence[Log]) -> list[HandedOver]:
        """The states as drafts; the pieces go with the earlier one, so that the newest is small and soon verified."""
        root = task.attempt_folder.root
        confirm_own(self.folder(task))
        drafts = self._drafts(task, ending, logs, has_left=True)
        drafts.move(root / NEWEST, root / EARLIER)
        earlier = CommonEnd(ending.earlier)
        found = [self._found(task, root / EARLIER, earlier, logs)] if ending.earlier else []
        return [*found, self._found(task, root / NEWEST, ending, logs)]

    def salvage(self, task: Task) -> list[HandedOver]:
        """What a killed attempt had in its folder, copied as far as its newest whole checkpoint counts."""
        draft = task.attempt_folder.root / "salvage"
        confirm_all_own([self.folder(task)])
        if draft.exists():
            fs.remove_tree(draft)
        for name in (NEWEST, EARLIER):
            undo_move(task.attempt_folder.root / name, self.folder(task), replica_names(task.run))
        logs = self.logs(task)
        if not logs:
            return []
        self._refuse_diverged(task, logs)
        ending = self._ending(task, logs, has_left=False)
        if self._refused:
            task.tell(f"not saved from the killed attempt: {self._refused}")
        if not ending.cpts:
            return []
        self._drafts(task, ending, logs, has_left=False).copy(draft)
        return [self._found(task, draft, ending, logs)]

    def _ending(self, task: Task, logs: Sequence[Log], *, has_left: bool = True) -> CommonEnd:
        """Finds the checkpoints that count; notes why a newer one does not."""
        found = self._leavings(task, logs, has_left=has_left)
        left = [
            Left(whole_checkpoints(each.folder), each.begun, log.has_finished, each.is_usable)
            for each, log in zip(found, logs, strict=True)
        ]
        ending = newest_common(left, self.simulation(task).end_step, exchange_steps(task.run))
        refused = {step: line for each in found for step, line in each.refused.items()}
        self._refused = refused[max(refused)] if refused else ""
        return ending

    def _leavings(self, task: Task, logs: Sequence[Log], *, has_left: bool) -> list[Leaving]:
        return leavings(task, self.simulations(task), self.folder(task), logs, has_left=has_left)

    def _drafts(self, task: Task, ending: CommonEnd, logs: Sequence[Log], *, has_left: bool) -> Drafts:
        earlier = ending.earlier or [None] * len(ending.cpts)
        pairs = zip(self._leavings(task, logs, has_left=has_left), ending.cpts, earlier, strict=True)
        return Drafts([Ended(*each) for each in pairs], is_final=ending.is_final)

    def _found(self, task: Task, draft: Path, ending: CommonEnd, logs: Sequence[Log]) -> HandedOver:
        """A draft and its passport's words; of replicas the one counts that is least far."""
        simulations = self.simulations(task)
        step = min(ending.cpts, key=lambda cpt: cpt.step)
        is_exact = all(each.is_exact for each in simulations)
        tpr, goal = simulations[0].known_tpr, simulations[0].end_step
        return HandedOver(draft, handover(MdrunEnd(step, ending.is_final), tpr, goal, logs[0], is_exact))

    def finish(self, run: Run, checkpoint: Checkpoint, final: Path) -> None:
        """One trajectory, one energy file, one log, the last structure, and the energies as a table.

        Each replica has these in a folder of its own.
        """
        join(checkpoint, final, replica_names(run))
        for replica in replica_names(run):
            self._name_results(run, final / replica)

    def _name_results(self, run: Run, final: Path) -> None:
        energies = final / f"{STEM}.edr"
        if energies.exists():
            write_energy_table(run, energies, final / ENERGY_TABLE, self.base)
        for kind, name in result_names(run).items():
            if (path := final / f"{STEM}{kind}").exists():
                (final / name).parent.mkdir(parents=True, exist_ok=True)
                path.rename(final / name)
