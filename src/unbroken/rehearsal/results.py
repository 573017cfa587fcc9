"""Keep the results of the runs of a rehearsal, each under its name; find what differs, and what that means."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from unbroken.engines.files.settings import words
from unbroken.engines.files.states import glob_pattern
from unbroken.rehearsal.compare import Difference, Kind, begun_again, compare_folders, is_excepted
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.stage import Stage, identity
from unbroken.store.checkpoint import FILE_NAME as MANIFEST
from unbroken.store.layout import RunFolder
from unbroken.store.rehearsal import Verdict
from unbroken.store.results import SUMMARY
from unbroken.system.fs import tree_files

MOST_NAMES = 3
# What is ours in the folder of an attempt: the contract's files, and states that are about to become checkpoints.
_OURS = re.compile(
    r"(?:save|loose|(?:taken|told|whole|salvage)-?[^/]*)(?:/.*)?"
    r"|(?:progress|stop|verdict|deadline|attempt|times|moments)[^/]*"
    r"|(?:.*/)?(?:__pycache__|\.cache)/.*|(?:.*/)?core[^/]*",
    re.DOTALL,
)
# Names of what differs from run to run without being a result.
_TIME = re.compile(r"time|date|clock|seconds|elapsed|start|stamp|host|duration|speed|per_s")
_ROWS = (
    "rows are lost or written twice at a resume: the number that is saved is off by one, or the table is not cut to "
    "what was saved, or each start empties it"
)
Origins = Sequence[tuple[Way, float]]  # how a piece ended, and where the next one resumed


@dataclass(frozen=True)
class Results:
    """Hold the results below the rehearsal's folder.

    `whole` has those of that run, and `beside-whole` what the program wrote to the folder where it was started.
    """

    stage: Stage

    def keep(self, name: str) -> None:
        """Copy what a run left under this name."""
        shutil.copytree(self.stage.places.final, self.stage.root / name, symlinks=True)
        for file in self.stage.beside():
            target = self.stage.root / f"beside-{name}" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.stage.folder / file, target)

    def differences(self, name: str) -> list[Difference]:
        """Return what differs from the whole run in the results, and in what lies next to them: first what says most.

        The control finds next to `results/` what the pieces wrote to their end, so only its results are compared.
        """
        root, ignored = self.stage.root, (SUMMARY, MANIFEST, *self.stage.engine.results_of_pieces)
        found = compare_folders(root / "whole", root / name, ignored)
        if (whole := root / "beside-whole").exists() and name != "control":
            known = set(map(str, tree_files(whole)))  # a killed piece may have left more
            beside = compare_folders(whole, root / f"beside-{name}", ignored)
            found += [replace(each, file=f"{each.file} (next to results/)") for each in beside if each.file in known]
        return sorted(found, key=lambda each: (each.kind, each.position or 0.0, -each.largest))

    def excepted(self) -> list[str]:
        """Return the names of files that are written for each piece, which are not compared."""
        whole, pieces = self.stage.root / "whole", self.stage.root / "pieces"
        names = {str(path) for folder in (whole, pieces) for path in tree_files(folder)}
        by_engine = {name for name in names if is_excepted(name, self.stage.engine.results_of_pieces)}
        return sorted(by_engine | begun_again(whole, pieces))

    def discarded(self) -> tuple[str, ...]:
        """Return the globs of outputs that the run drops by its settings."""
        return words(self.stage.run.settings.get("discard"))

    def lost(self) -> list[str]:
        """Return the files that the program wrote in its folder, and that are neither result nor state nor dropped."""
        places, left = self.stage.places, self.stage.left
        folders = (places.final, places.checkpoints, places.archive, places.live)
        kept = [folder / path for folder in folders for path in tree_files(folder)]
        # A save may be kept under another name: md_prev.cpt of GROMACS, as md.cpt.
        names, files = {path.name for path in kept}, {tuple(identity(path)) for path in kept}
        dropped = [glob_pattern(each) for each in self.discarded()]
        return [
            name
            for name, found in sorted(json.loads(left.read_text()).items() if left.exists() else [])
            if PurePosixPath(name).name not in names
            and tuple(found) not in files
            and not _OURS.fullmatch(name)
            and not self.stage.saves.is_state(f"{RunFolder(self.stage.run.name).work}/0/{name}")
            and not any(each.fullmatch(tail) for each in dropped for tail in _tails(name))
        ]


def _tails(name: str) -> Iterable[str]:
    parts = PurePosixPath(name).parts
    return ("/".join(parts[at:]) for at in range(len(parts)))


# --- what the differences mean ---


def listed(names: Iterable[str]) -> str:
    """Return the first few, and how many more."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMES} more" if known[MOST_NAMES:] else ""
    return ", ".join(known[:MOST_NAMES]) + more


def blamed_of(found: Iterable[Difference], itself: Sequence[Difference]) -> list[Difference]:
    """Return what differs, without what two whole runs differ in."""
    places, files = {each.place for each in itself}, {each.file for each in itself if not each.name}
    return [each for each in found if each.place not in places and each.file not in files]


def nothing_to_blame(itself: Sequence[Difference], results: Results) -> tuple[Verdict, str, list[str]]:
    """Return verdict, reason and findings where the pieces left what the whole run left."""
    excepted = results.excepted()
    counted = [each for each in itself if each.file not in excepted]
    names = listed(dict.fromkeys(each.place for each in counted))
    told = [f"differs from itself, not blamed on the resume: {each.text()}" for each in counted]
    if any(not _TIME.search(each.name.lower()) for each in counted):
        return Verdict.NOT_COMPARABLE, f"two whole runs differ in {names}", told
    but = {
        "what differs between two whole runs": names,
        "what each piece writes for itself": ", ".join(excepted),
        "what settings.discard drops": ", ".join(results.discarded()),
    }
    return Verdict.IDENTICAL, "; ".join(f"but for {what}: {which}" for what, which in but.items() if which), told


def reason_of(blamed: Sequence[Difference], origins: Origins, itself: Sequence[Difference]) -> str:
    """Return the first difference, where it begins and what that means, and what of the state is a time."""
    found = blamed[0]
    told = [found.text()]
    if found.kind is Kind.ROWS:
        told.append(_ROWS)
    elif found.position is not None:
        told.append(_of_column(found.position, origins))
    times = [each.place for each in itself if _TIME.search(each.name.lower())]
    told += [f"its state holds a time ({times[0]}): what depends on it changes with every pause"] if times else []
    return "; ".join(told)


def _of_column(first: float, origins: Origins) -> str:
    before = [(origin, way) for way, origin in origins if origin <= first]
    if not before:
        return f"differs from {first:g} on, before any resume: what the save itself changes"
    origin, way = max(before, key=lambda each: each[0])
    said = "at once: some of the state is not saved, or not put back"
    if first - origin > 1:
        used = "something that is used first there is not saved (a random draw, an optimizer's step, an epoch's end)"
        said = f"from {first:.10g} on: {used}"
    return f"it resumed from {origin:.10g} after {way.value}, and differs {said}"
