"""Keep the results of the runs of a rehearsal, each under its name, and find what differs between two of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from unbroken.engines.base import Engine
from unbroken.engines.files.states import glob_pattern
from unbroken.rehearsal.compare import begun_again, compare_folders, is_excepted
from unbroken.rehearsal.difference import Difference, Kind
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.stage import Stage
from unbroken.store.checkpoint import FILE_NAME as MANIFEST
from unbroken.store.layout import RunFolder
from unbroken.store.results import SUMMARY
from unbroken.store.run import RunSpec
from unbroken.system.fs import tree_files

# What is ours in the folder of an attempt: the contract's files, and states that are about to become checkpoints.
_OURS = re.compile(
    r"(?:save|loose|(?:taken|told|whole|salvage)-?[^/]*)(?:/.*)?"
    r"|(?:progress|stop|verdict|deadline|attempt|times|moments)[^/]*"
    r"|(?:.*/)?(?:__pycache__|\.cache)/.*|(?:.*/)?core[^/]*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Results:
    """Hold the results below `root`.

    `whole` has those of that run, and `beside-whole` what the program wrote to the folder where it was started.
    """

    root: Path
    run: RunSpec
    engine: Engine

    def keep(self, stage: Stage, name: str) -> None:
        """Copy what a run left under this name."""
        shutil.copytree(stage.places.final, self.root / name, symlinks=True)
        for file in stage.beside():
            target = self.root / f"beside-{name}" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(stage.folder / file, target)

    def differences(self, name: str) -> list[Difference]:
        """Return what differs from the whole run in the results, and in what lies next to them: first what says most.

        The control finds next to `results/` what the pieces wrote to their end, so only its results are compared.
        """
        found = self._compared("whole", name)
        if (first := self.root / "beside-whole").exists() and name != "control":
            known = set(map(str, tree_files(first)))  # a killed piece may have left more
            beside = [each for each in self._compared("beside-whole", f"beside-{name}") if each.file in known]
            found += [replace(each, file=f"{each.file} (next to results/)") for each in beside]
        return sorted(
            found, key=lambda each: (list(Kind).index(each.kind), each.position or 0.0, -(each.largest or 0.0))
        )

    def excepted(self) -> list[str]:
        """Return the names of files that are written for each piece, which are not compared."""
        whole, pieces = self.root / "whole", self.root / "pieces"
        names = {str(path) for folder in (whole, pieces) for path in tree_files(folder)}
        by_engine = {name for name in names if is_excepted(name, self.engine.results_of_pieces)}
        return sorted(by_engine | begun_again(whole, pieces))

    def discarded(self) -> list[str]:
        """Return the globs of outputs that the run drops by its settings."""
        found = self.run.settings.get("discard", ())
        return list(map(str, found)) if isinstance(found, (list, tuple)) else [str(found)]

    def lost(self, stage: Stage, saves: SaveWatch) -> list[str]:
        """Return the files that the program wrote in its folder, and that are neither result nor state nor dropped."""
        kept = (stage.places.final, stage.places.checkpoints, stage.places.archive, stage.places.live)
        known = {path.name for folder in kept for path in tree_files(folder)}
        dropped = [glob_pattern(each) for each in self.discarded()]
        return [
            name
            for name in sorted(json.loads(stage.left.read_text()) if stage.left.exists() else [])
            if PurePosixPath(name).name not in known
            and not _OURS.fullmatch(name)
            and not saves.is_state(f"{RunFolder(self.run.name).work}/0/{name}")
            and not any(each.fullmatch(tail) for each in dropped for tail in _tails(name))
        ]

    def _compared(self, one: str, other: str) -> list[Difference]:
        def position(path: Path, offset: int) -> str:
            return self.engine.position(self.run, path, offset)

        ignored = (SUMMARY, MANIFEST, *self.engine.results_of_pieces)
        return compare_folders(self.root / one, self.root / other, ignored, position)


def _tails(name: str) -> Iterable[str]:
    parts = PurePosixPath(name).parts
    return ("/".join(parts[at:]) for at in range(len(parts)))
