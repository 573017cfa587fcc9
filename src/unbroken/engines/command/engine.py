"""Start the user's own command lines, stop the program in its own way, and interpret its exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Results, Task, When
from unbroken.engines.command import checks
from unbroken.engines.command.folder import OWN_FOLDER, export_files, first_file, last_name, prepare
from unbroken.engines.command.imports import import_files
from unbroken.engines.command.placeholders import filled, named, values_of
from unbroken.engines.command.starter import starters
from unbroken.engines.files.engine import SupervisedEngine
from unbroken.engines.files.outputs import OutputList, outputs_outside
from unbroken.engines.files.place import RunPlace
from unbroken.engines.files.reading import confirm_check, first_match, reading_of
from unbroken.engines.files.results import fill_outputs, output_sizes, remarks
from unbroken.engines.files.settings import Program, SavedBy, program_of
from unbroken.engines.files.states import is_progress_file_kept, matching, restart_files, states_in
from unbroken.engines.files.workspace import Workspace
from unbroken.engines.imports import ImportedFiles, ImportSource
from unbroken.engines.starter import Starter
from unbroken.errors import UnbrokenError
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, FINAL
from unbroken.program.handover import HandedOver
from unbroken.program.process import Child, Streams
from unbroken.store.checkpoint import Checkpoint, read_passport
from unbroken.store.layout import RunFolder, RunOutput
from unbroken.store.run import RunSpec
from unbroken.system import copying, fs

_CLOCKS = {"seconds", "minutes", "hours", "hms"}


class CommandEngine(SupervisedEngine):
    """Run any program with restart files of its own; one object serves one attempt, and those that it saves from."""

    name = "command"
    may_log_to_trackers = True

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._means: int | None = None
        self._printed: dict[Path, int] = {}  # files with what it prints, each with its size in bytes at the start
        self._error = ""
        self._says_done: bool | None = None

    def program(self, run: RunSpec) -> Program:
        """Return what is known of the program; a subclass that returns another one needs no settings of this engine."""
        return program_of(run)

    def hears_a_wish(self, run: RunSpec) -> bool:
        program = self.program(run)
        has_file = program.keeps_the_contract or bool(program.stop_file) or "stop" in _placeholders(program)
        return has_file or bool(program.stop_signal)

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str]]:
        is_ours = type(self).program is CommandEngine.program
        patterns = list(checks.pattern_mistakes(run)) if is_ours else []
        yield from patterns or checks.mistakes(run, self.program(run), self.base)

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        return starters(self.base, words, is_named=is_named)

    def progress_evidence(self, run: RunSpec, checkpoint: Path) -> str:
        """Return what of the config read how far a checkpoint is, and where."""
        program = self._program(run)
        if program.keeps_the_contract:
            return super().progress_evidence(run, checkpoint)
        if not program.says_progress:
            return "nothing says how far its restart files are, so they are counted"
        states = states_in(checkpoint, program.files)[:1]
        try:
            if program.progress_command:  # not asked again: it may write next to the files that it reads
                said = read_passport(checkpoint).progress.done
                return f"progress_command {' '.join(program.progress_command)} printed {said:.10g}"
            return reading_of(run, program, checkpoint, states[0].number if states else "").how
        except UnbrokenError as error:
            return str(error)

    # --- import and export ---

    def import_files(self, run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
        """Import restart files, tables with each record once, and all other files."""
        program = self._program(run)
        if program.keeps_the_contract:
            return super().import_files(run, source, draft)
        return import_files(run, program, self.base, source, draft)

    def export(self, run: RunSpec, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Export inputs, restart files and outputs, and the line that resumes the program."""
        program = self._program(run)
        if program.keeps_the_contract:
            return super().export(run, checkpoint, folder)
        return export_files(run, program, self.base, checkpoint, folder)

    # --- before it starts ---

    def folder(self, task: Task) -> Path:
        """Return a folder for this attempt alone."""
        return task.attempt_folder.root / OWN_FOLDER

    def command(self, task: Task) -> list[str]:
        """Return the `start` line, or `resume` from the checkpoint that was picked; the folder is ready for it."""
        program = self._program(task.run)
        confirm_check(task.run, program)
        self._pending += self.supervisor(task).begin()
        values = self._values(task)
        words = [filled(word, values) for word in (program.resume if task.origin else program.start)]
        place = self.folder(task) / words[0]
        is_in_folder = "/" in words[0] and place.exists()  # we look for it from elsewhere
        return [str(place.absolute()), *words[1:]] if is_in_folder else words

    def environment(self, task: Task) -> dict[str, str]:
        """Return the variables of the contract, and what the config adds."""
        values = self._values(task)
        own = {name: filled(text, values) for name, text in self._program(task.run).environment.items()}
        return {**super().environment(task), **own}

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        """Open the file `stdout` for what it prints, if there is one; else all goes into the log."""
        path = self.prints_to(task, log)
        return _streams(path, log) if path is not None else nullcontext()

    def prints_to(self, task: Task, log: Path) -> Path | None:
        """Return the file that gets what it prints, None for the log; and note where this attempt begins in both."""
        name = self._program(task.run).stdout
        path = self.folder(task) / name if name else None
        self._printed = dict.fromkeys([log, *([path] if path else [])], 0)
        self._printed |= {
            each: each.stat().st_size for each in (*self._printed, *self._messages(task)) if each.exists()
        }
        return path

    def _messages(self, task: Task) -> list[Path]:
        folder = self.folder(task)
        return [folder / name for name in matching(folder, self._program(task.run).messages)]

    def _said(self, task: Task, pattern: str) -> str:
        """Return what a pattern first matches in what this attempt has printed, or written into `messages`."""
        places = {**dict.fromkeys(self._messages(task), 0), **self._printed}
        found = (first_match(path, pattern, begin) for path, begin in places.items())
        return next(filter(None, found), "")

    def remarks(self, task: Task) -> list[str]:
        """Name what is dropped, and what a kill costs if the program saves only as it leaves."""
        program = self._program(task.run)
        lines = [f"dropped, as `discard` says: {', '.join(program.discard)}"] if program.discard else []
        if program.files and program.saved_by is SavedBy.EXIT:
            lines.append("it saves only when it leaves well: a kill costs all that this segment has computed")
        return lines

    # --- while it runs ---

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Make the stop file, at UNBROKEN_STOP and where the program looks, and send the signal, as the config says."""
        program = self._program(task.run)
        super().ask_to_stop(task, child)
        if program.stop_file:
            draft = task.attempt_folder.root / "stop.tmp"
            draft.write_text(filled(program.stop_text, self._values(task)))
            os.replace(draft, self._stop_path(task, program))
        has_clock = bool(_CLOCKS & _placeholders(program)) or bool(program.templates)
        if program.stop_signal:
            child.send(signal.Signals[f"SIG{program.stop_signal}"], to_group=program.stop_signal_to == "group")
        elif not (has_clock or self.hears_a_wish(task.run)):
            child.terminate()

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """Return what the config says; where a code may mean both, the goal or the finished file decides."""
        program = self._program(task.run)
        may_be_finished, may_be_paused = code in program.exit_finished, code in program.exit_paused
        if program.error_pattern:
            self._error = self._said(task, program.error_pattern)
        if not (may_be_finished or may_be_paused) or self._error:
            return code if code not in (EXIT_FINISHED, EXIT_PAUSED) else 1
        try:
            self._says_done = self._asked_if_done(task, program)
        except UnbrokenError:
            self._give_back(task)
            raise
        self._means = EXIT_PAUSED if may_be_paused and not self._says_done else EXIT_FINISHED
        return self._means

    def why_nothing_newer(self, task: Task) -> str:
        said = f"it says: {self._error}" if self._error else ""
        return "; ".join(filter(None, (said, super().why_nothing_newer(task))))

    def left(self, task: Task, *, is_well: bool) -> list[HandedOver]:
        is_finished = is_well and self._means == EXIT_FINISHED and self._says_done is not False
        try:
            return self.at_end(task, has_left_well=is_well, is_finished=is_finished)
        finally:
            self._give_back(task)

    def states(self, task: Task, when: When) -> list[HandedOver]:
        is_there = when is not When.KILLED or self.folder(task).is_dir()
        return super().states(task, when) if is_there else []

    def reclaim(self, task: Task, *, is_program_gone: bool) -> None:
        """Bring the program's folder out of an attempt that was killed; a copy if its program may live."""
        workspace = self._workspace(task)
        if not workspace.folder.is_dir():
            return
        if is_program_gone:
            workspace.give_back(is_owner=True)
        elif not workspace.resting.exists():
            workspace.copy_back()

    output_folder = OWN_FOLDER

    def outputs(self, checkpoint: Checkpoint) -> Sequence[RunOutput]:
        return outputs_outside(checkpoint)

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        """Put together restart files, tables in one piece each, and all other files that the program wrote."""
        source = checkpoint.folder / FINAL
        names = fs.tree_files(source) if source.is_dir() else map(Path, restart_files(checkpoint))
        for name in names:
            (final / name).parent.mkdir(parents=True, exist_ok=True)
            copying.copy_file((source if source.is_dir() else checkpoint.folder) / name, final / name)
        tables = {output.name: output.record for output in self._program(run).outputs}
        fill_outputs(checkpoint, checkpoint.folder.parents[1], final, tables)

    def results(self, run: RunSpec, checkpoint: Checkpoint) -> Results:
        """Return the restart files and the outputs that `final/` must hold, and how outputs in pieces lie."""
        files = checkpoint.passport.files
        has_results = any(name.startswith(f"{FINAL}/") for name in files)
        names = [] if has_results else restart_files(checkpoint)
        sizes = {**{name: files[name].size_bytes for name in names}, **output_sizes(checkpoint)}
        lie = remarks(checkpoint, RunFolder(run.name, self.base).final)
        return replace(super().results(run, checkpoint), files=sizes, remarks=lie)

    # --- inside ---

    def place(self, task: Task) -> RunPlace:
        return RunPlace(task, self._program(task.run), self.folder(task), lambda: self._prepare(task))

    def _prepare(self, task: Task) -> OutputList:
        program = self._program(task.run)
        return prepare(self._workspace(task), program, self.base, self._values(task), task.origin)

    def _workspace(self, task: Task) -> Workspace:
        return Workspace(task.run_folder, self.folder(task))

    def _give_back(self, task: Task) -> None:
        """Move the program's folder out of the attempt if it is still ours."""
        self.supervisor(task).observed.observer.close()
        self._workspace(task).give_back()

    def _program(self, run: RunSpec) -> Program:
        """Return what is known of the program, with commands that can be started."""
        program, base = self.program(run), {"base": str(self.base.resolve())}
        is_observed = program.saved_by is SavedBy.OBSERVED and program.progress_file
        return replace(
            program,
            progress_command=tuple(filled(word, base) for word in program.progress_command),
            check_command=tuple(filled(word, base) for word in program.check_command),
            # Only at its end the number in another file is that of the restart files.
            saved_by=SavedBy.EXIT if is_observed and not is_progress_file_kept(program) else program.saved_by,
        )

    def _values(self, task: Task) -> dict[str, str]:
        program = self._program(task.run)
        state = first_file(task.origin, program) if task.origin and program.files else None
        stop, last = self._stop_path(task, program), last_name(task.origin, program)
        return values_of(task, program, self.base, stop=stop, state=state, last=last)

    def _stop_path(self, task: Task, program: Program) -> Path:
        return self.folder(task) / program.stop_file if program.stop_file else task.attempt_folder.stop

    def _asked_if_done(self, task: Task, program: Program) -> bool | None:
        """Ask the program's own words, then the goal; return None if only the exit code or its progress decides."""
        says = bool(program.finished_pattern and self._said(task, program.finished_pattern))
        says = says or bool(program.finished_file and matching(self.folder(task), [program.finished_file]))
        goal = task.run.goal
        if says or goal is None or program.keeps_the_contract:
            return says or (False if program.finished_pattern or program.finished_file else None)
        done = self.supervisor(task).place.reached()
        return done is not None and done >= goal


@contextmanager
def _streams(printed: Path, log: Path) -> Iterator[Streams]:
    with printed.open("ab") as output, log.open("ab") as error, open(os.devnull, "rb") as nothing:
        yield Streams(nothing.fileno(), output.fileno(), error.fileno())


def _placeholders(program: Program) -> set[str]:
    """Return the placeholders in the program's arguments and its environment."""
    texts = [*program.start, *program.resume, *program.environment.values()]
    return {name for text in texts for name in named(text)}
