"""How a job without a driver submits the next ones: what the driver had been told, kept beside the run's submissions.

By sbatch where the driver has kept how; else it calls snakemake again.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from unbroken.detached import segment_command, successors
from unbroken.detached.segment_command import Tail
from unbroken.detached.successors import DONE, ENDED, NO_ROOM, REFUSED, NeedsSnakemake, Template
from unbroken.errors import UnbrokenError
from unbroken.runs.driver_start import SAME_START
from unbroken.runs.layout import NOTES
from unbroken.slurm.refusals import refusal
from unbroken.slurm.sbatch import outside
from unbroken.system import fs, jsontext

PATIENCE_SECONDS = 1800.0
DYING_SECONDS = 10.0
LEFT_OUT = ".left-out"
TAKEN = ".taken-"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Again:
    """A command with the folder that it is to be started in, and what makes it needless."""

    folder: str
    submit: tuple[str, ...]
    template: Template | None = None


def keep(run: str, again: Again) -> None:
    """Keeps the commands for the jobs of a run."""
    path = _path(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    fs.write_atomic(path, json.dumps(asdict(again)) + "\n")


def was_submitted(run: str, base: Path = Path()) -> bool:
    """True if the run was ever submitted without a driver from this folder."""
    return (base / _path(run)).exists()


def submit(run: str, start: str, leaving: str = "", at_work: int = 0, is_last_chance: bool = False) -> str:
    """Submits what is missing of a run, as a part of the same start; `DONE`, or in one line why not.

    `leaving` is the job around us, if its segment is over, and `at_work` its segment, if it is not.  The line begins
    with `ENDED` where Slurm ends this job: there is hardly time for it, and perhaps nobody wants it.
    """
    if segment_command.is_being_ended() and not is_last_chance:
        return ENDED
    again = _kept(run)
    if again is None:
        return f"{_path(run)} is missing or spoilt; start snakemake again"
    try:
        said = successors.submit(run, again.template, leaving, at_work)
    except NeedsSnakemake:
        return _call(again.submit, Path(again.folder), {SAME_START: start})
    except (UnbrokenError, OSError) as error:
        return f"{error}"
    if said == NO_ROOM:
        leave_out(run)
        return DONE
    return said


def submit_patiently(run: str, start: str, leaving: str, tell: Callable[[str], None]) -> str:
    """The same, tried for some minutes: somebody may just be editing the config.

    Not in a job that is being ended, nor where Slurm refuses the jobs for good.
    """
    give_up = segment_command.give_up_at()
    while (said := submit(run, start, leaving)) != DONE and time.monotonic() + segment_command.rest_seconds() < give_up:
        if said.startswith((ENDED, REFUSED)):
            break
        tell(f"{said}; tried again")
        time.sleep(segment_command.rest_seconds())
    return said


def leave_out(run: str) -> None:
    """Notes that the queue had no room for any job of this run."""
    NOTES.mkdir(parents=True, exist_ok=True)
    (NOTES / f"{run}{LEFT_OUT}").touch()


@contextmanager
def left_out() -> Iterator[str]:
    """A run that was left out, which the caller, and nobody else, submits inside the block; empty if there is none."""
    for path in sorted(NOTES.glob(f"*{LEFT_OUT}")):
        # A name of our own: where there is no room, the next one takes the run before we are out of the block.
        taken = path.with_name(f"{path.name}{TAKEN}{uuid.uuid4().hex}")
        try:
            os.utime(path)
            os.replace(path, taken)
        except OSError:  # somebody else was quicker
            continue
        try:
            yield path.name.removesuffix(LEFT_OUT)
        finally:
            taken.unlink(missing_ok=True)
        return
    yield ""


def any_left_out() -> bool:
    """True if a run still waits for room in the queue, also while somebody tries whether there is some."""
    return any(NOTES.glob(f"*{LEFT_OUT}")) or any(map(_is_fresh, NOTES.glob(f"*{LEFT_OUT}{TAKEN}*")))


def _is_fresh(path: Path) -> bool:
    """False if whoever took the run was killed over it; also where a clock was set back since."""
    try:
        return abs(time.time() - path.stat().st_mtime) < PATIENCE_SECONDS
    except OSError:
        return False


def _kept(run: str) -> Again | None:
    try:
        data = jsontext.parse(_path(run).read_text())
        return Again(data["folder"], tuple(data["submit"]), successors.from_json(data.get("template")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _call(command: Sequence[str], folder: Path, more: Mapping[str, str] = _NOTHING) -> str:
    environment = {**outside(os.environ), **more}
    try:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tail = Tail(child.stderr)
        code = child.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        child.kill()
        with suppress(subprocess.TimeoutExpired):  # one that a file server holds does not even die
            child.wait(DYING_SECONDS)
        return f"{error}"
    except OSError as error:
        return f"{error}"
    if code == 0:
        return DONE
    if refused := refusal(tail.text()):
        return f"{REFUSED}: {refused}"
    said = tail.last_words()
    told = f"exit code {code} of: {shlex.join(command)}" + (f": {said}" if said else "")
    # Slurm's TERM reaches the command and us: whoever of us hears it first.  Snakemake may answer it with exit code 1.
    return f"{ENDED}: {told}" if code == -signal.SIGTERM or segment_command.is_being_ended() else told


def _path(run: str) -> Path:
    return NOTES / f"{run}.again.json"
