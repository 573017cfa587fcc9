"""The GROMACS engine: starts mdrun in a folder of its own, follows its log, and hands over what it leaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.base import Engine, SaveFiles, Task
from unbroken.engines.foreign import Foreign, Found
from unbroken.engines.gromacs import checks
from unbroken.engines.gromacs.adopt import adopted
from unbroken.engines.gromacs.command import CPT, has_plumed, mdrun_command, result_names, threads_per_rank
from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.energy import ENERGY_TABLE, write_energy_table
from unbroken.engines.gromacs.export import exported
from unbroken.engines.gromacs.frames import frame_at
from unbroken.engines.gromacs.health import divergence, limits_of
from unbroken.engines.gromacs.join import SEGMENTS_TABLE, join
from unbroken.engines.gromacs.leaving import Leaving
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.others import OtherFile, Others, write_others
from unbroken.engines.gromacs.outcome import MdrunEnd, handover, live_progress, newest_state
from unbroken.engines.gromacs.outputs import STEM, newest_log
from unbroken.engines.gromacs.parts import copy_state, move_state, own_names, show_inputs, undo_move
from unbroken.engines.gromacs.prepare import PREPARED, is_prepared_here, prepare
from unbroken.engines.gromacs.rotation import WRITE_AT_ONCE
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.starter import starters
from unbroken.engines.starter import Starter
from unbroken.errors import CheckpointError, DivergedError, SegmentError
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
    results_of_pieces = (f"{STEM}.log", f"{STEM}.edr", SEGMENTS_TABLE)

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

    def simulation(self, task: Task) -> Simulation:
        """What the run computes."""
        return self._simulations.setdefault(task.run.name, Simulation(task.run, self.base))

    def log(self, task: Task) -> Log | None:
        """mdrun's log, read to where it is now, or to where it was before it was moved; None before there is one."""
        folder = self.folder(task)
        if (path := newest_log(folder)) is not None:
            self._logs.setdefault(folder, Log(path)).read()
        return self._logs.get(folder)

    def mistakes(self, run: Run) -> Iterator[tuple[str, str]]:
        return checks.mistakes(run, self.base)

    def prepare(self, run: Run) -> bool:
        if is_prepared_here(run):
            prepare(run, self.base)
        return is_prepared_here(run)

    # --- what ran elsewhere, or shall ---

    def adopt(self, run: Run, foreign: Foreign, draft: Path) -> Found:
        """mdrun's checkpoint, and all its outputs up to there; a tpr that is made of other files is made first."""
        if is_prepared_here(run):
            prepare(run, self.base)
        return adopted(run, Simulation(run, self.base), foreign, draft)

    def export(self, run: Run, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """mdrun's checkpoint, the tpr, and the pieces of the results."""
        return exported(run, self.base, Simulation(run, self.base), checkpoint, folder)

    def save_files(self, run: Run) -> SaveFiles:
        """mdrun writes `md_step<n>.cpt` and renames it."""
        folder = f"{RunFolder(run.name).work}/*/{FOLDER}"
        return SaveFiles((f"{folder}/*.cpt",), (f"{folder}/{STEM}.cpt",))

    # --- before it starts ---

    def folder(self, task: Task) -> Path:
        """A folder for this attempt alone: mdrun locks its log, and renames what it finds in its way."""
        return task.attempt_folder.root / FOLDER

    def command(self, task: Task) -> list[str]:
        """mdrun from the checkpoint that was picked; CheckpointError if that is none of mdrun's."""
        self.folder(task).mkdir(exist_ok=True)
        cpt = task.origin.folder / CPT if task.origin else None
        if cpt is not None and not cpt.is_file():
            # `-cpi` with a file that is not there is no error for mdrun.
            raise CheckpointError(f"{cpt}: missing, and mdrun would silently begin at step 0; nothing was started")
        done = task.origin.passport.progress.done if task.origin else None
        tpr = self.simulation(task).tpr_to_run(self.folder(task), done)
        inputs = show_inputs(task.run, self.base, self.folder(task))
        Others(self.folder(task), task.origin, inputs, are_state=has_plumed(task.run)).put_back()
        left = min(task.stop_unix, task.deadline_unix) - time.time()
        left -= lead_seconds(left, bool(task.run.settings["launcher"]))
        return mdrun_command(task.run, tpr, cpt, left, self.base)

    def environment(self, task: Task) -> dict[str, str]:
        """mdrun refuses to start if the number of threads and -ntomp differ."""
        tpr = self.simulation(task).tpr
        extra = WRITE_AT_ONCE if tpr is not None and tpr.slab_steps else {}
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads_per_rank(task.run)), **extra}

    def remarks(self, task: Task) -> list[str]:
        """What is not equal after a restart; SegmentError if the simulation cannot be cut, or not exactly enough."""
        return self.simulation(task).remarks()

    # --- while it runs ---

    def states(self, task: Task) -> list[HandedOver]:
        """None while it runs, because its files grow; notes how far it is.  DivergedError if it has gone wrong."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        if (log := self.log(task)) is not None:
            self._refuse_diverged(task, log)
            self._note_progress(task, log)
        return []

    def _refuse_diverged(self, task: Task, log: Log) -> None:
        """Sets mdrun's folder aside, to be looked at: nothing of it becomes a checkpoint."""
        if not (illness := divergence(log, limits_of(task.run))):
            return
        aside = task.run_folder / "sick" / task.attempt_folder.root.name
        aside.parent.mkdir(exist_ok=True)
        os.rename(self.folder(task), aside)
        raise DivergedError(
            f"runs.{task.run.name}: {illness}; its files, {log.path.name} among them, are in {aside}, nothing of them "
            "counts; fix the system, or the limit, then start again"
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
        log = self.log(task)
        if log is None or log.leaving_at is None:
            child.terminate()

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """mdrun ends with 0 when it finished and when its time was up, with 1 after a TERM and after an error."""
        log = self.log(task)
        if log is None or not log.has_finished:
            return code if code != EXIT_FINISHED else 1
        return EXIT_FINISHED if self._ending(task, log).is_final else EXIT_PAUSED

    def leaving_since(self, task: Task) -> float | None:
        """When its log said so."""
        log = self.log(task)
        return log.leaving_at if log else None

    def last_states(self, task: Task, has_left_well: bool) -> list[HandedOver]:
        """The newest whole checkpoint and its pieces, if it is further than the one before."""
        log = self.log(task)
        if log is None:
            return []
        self._refuse_diverged(task, log)
        ending = self._ending(task, log)
        if ending.cpt is not None:
            return self._moved(task, ending, ending.cpt, log)
        if log.fatal and not has_left_well:
            raise SegmentError(f"runs.{task.run.name}: mdrun: {' '.join(log.fatal)}; nothing new was saved")
        return []

    def why_nothing_newer(self, task: Task) -> str:
        """Say which file of the newest checkpoint could not be cut."""
        return self._refused

    def _moved(self, task: Task, ending: MdrunEnd, cpt: Cpt, log: Log) -> list[HandedOver]:
        """The states as drafts; the pieces go with the earlier one, so that the newest is small and soon verified."""
        folder, root = self.folder(task), task.attempt_folder.root
        confirm_own(folder)
        leaving = self._leaving(task, log, has_left=True)
        names, others = own_names(cpt, folder), leaving.others(cpt)
        found, before = [], list[OtherFile]()
        if (earlier := ending.earlier) is not None:
            with_it = [name for name in own_names(earlier, folder) if not name.endswith(".gro")]
            before = leaving.others(earlier)
            counted = [leaving.counted(each) for each in (earlier, cpt)]
            move_state(earlier, folder, root / EARLIER, with_it, counted[0])
            write_others(before, folder, root / EARLIER, are_state=leaving.are_state)
            found.append(self._found(task, root / EARLIER, MdrunEnd(earlier, is_final=False), log))
            names = [name for name in names if name not in with_it]
        else:
            counted = [leaving.counted(cpt)]
        move_state(cpt, folder, root / NEWEST, names, counted[-1])
        write_others(others, folder, root / NEWEST, before, are_state=leaving.are_state)
        return [*found, self._found(task, root / NEWEST, ending, log)]

    def salvage(self, task: Task) -> list[HandedOver]:
        """What a killed attempt had in its folder, copied as far as its newest whole checkpoint counts."""
        draft = task.attempt_folder.root / "salvage"
        confirm_all_own([self.folder(task)])
        if draft.exists():
            fs.remove_tree(draft)
        for name in (NEWEST, EARLIER):
            undo_move(task.attempt_folder.root / name, self.folder(task))
        log = self.log(task)
        if log is None:
            return []
        self._refuse_diverged(task, log)
        ending = self._ending(task, log, has_left=False)
        if self._refused:
            task.tell(f"not saved from the killed attempt: {self._refused}")
        if ending.cpt is None:
            return []
        leaving = self._leaving(task, log, has_left=False)
        others = leaving.others(ending.cpt)
        copy_state(ending.cpt, self.folder(task), draft, leaving.counted(ending.cpt), is_final=ending.is_final)
        write_others(others, self.folder(task), draft, are_state=leaving.are_state)
        return [self._found(task, draft, ending, log)]

    def _ending(self, task: Task, log: Log, *, has_left: bool = True) -> MdrunEnd:
        leaving = self._leaving(task, log, has_left=has_left)
        goal = self.simulation(task).end_step
        found = newest_state(self.folder(task), task.origin, goal, log.has_finished, leaving.is_usable)
        self._refused = leaving.refused[max(leaving.refused)] if leaving.refused else ""
        return found

    def _leaving(self, task: Task, log: Log, *, has_left: bool) -> Leaving:
        simulation, has_finished = self.simulation(task), log.has_finished
        return Leaving(task, self.folder(task), simulation, has_finished=has_finished, has_left=has_left)

    def _found(self, task: Task, draft: Path, ending: MdrunEnd, log: Log) -> HandedOver:
        simulation = self.simulation(task)
        return HandedOver(draft, handover(ending, simulation.known_tpr, simulation.end_step, log, simulation.is_exact))

    def finish(self, run: Run, checkpoint: Checkpoint, final: Path) -> None:
        """One trajectory, one energy file, one log, the last structure, and the energies as a table."""
        join(checkpoint, final)
        energies = final / f"{STEM}.edr"
        if energies.exists():
            write_energy_table(run, energies, final / ENERGY_TABLE, self.base)
        for kind, name in result_names(run).items():
            if (path := final / f"{STEM}{kind}").exists():
                (final / name).parent.mkdir(parents=True, exist_ok=True)
                path.rename(final / name)
