"""`--engine`: GROMACS and DMTCP as `unbroken exec` calls them, on the engines that runs of a config have.

Their programs work in a folder of their own in the store; what the run was made for is put where it was called at the
end.  Nothing of it is kept twice: should a result be missing or differ later, it is made again from the checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.dmtcp.programs import OUTPUT
from unbroken.engines.files.stored import Replaced, put_file
from unbroken.engines.gromacs.command import CPT
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.join import SEGMENTS_TABLE, join
from unbroken.errors import AbsentFileError, ConfigError, SegmentError
from unbroken.exec.mdrun_line import parse_mdrun
from unbroken.exec.options import Options
from unbroken.exec.settings import with_engine
from unbroken.exec.streams import streams
from unbroken.program.process import Streams
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.run import Run
from unbroken.system import fs, jsontext
from unbroken.system.digests import sha256_of

# What was put where it was called: name, digest.
PLACED = "placed.json"
_SHELL = 'mkdir -p "$1" && shift && exec "$@"'


class CalledEngine(Engine):
    """What an engine has beside its own where `unbroken exec` calls it; one object serves one call."""

    fills_final = False
    puts_results = True
    # Options of the program that say no more than how far it is to go.
    ignored: tuple[str, ...] = ()

    def called(self, options: Options, store: Path, run: Run) -> None:
        """What it is called with."""
        self.options, self.store, self.run = options, store, run
        self.has_started = False

    def call_words(self) -> tuple[str, ...]:
        """What makes another computation of it, beside the words of its command line."""
        return ()

    def command(self, task: Task) -> list[str]:
        self.has_started = True
        return super().command(task)  # type: ignore[safe-super]

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        return streams(log, None)

    @abstractmethod
    def results(self, checkpoint: Checkpoint, made: Path) -> Iterator[tuple[Path, str]]:
        """The files in `made`, as the engine filled it, with the names that they are to have where it was called."""

    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        """Puts the results in place that are missing or differ, and returns their names; its lease must be held.

        What stands there and is none of ours goes to the store's `replaced/`.  SegmentError if one of --outputs is not
        among them, CheckpointError if what they are made of is not whole.
        """
        source, placed = self._placed()
        is_same = source == checkpoint.passport.digest
        if is_same and all(_has_digest(self.base / name, digest) for name, digest in placed.items()):
            return []
        made = self.store / fs.unique_name("final")
        made.mkdir()
        try:
            self.finish(self.run, checkpoint, made)
            found = {name: path for path, name in self.results(checkpoint, made)}
            made_folders = {str(parent) for name in found for parent in Path(name).parents}
            there = found.keys() | made_folders
            if missing := [name for name in self.options.outputs if os.path.normpath(name) not in there]:
                raise SegmentError(
                    f"--outputs: {', '.join(missing)} is none of the results; these are: {', '.join(sorted(found))}"
                )
            return self._place(checkpoint, found, placed)
        finally:
            fs.remove_tree(made)

    def _place(self, checkpoint: Checkpoint, found: Mapping[str, Path], placed: Mapping[str, str]) -> list[str]:
        done, digests = [], {name: sha256_of(path) for name, path in found.items()}
        for name, path in sorted(found.items()):
            target = self.base / name
            if _has_digest(target, digests[name]):
                continue
            if os.path.lexists(target) and not _has_digest(target, placed.get(name, "")):
                Replaced(self.store, self.base).move(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                fs.flush_file(path)
                os.replace(path, target)
            except OSError:  # another file system
                put_file(path, target)
            done.append(name)
        note = {"checkpoint": checkpoint.passport.digest, "files": digests}
        fs.write_atomic(self.store / PLACED, json.dumps(note, indent=2) + "\n")
        return done

    def _placed(self) -> tuple[str, Mapping[str, str]]:
        """What was put in place last, and the digest of the checkpoint from which."""
        try:
            note = jsontext.parse((self.store / PLACED).read_text())
            return str(note["checkpoint"]), dict(note["files"])
        except (OSError, ValueError, TypeError, KeyError):
            return "", {}


class CalledGromacs(CalledEngine, GromacsEngine):
    """`gmx mdrun`, its results under the names that the command line gives them."""

    ignored = ("-nsteps",)

    def call_words(self) -> tuple[str, ...]:
        """Another tpr under the same name is another simulation, or a longer one: that is for the user to say."""
        tpr = self.base / str(self.run.settings["tpr"])
        try:
            return (f"tpr:{sha256_of(tpr)[:12]}",)
        except OSError as error:
            raise AbsentFileError([f"exec: --engine gromacs: {tpr}: {error.strerror}"]) from error

    def finish(self, run: Run, checkpoint: Checkpoint, final: Path) -> None:
        """Fill the folder with what mdrun makes, and what it loads; no table of the energies."""
        join(checkpoint, final)

    def results(self, checkpoint: Checkpoint, made: Path) -> Iterator[tuple[Path, str]]:
        line = parse_mdrun(self.options.program, self.base)
        shutil.copyfile(checkpoint.folder / CPT, made / CPT)
        for name in map(str, fs.tree_files(made)):
            if name != SEGMENTS_TABLE:  # what is none of mdrun's own files keeps its name
                yield made / name, os.path.normpath(line.result(name) or name)


class CalledDmtcp(CalledEngine, DmtcpEngine):
    """Any process under DMTCP, its results those of --outputs."""

    def results(self, checkpoint: Checkpoint, made: Path) -> Iterator[tuple[Path, str]]:
        if self.options.stdout and (made / OUTPUT).is_file():
            yield made / OUTPUT, os.path.normpath(self.options.stdout)
        for output in self.options.outputs:
            path = made / output
            names = fs.tree_files(path) if path.is_dir() else [Path()] if path.is_file() else []
            for name in names:
                yield path / name, os.path.normpath(os.path.join(output, name))


def called_engine(options: Options, folder: Path, store: Path, run: Run) -> CalledEngine:
    """The engine that --engine names, and the run with its settings as `run`; ConfigError in one line."""
    return _CALLED[options.engine](options, folder, store, run)


def _called_gromacs(options: Options, folder: Path, store: Path, run: Run) -> CalledGromacs:
    line = parse_mdrun(options.program, folder)
    threads = line.threads
    if threads is None and line.settings["launcher"]:  # one of several ranks on this machine
        threads = int(os.environ.get("OMP_NUM_THREADS") or os.environ.get("SLURM_CPUS_PER_TASK") or 1)
    settings = {**line.settings, "inputs": _shown(options, folder, str(line.settings["tpr"]))}
    engine = CalledGromacs(folder)
    engine.called(options, store, with_engine(run, options, folder, settings, threads))
    return engine


def _called_dmtcp(options: Options, folder: Path, store: Path, run: Run) -> CalledDmtcp:
    settings = {"command": _dmtcp_words(options, folder), "inputs": _shown(options, folder)}
    engine = CalledDmtcp(folder)
    engine.called(options, store, with_engine(run, options, folder, settings))
    return engine


_CALLED = {GromacsEngine.name: _called_gromacs, DmtcpEngine.name: _called_dmtcp}


def _shown(options: Options, folder: Path, *others: str) -> list[str]:
    """The inputs that the program finds in its own folder by their last names, as it would where it was called."""
    names = [name for name in options.inputs if name not in others and _is_file(folder / name)]
    return list({Path(name).name: name for name in reversed(names)}.values())


def _dmtcp_words(options: Options, folder: Path) -> list[str]:
    """The program's words for a folder of its own: files that are there by their whole paths, outputs as they are."""
    for name in options.outputs:
        if os.path.isabs(name) or os.path.normpath(name).startswith(".."):
            allowed = "paths below the folder where it is called, which the program finds below its own"
            raise ConfigError([f"exec: --engine dmtcp: --outputs: found {name}, allowed: {allowed}"])
    words = [str(folder / word) if _is_file(folder / word) else word for word in options.program]
    parents = sorted({parent for name in options.outputs if (parent := os.path.dirname(os.path.normpath(name)))})
    for parent in reversed(parents):
        words = ["sh", "-c", _SHELL, "sh", parent, *words]
    return words


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # a word may be longer than a path can be


def _has_digest(path: Path, digest: str) -> bool:
    return bool(digest) and not path.is_symlink() and path.is_file() and sha256_of(path) == digest
