"""Run GROMACS and DMTCP for `unbroken exec --engine`, on the engines that runs of a config have.

Their programs work in a folder of their own in the store; what the run was made for is put where it was called at the
end.  Nothing of it is kept twice: should a result be missing or differ later, it is made again from the checkpoints.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from unbroken.config.load import read_run
from unbroken.config.location import Branch, Entry
from unbroken.engines.base import Task
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.dmtcp.programs import OUTPUT
from unbroken.engines.files.settings import texts, words
from unbroken.engines.files.states import stamp_of
from unbroken.engines.files.stored import Replaced, put_file
from unbroken.engines.found import known_schemas
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.join import SEGMENTS_TABLE, join
from unbroken.engines.gromacs.mdrun_line import CPT, MdrunLine
from unbroken.errors import ConfigError, Mistake, SegmentError
from unbroken.exec.call import CALL, FORMAT
from unbroken.exec.options import DMTCP, GROMACS, PRESET, Options
from unbroken.exec.outputs import CalledEngine, Passage, streams
from unbroken.program.process import Streams
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.run import RunSpec
from unbroken.system import fs
from unbroken.system.digests import sha256_of

# Noted with the call: the digest of a checkpoint, and the stamps of the results that were put in place from it.
PLACED = "placed"
_THREADS = "OMP_NUM_THREADS"
_SHELL = 'mkdir -p "$1" && shift && exec "$@"'


class PlacingEngine(CalledEngine):
    """Make an engine's results of its checkpoints, and put them where it was called."""

    def __init__(self, options: Options, folder: Path, store: Path, run: RunSpec) -> None:
        super().__init__(options, folder, store, run)
        self._replaced = Replaced(store, folder)
        try:
            settings = self.read_program()
        except ConfigError as error:
            raise ConfigError([f"{self._asked}{line}" for line in error.mistakes]) from error
        self.run = self._checked(settings)

    @property
    def _asked(self) -> str:
        return f"exec: --engine {self.name}: "

    @abstractmethod
    def read_program(self) -> dict[str, object]:
        """Return what the program's words say, as settings of the engine."""

    @abstractmethod
    def result_files(self, made: Path) -> Iterator[tuple[str, Path]]:
        """Yield the files in `made`, as the engine filled it, by the names to have where it was called."""

    def _checked(self, settings: dict[str, object]) -> RunSpec:
        """Return the run with these settings, checked as a run of a config is."""
        run = {"engine": self.name, "segments": 1, "segment_minutes": 60, "threads": self.run.resources.threads}
        entry = Entry("exec", {**run, "settings": settings}, Branch(prefix=self._asked))
        found = read_run(entry, known_schemas(), self.base, self._own_mistakes)
        return replace(
            self.run, engine=self.name, settings=found.settings,
            metric_goals=found.metric_goals, has_counted_goal=found.has_counted_goal,
        )  # fmt: skip

    def _own_mistakes(self, entry: Entry, run: RunSpec, _base: Path) -> Iterator[Mistake]:
        """Yield what the engine finds; how ranks are started is a matter of the rule, or of the batch script."""
        found = ((name, text) for name, text in self.mistakes(run) if name != "launcher")
        yield from (Mistake(str(text), where=entry.spot.at(name)) for name, text in found)

    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        """Put the results in place; files there that are not ours go to the store's `replaced/`.

        Raise SegmentError if one of --outputs is not among them, CheckpointError if their sources are not complete.
        """
        source, placed = self._placed()
        ours = {name for name, stamp in placed.items() if stamp == self._stamp(name)}
        if source == checkpoint.passport.digest and ours == placed.keys():
            return []
        made = self.store / fs.unique_name("final")
        made.mkdir()
        try:
            self.finish(self.run, checkpoint, made)
            found = dict(self.result_files(made))
            self._refuse_missing(found)
            done = [name for name, path in sorted(found.items()) if self._place(name, path, is_ours=name in ours)]
        finally:
            fs.remove_tree(made)
        note = {"checkpoint": checkpoint.passport.digest, "files": {name: self._stamp(name) for name in found}}
        FORMAT.update(self.store / CALL, {PLACED: note})
        return done

    def _refuse_missing(self, found: Mapping[str, Path]) -> None:
        there = {*found, *(str(parent) for name in found for parent in Path(name).parents)}
        if missing := [name for name in self.options.outputs if os.path.normpath(name) not in there]:
            names = f"{', '.join(missing)} is none of the results; these are: {', '.join(sorted(found))}"
            raise SegmentError(f"--outputs: {names}")

    def _place(self, name: str, path: Path, *, is_ours: bool) -> bool:
        """Put a result in place; return False if it is there."""
        target = self.base / name
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            return False
        if not is_ours:
            self._replaced.move(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            fs.flush(path)
            os.replace(path, target)
        except OSError:  # another file system
            put_file(path, target)
        return True

    def _placed(self) -> tuple[str, dict[str, list[int]]]:
        try:
            note = FORMAT.found(self.store / CALL)[PLACED]
            return note["checkpoint"], dict(note["files"])
        except (ValueError, TypeError, KeyError):
            return "", {}

    def _stamp(self, name: str) -> list[int]:
        return list(stamp_of(self.base / name) or ())

    def _inputs(self, *others: str) -> list[str]:
        """Return the inputs that the program finds in its own folder by their last names, as where it was called."""
        names = [name for name in self.options.inputs if name not in others and _is_file(self.base / name)]
        return list({Path(name).name: name for name in reversed(names)}.values())


class CalledGromacs(PlacingEngine, GromacsEngine):
    """Run `gmx mdrun`, its results under the names that the command line gives them."""

    def __init__(self, options: Options, folder: Path, store: Path, run: RunSpec) -> None:
        super().__init__(options, folder, store, run)
        options.ignore = [*options.ignore, "-nsteps"]  # says no more than how far it is to go
        # Another tpr under the same name is another simulation, or a longer one: that is for the user to say.
        self.words = (f"tpr:{sha256_of(folder / self._line.tpr)[:12]}",)

    def read_program(self) -> dict[str, object]:
        line = self._line = MdrunLine(self.options.program)
        self.run = self.run.changed(threads=line.threads or self.run.resources.threads)
        # mdrun works in a folder of its own, and its results get their names when they are put in place.
        options = [str(self.base / word) if _is_file(self.base / word) else word for word in line.rest()]
        names = {"tpr": line.tpr, "launcher": line.launcher, "inputs": self._inputs(line.tpr)}
        return {**line.settings(), **names, "options": options}

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        """Fill the folder with what mdrun makes, and what it loads; no table of the energies."""
        join(checkpoint, final)
        shutil.copyfile(checkpoint.folder / CPT, final / CPT)

    def result_files(self, made: Path) -> Iterator[tuple[str, Path]]:
        for name in map(str, fs.tree_files(made)):
            if name != SEGMENTS_TABLE:
                yield os.path.normpath(self._line.result(name)), made / name


class CalledDmtcp(PlacingEngine, DmtcpEngine):
    """Run any process under DMTCP, its results those of --outputs."""

    def read_program(self) -> dict[str, object]:
        """Return the words for a folder of its own: files that are there by absolute paths, outputs as they are."""
        names = [os.path.normpath(name) for name in self.options.outputs]
        if wrong := [name for name in names if os.path.isabs(name) or name.startswith("..")]:
            allowed = "paths below the folder where it is called, which the program finds below its own"
            raise ConfigError([f"--outputs: found {', '.join(wrong)}, allowed: {allowed}"])
        line = [str(self.base / word) if _is_file(self.base / word) else word for word in self.options.program]
        for parent in sorted({os.path.dirname(name) for name in names} - {""}):
            line = ["sh", "-c", _SHELL, "sh", parent, *line]
        return {"command": line, "inputs": self._inputs()}

    def result_files(self, made: Path) -> Iterator[tuple[str, Path]]:
        if self.options.stdout and (made / OUTPUT).is_file():
            yield os.path.normpath(self.options.stdout), made / OUTPUT
        for output in self.options.outputs:
            path = made / output
            for name in fs.tree_files(path) if path.is_dir() else [Path()] if path.is_file() else []:
                yield os.path.normpath(os.path.join(output, name)), path / name


class CalledCommand(PlacingEngine, CommandEngine):
    """Run a program that a preset knows; its results have the names that the program gives them."""

    _passages: Sequence[Passage] = ()

    def read_program(self) -> dict[str, object]:
        start = list(self.options.program)
        if "/" in start[0] and _is_file(self.base / start[0]):
            start[0] = str((self.base / start[0]).absolute())
        settings: dict[str, object] = {"preset": self.options.preset, "start": start}
        settings |= {"inputs": list(self.options.inputs)} if self.options.inputs else {}
        settings |= {"goal": self.options.goal} if self.options.goal is not None else {}
        return settings | ({"stdout": self.options.stdout} if self.options.stdout else {})

    def _checked(self, settings: dict[str, object]) -> RunSpec:
        """Return the run; what it reads is an input here too, with which it begins from zero if that changes."""
        run = super()._checked(settings)
        self.options.inputs = list(words(run.settings["inputs"]))
        return run

    @property
    def _asked(self) -> str:
        return f"exec: --preset {self.options.preset}: "

    def environment(self, task: Task) -> dict[str, str]:
        """Return the contract's and the preset's; else the number of threads is the user's own matter here."""
        found, of_preset = super().environment(task), texts(task.run.settings["environment"])
        return {name: text for name, text in found.items() if name != _THREADS or name in of_preset}

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        self.has_started = True
        program = self.program(task.run)
        is_read = bool(program.error_pattern or program.finished_pattern)
        self._passages = passages = list[Passage]()
        return streams(log, self.prints_to(task, log), passages if is_read else None)

    def exit_meaning(self, task: Task, code: int) -> int:
        """Read what the program said before it left, all of it."""
        for passage in self._passages:
            passage.drain()
        return super().exit_meaning(task, code)

    def result_files(self, made: Path) -> Iterator[tuple[str, Path]]:
        for name in map(str, fs.tree_files(made)):
            yield name, made / name


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # a word may be longer than a path can be


KINDS: dict[str, type[PlacingEngine]] = {GROMACS: CalledGromacs, DMTCP: CalledDmtcp, PRESET: CalledCommand}
