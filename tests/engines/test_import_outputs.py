"""All that a program wrote next to its restart files, before it was imported, is in the result."""

import os
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from support.command_jobs import command_job, command_segment

from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.imports import ImportSource
from unbroken.errors import CheckpointError
from unbroken.job.import_export import import_run
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

# Three steps at each start: appends to two files, one of them in a folder, and writes a snapshot at each step.
PROGRAM = """
n=$(cat n 2>/dev/null || echo 0)
mkdir -p deep/er
for i in 1 2 3; do
    n=$((n + 1)); echo "line $n" >> log; printf '\\0%s' $n >> deep/er/frames.bin; echo $n > snap.$n; echo $n > x.tmp
done
ln -sfn snap.$n latest
echo $n > n
"""
AGAIN = "date +%N > again; cat n >> again"
SETTINGS: dict[str, object] = {
    "files": ["n"],
    "progress_file": "n",
    "progress_pattern": r"^(\d+)",
    "goal": 6,
    "exit_paused": [0],
    "discard": ["*.tmp"],
}


def settings(more: str = "") -> dict[str, object]:
    return {**SETTINGS, "start": ["sh", "-c", PROGRAM + more]}


def walked(folder: Path, times: int = 1, more: str = "") -> Path:
    """The program by hand."""
    folder.mkdir(exist_ok=True)
    for _ in range(times):
        subprocess.run(["sh", "-c", PROGRAM + more], cwd=folder, check=True)
    return folder


def taken(base: Path, source: Path, **more: object) -> Checkpoint:
    job = command_job(base, {**settings(), **more})
    return import_run(job, CommandEngine(job.base), ImportSource(source, None))


def contents(folder: Path) -> dict[str, bytes]:
    names = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("summary.json", "x.tmp")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}


def said(checkpoint: Checkpoint) -> tuple[str, ...]:
    imported = checkpoint.passport.imported
    assert imported is not None
    return (*imported.checked, *(f"not checked: {line}" for line in imported.not_checked))


def test_half_by_hand_and_half_imported_leaves_the_files_of_one_run(tmp_path: Path) -> None:
    whole, half = walked(tmp_path / "whole", 2), walked(tmp_path / "half")
    before = {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in half.rglob("*")}

    checkpoint = taken(tmp_path, half)

    assert command_segment(tmp_path, settings()).kind is EndKind.FINISHED
    final = command_job(tmp_path, settings()).places.final
    assert contents(final) == contents(whole)
    assert os.readlink(final / "latest") == "snap.6"
    assert {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in half.rglob("*")} == before
    assert "other files, 33 bytes: deep/er/frames.bin, log, snap.1, snap.2, snap.3" in said(checkpoint)
    assert "not checked: not imported, as `discard` says: x.tmp" in said(checkpoint)
    assert read_outputs(checkpoint).doubts == ()


def test_a_file_that_was_written_after_the_restart_files_is_in_doubt_once_it_is_continued(tmp_path: Path) -> None:
    half = walked(tmp_path / "half")
    for name in ("log", "slurm-7.out"):
        with (half / name).open("a") as file:
            file.write("line 4\n")
        os.utime(half / name, (time.time() + 60, time.time() + 60))

    checkpoint = taken(tmp_path, half)
    assert command_segment(tmp_path, settings()).kind is EndKind.FINISHED

    places = command_job(tmp_path, settings()).places
    line = "not checked: which part was written after the restart files: log, slurm-7.out"
    assert line in said(checkpoint)
    assert (places.final / "log").read_text().count("line 4\n") == 2
    assert (places.final / "slurm-7.out").read_text() == "line 4\n"
    doubt = "log: was written after the restart files that were imported; what was written again stands there twice"
    assert f"doubt: {doubt}" in places.log(1).read_text()
    assert "slurm-7.out: was" not in places.log(1).read_text()


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_what_a_segment_begins_again_is_kept_as_a_piece_of_its_own(size: int, tmp_path: Path) -> None:
    half = walked(tmp_path / "half")
    (half / "again").write_bytes(b"x" * size)

    taken(tmp_path, half, start=settings(AGAIN)["start"])
    assert command_segment(tmp_path, settings(AGAIN)).kind is EndKind.FINISHED

    final = command_job(tmp_path, settings()).places.final
    assert (final / "segments" / "000" / "again").read_bytes() == b"x" * size
    assert (final / "segments" / "001" / "again").read_text().endswith("\n6\n")


def test_a_database_is_copied_into_the_checkpoint(tmp_path: Path) -> None:
    half = walked(tmp_path / "half")
    with sqlite3.connect(half / "results.db") as database:
        database.execute("create table rows (n)")
        database.execute("insert into rows values (3)")
    database.close()

    checkpoint = taken(tmp_path, half)

    kept = checkpoint.folder / "unbroken-output" / "rewritten" / "results.db"
    assert kept.read_bytes() == (half / "results.db").read_bytes()
    assert command_segment(tmp_path, settings()).kind is EndKind.FINISHED
    assert contents(command_job(tmp_path, settings()).places.final)["results.db"] == kept.read_bytes()


def test_what_is_not_imported_is_named(tmp_path: Path) -> None:
    half = walked(tmp_path / "half")
    os.mkfifo(half / "pipe")
    (half / "data").symlink_to(tmp_path)
    (half / "above").symlink_to("../half")
    for name in (".git", ".snakemake", ".unbroken", "__pycache__"):
        (half / name).mkdir()
        (half / name / "file").touch()

    checkpoint = taken(tmp_path, half)

    assert "not checked: not imported, links and special files: above, data, latest, pipe" in said(checkpoint)
    assert sorted(read_outputs(checkpoint).files) == ["deep/er/frames.bin", "log", "snap.1", "snap.2", "snap.3"]


def test_a_program_that_ran_in_the_working_directory_leaves_the_runs_there_alone(tmp_path: Path) -> None:
    walked(tmp_path)
    (tmp_path / "results" / "other").mkdir(parents=True)
    (tmp_path / "results" / "other" / "file").touch()

    checkpoint = taken(tmp_path, tmp_path)

    assert sorted(read_outputs(checkpoint).files) == ["deep/er/frames.bin", "log", "snap.1", "snap.2", "snap.3"]


def test_what_a_first_attempt_has_left_makes_room(tmp_path: Path) -> None:
    places = command_job(tmp_path, settings()).places
    places.output.mkdir(parents=True)
    (places.output / "log").write_text("of an attempt without a checkpoint\n")

    taken(tmp_path, walked(tmp_path / "half"))

    (kept,) = places.replaced.glob("*/log")
    assert kept.read_text() == "of an attempt without a checkpoint\n"
    assert (places.output / "log").read_text() == "line 1\nline 2\nline 3\n"


def test_a_run_that_is_done_already_is_refused_and_nothing_is_copied(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing is left to do"):
        taken(tmp_path, walked(tmp_path / "half", 2))

    places = command_job(tmp_path, settings()).places
    assert not places.output.exists()
    assert list(places.root.glob(".*")) == []
