"""Find or make a run's tpr, and read it: how its simulation is cut, and at which step it ends.

The config names the tpr, or `gmx grompp` makes it once from .mdp, structure and topology.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE, has_replicas, number_of, replica_names, words_of
from unbroken.engines.gromacs.tool import gmx
from unbroken.errors import ConfigError, SegmentError
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec
from unbroken.system import fs
from unbroken.system.digests import sha256_of
from unbroken.system.fs import flush_tree

# The files that a tpr is made of; all of them are settings, in the order of grompp's arguments.
_SOURCES = {"mdp": "-f", "structure": "-c", "topology": "-p", "index": "-n", "reference": "-r"}
TPR = "topol.tpr"
PREPARED = "prepared"
# The record of its sources, next to it: written with it in one step.
NOTE = "made_of.json"
EXTENDED_TPR = "extended.tpr"
# Those that mdrun can resume from a checkpoint; a minimization begins again.
RESTARTABLE = ("md", "md-vv", "md-vv-avek", "sd", "bd")
# The parameters that are needed here all come before it; the dump of a large file has millions of lines.
_LAST_NEEDED = "natoms"
_PICOSECONDS_SLACK = 1e-6


@dataclass(frozen=True)
class Tpr:
    """Hold the parameters of a run input file (`.tpr`) that decide how its simulation is cut and joined."""

    integrator: str
    steps: int  # -1: without end
    first_step: int
    dt_ps: float
    first_time_ps: float
    pressure_coupling: str
    buffer_tolerance: float
    list_steps: int = 1  # between two searches of neighbors, at least
    shares_bias: bool = False  # AWH shares its bias among replicas
    rotates: bool = False  # enforced rotation
    atoms: int = 0

    @property
    def last_step(self) -> int | None:
        """Return the step at which the file itself ends the simulation; None if it never does."""
        return None if self.steps < 0 else self.first_step + self.steps

    @property
    def is_exact(self) -> bool:
        """Return False if mdrun sets the pair list again from the box of each start, so that a restart changes bits."""
        return self.pressure_coupling.lower() == "no" or self.buffer_tolerance <= 0

    def time_ps(self, step: int) -> float:
        """Return the time of a step."""
        return self.first_time_ps + (step - self.first_step) * self.dt_ps

    def step_at(self, time_ps: float) -> int:
        """Return the first step that is not before a time."""
        steps = (time_ps - self.first_time_ps) / self.dt_ps
        return self.first_step + math.ceil(steps - _PICOSECONDS_SLACK)

    def end_step(self, goal: float | None, until_ps: float | None, extend_ps: float | None) -> int | None:
        """Return the step at which the simulation is to end by the settings, else by the file; None if never."""
        if goal is not None:
            return int(goal)
        if until_ps is not None:
            return self.step_at(until_ps)
        if extend_ps is not None and self.last_step is not None:
            return self.step_at(self.time_ps(self.last_step) + extend_ps)
        return self.last_step


def parse_tpr(lines: Iterable[str]) -> Tpr:
    """Return the parameters in the lines of `gmx dump -s`; raise SegmentError if one of them is not there."""
    pairs = (line.partition("=") for line in lines)
    found = {name.strip(): value.strip() for name, mark, value in pairs if mark}
    try:
        return Tpr(
            integrator=found["integrator"],
            steps=int(found["nsteps"]),
            first_step=int(found["init-step"]),
            dt_ps=float(found["dt"]),
            first_time_ps=float(found["tinit"]),
            pressure_coupling=found["pcoupl"],
            buffer_tolerance=float(found["verlet-buffer-tolerance"]),
            list_steps=int(found.get("nstlist", 1)),
            shares_bias=found.get("awh-share-bias-multisim") == "true",
            rotates=found.get("rotation") == "true",
            atoms=int(found.get(_LAST_NEEDED, 0)),
        )
    except (KeyError, ValueError) as error:
        raise SegmentError(f"the tpr cannot be read: `gmx dump -s` prints no good {error}") from error


def _is_last_needed(line: str) -> bool:
    return line.partition("=")[0].strip() == _LAST_NEEDED


@dataclass(frozen=True)
class Simulation:
    """Describe a run's simulation, or a replica; the tpr is read once, when it is first asked for."""

    run: RunSpec
    base: Path
    replica: str = ALONE

    @functools.cached_property
    def path(self) -> Path:
        """Return where the tpr lies: as the config names it, or as `prepare` made it."""
        return tpr_of(self.run, self.base, self.replica)

    @functools.cached_property
    def tpr(self) -> Tpr:
        """Return the parameters of the tpr; raise SegmentError if gmx cannot read them."""
        return parse_tpr(
            gmx(self.run, "dump", "-s", str(self.path.resolve()), base=self.base, is_enough=_is_last_needed)
        )

    @property
    def end_step(self) -> int | None:
        """Return the step at which it is to end; None without end."""
        return self.tpr.end_step(*(number_of(self.run, name) for name in ("goal", "until_ps", "extend_ps")))

    @property
    def is_exact(self) -> bool:
        """Return True if the pieces equal the whole bit for bit: the tpr must allow it, and the settings ask for it.

        Otherwise mdrun chooses FFT plans and balances load by timing, again at each start.
        """
        return self.run.settings["exact"] is True and self.tpr.is_exact

    def tpr_to_run(self, folder: Path, done: float | None) -> Path:
        """Return the tpr, or a copy in `folder` that ends where the settings say; `done` steps are made.

        A goal that was lowered below them ends one step on: mdrun refuses a tpr that ends before its checkpoint, and
        writes no structure where it ends at it.
        """
        if self.end_step is None:
            return self.path
        end = self.end_step if done is None else max(self.end_step, int(done) + 1)
        if end == self.tpr.last_step:
            return self.path
        target = (folder / EXTENDED_TPR).resolve()
        steps = str(end - self.tpr.first_step)
        words = ("convert-tpr", "-s", str(self.path.resolve()), "-nsteps", steps, "-o", str(target))
        gmx(self.run, *words, base=self.base)
        return target

    def remarks(self) -> list[str]:
        """Return what is not equal after a restart; raise SegmentError if it cannot be cut, or not exactly enough."""
        if self.tpr.integrator not in RESTARTABLE:
            which = f"the tpr of {self.replica}" if self.replica else "the tpr"
            found = f"{which} has the integrator {self.tpr.integrator}, which mdrun cannot take up again"
            raise SegmentError(f"{found}; allowed: {', '.join(RESTARTABLE)}; run it by hand", run=self.run.name)
        if self.tpr.is_exact:
            return []
        why = (
            f"pressure coupling ({self.tpr.pressure_coupling}) with an automatic pair-list buffer: mdrun sets rlist "
            "anew from the box of each start, so the pieces equal the whole in their statistics, not bit for bit"
        )
        if self.run.settings["exact"] is not True:
            return [f"{why}; docs/engines/gromacs.md says how to make it exact"]
        raise SegmentError(
            f"runs.{self.run.name}.settings.exact: found true, but the tpr has {why}; allowed: "
            "verlet-buffer-tolerance = -1 and an rlist in the mdp (or `fixed_rlist_nm` beside `mdp`), or `exact: false`"
        )


# --- the tpr that grompp makes ---


def is_prepared_here(run: RunSpec) -> bool:
    """Return True if the run names no tpr, but what one is made of."""
    return not run.settings["tpr"] and not has_replicas(run)


def prepared_record(run: RunSpec, segment: int) -> list[str]:
    """Return the record of the preparation that the first segment waits for; none if the run names its tpr."""
    return [str(RunFolder(run.name).root / "prepared.json")] if segment == 1 and is_prepared_here(run) else []


def tpr_of(run: RunSpec, base: Path, replica: str = ALONE) -> Path:
    """Return the tpr of a run, or of one of its replicas.

    Raise SegmentError if it was to be prepared and is not there, or was made of other files.
    """
    if replica:
        return base / words_of(run, "replicas")[replica_names(run).index(replica)]
    if not is_prepared_here(run):
        return base / str(run.settings["tpr"])
    folder, (record,) = RunFolder(run.name, base).root / PREPARED, prepared_record(run, 1)
    tpr, remedy = folder / TPR, f"type: rm -rf {folder} {base / record} && snakemake {record}"
    try:
        note = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError) as error:
        raise SegmentError(f"{tpr}: not prepared; {remedy}") from error
    if _digest(tpr) != note["tpr"]:
        raise SegmentError(f"{tpr}: not the tpr that was prepared; {remedy}")
    was, now = note["made_of"], made_of(run, base)
    if changed := sorted(name for name in {*was, *now} if was.get(name) != now.get(name)):
        raise SegmentError(f"{tpr}: was made of another {', '.join(changed)}; {remedy}")
    return tpr


def prepare(run: RunSpec, base: Path) -> Path:
    """Make the tpr unless it is there, made of the same files, and return it; raise SegmentError with grompp's text.

    If the process dies inside, either nothing is to be seen or all of it.
    """
    folder = RunFolder(run.name, base).root / PREPARED
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / NOTE).exists():
        draft = folder.with_name(fs.unique_name(PREPARED))
        draft.mkdir()
        try:
            _grompp(run, base, draft)
            note = {"tpr": _digest(draft / TPR), "made_of": made_of(run, base)}
            fs.write_new(draft / NOTE, json.dumps(note, indent=2) + "\n")
            flush_tree(draft)
            os.rename(draft, folder)
        finally:
            if draft.exists():
                fs.remove_tree(draft)
    return tpr_of(run, base)


def made_of(run: RunSpec, base: Path) -> dict[str, str]:
    """Return each setting that shapes the tpr, and the digest of each file among them."""
    sources = {name: _digest(path) for name, path in _sources(run, base).items()}
    inputs = {f"inputs {name}": _digest(base / name) for name in words_of(run, "inputs")}
    values = {name: json.dumps(run.settings[name], default=list) for name in ("fixed_rlist_nm", "grompp_options")}
    return {**sources, **inputs, **values}


def mdp_with_fixed_list(text: str, rlist_nm: float) -> str:
    """Return the .mdp with the pair list fixed, so that a restart under pressure coupling changes no bit.

    Its own lines about the list go.  nstlist becomes 20 where the text does not name it, for no buffer follows it.
    """
    # To grompp `verlet_buffer_tolerance` and `Verlet-Buffer-Tolerance` are one.
    keys = [line.partition(";")[0].partition("=")[0].strip().lower().replace("_", "-") for line in text.splitlines()]
    fixed = {"verlet-buffer-tolerance": "-1", "rlist": f"{rlist_nm:g}"}
    kept = [line for line, key in zip(text.splitlines(), keys, strict=True) if key not in fixed]
    fixed |= {} if "nstlist" in keys else {"nstlist": "20"}
    return "\n".join([*kept, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _grompp(run: RunSpec, base: Path, draft: Path) -> None:
    files = {_SOURCES[name]: path for name, path in _sources(run, base).items()}
    if (rlist := number_of(run, "fixed_rlist_nm")) is not None:
        text = mdp_with_fixed_list(files["-f"].read_text(), rlist)
        files["-f"] = draft / "fixed.mdp"
        files["-f"].write_text(text)
    files |= {"-o": draft / TPR, "-po": draft / "mdout.mdp"}
    words = [word for option, path in files.items() for word in (option, os.path.relpath(path, base))]
    gmx(run, "grompp", *words, *words_of(run, "grompp_options"), folder=base, base=base)


def _sources(run: RunSpec, base: Path) -> dict[str, Path]:
    return {name: base / str(run.settings[name]) for name in _SOURCES if run.settings[name]}


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
