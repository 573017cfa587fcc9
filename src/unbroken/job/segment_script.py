"""One segment by its spec, without a Snakemake around it: this process does what Snakemake would do before a script.

A job that imports Snakemake and plans the workflow again needs some seconds before its first step.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from unbroken.errors import OutageError, StorageError, UnbrokenError
from unbroken.job import end_note
from unbroken.job.settled import has_record
from unbroken.job.spec import JobSpec, RuleJob, read
from unbroken.program.contract import EXIT_PAUSED
from unbroken.store.checkpoint import age_by_name
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.store.record import read_record
from unbroken.store.select import refuse_newer
from unbroken.system import fs

INCOMPLETE = Path(".snakemake/incomplete")
LOOK_SECONDS = 0.2
# What Snakemake sets for the programs of a rule [snakemake 9.27, shell.py].
THREADS = ("OMP", "GOTO", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")
TMPDIR = ("TMPDIR", "TMP", "TEMPDIR", "TEMP")


def only_hands_on(script: Path) -> bool:
    """Return True if all that a script does with `snakemake` is to hand it to `main` of `unbroken.job.attempt`."""
    try:
        nodes = list(ast.walk(ast.parse(script.read_text())))
    except (OSError, ValueError, SyntaxError):
        return False
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id == "snakemake"]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    is_handed = len(names) == 1 and any(ast.unparse(call.func) == "main" and call.args[:1] == names for call in calls)
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported = modules | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    has_main = "unbroken.job.attempt" in modules
    return is_handed and has_main and not any(name.partition(".")[0] == "snakemake" for name in imported)


def do_segment(path: Path, segment: int, attempt: int = 1) -> int:
    """Do the segment in this process, which does nothing else; return 1 for what Snakemake calls a failed job."""
    try:
        spec = read(path)
        folder = spec.folder
        with fs.os_errors(folder.root):
            refuse_newer(folder)
            if not _prepare(spec, folder, segment):
                return 0
    except UnbrokenError as error:
        end_note.tell_refused(error)
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return 1
    script = spec.rule_job.script
    _set_environment(spec.rule_job)
    sys.argv = [script]
    sys.path.append(str(Path(script).parent))
    try:
        runpy.run_path(script, {"snakemake": _for_script(spec, folder, segment, attempt)}, "__main__")
    except SystemExit as end:
        if end.code != EXIT_PAUSED:
            raise
        return 0  # the job has done all that it could: Slurm must not mail a failure
    unmark(folder.record(segment))
    return 0


def _prepare(spec: JobSpec, folder: RunFolder, segment: int) -> bool:
    """Wait for what the segment before has left, and clear what an attempt before this one has.

    Return False if another job has done the segment meanwhile: its record must not be removed.  OutageError if the
    record before is not to be seen.
    """
    if has_record(folder, segment):
        return False
    if segment > 1:
        _wait_for(spec, folder, segment - 1)
        if has_record(folder, segment):
            return False
    try:
        for path in (folder.record(segment), folder.log(segment)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}") from error
    return True


def _wait_for(spec: JobSpec, folder: RunFolder, before: int) -> None:
    """Wait for a record and its checkpoint: a file server may show this node its folders as they were seconds ago."""
    path = folder.record(before)
    give_up = time.monotonic() + spec.rule_job.latency_seconds
    while not path.exists():
        if time.monotonic() > give_up:
            raise OutageError(f"{path}: not there after {spec.rule_job.latency_seconds:g} s; type: snakemake")
        _look_into(path.parent)
    # It may be gone for good, and this job has to say so before its end.
    give_up = min(give_up, time.monotonic() + spec.run.segment_minutes * 60 / 4)
    while not _shows_checkpoint_of(path, folder) and time.monotonic() < give_up:
        _look_into(folder.checkpoints)


def _shows_checkpoint_of(path: Path, folder: RunFolder) -> bool:
    """Return True if the checkpoint of a record, or a newer one, is visible, or was quarantined."""
    record, store = read_record(path), Store(folder.checkpoints)
    if record is None or store.is_set_aside(record.checkpoint):
        return True
    return any(age_by_name(name) >= age_by_name(record.checkpoint) for name in store.names())


def _look_into(folder: Path) -> None:
    """Open a folder, about which NFS then asks its server again [man nfs: close-to-open]."""
    with suppress(OSError):
        os.listdir(folder)
    time.sleep(LOOK_SECONDS)


def unmark(record: Path) -> None:
    """Take back Snakemake's mark that the record is under way: its driver may be gone, and the next would complain.

    It lies where Snakemake 9.27 puts it (persistence/file.py).
    """
    with suppress(OSError):
        (INCOMPLETE / urlsafe_b64encode(os.fspath(record).encode()).decode()).unlink(missing_ok=True)


def _set_environment(rule_job: RuleJob) -> None:
    for name in THREADS:
        os.environ[f"{name}_NUM_THREADS"] = str(rule_job.threads)
    folder = str(rule_job.resources.get("tmpdir") or tempfile.gettempdir())
    with suppress(OSError):
        Path(folder).mkdir(parents=True, exist_ok=True)
    os.environ |= dict.fromkeys(TMPDIR, folder)


def _for_script(spec: JobSpec, folder: RunFolder, segment: int, attempt: int) -> SimpleNamespace:
    """Return what a script finds as `snakemake`."""
    return SimpleNamespace(
        input=SimpleNamespace(previous=[str(folder.record(segment - 1))] if segment > 1 else []),
        output=SimpleNamespace(record=str(folder.record(segment))),
        params=SimpleNamespace(assignment=spec.assignment),
        wildcards=SimpleNamespace(run=folder.name, segment=f"{segment:03d}"),
        threads=spec.rule_job.threads,
        resources={**spec.rule_job.resources, "attempt": attempt},
        log=[str(folder.log(segment))],
        rule=spec.rule_job.name,
    )


if __name__ == "__main__":
    sys.exit(do_segment(Path(sys.argv[1]), *map(int, sys.argv[2:])))
