"""Disks that are full or not writable: the old checkpoint is untouched, and the message says what is missing where."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.disks import as_root, mount_small, unmount
from support.toyrun import ROOT, checkpoints, hidden, history, program, start_segment, toy_job

from unbroken.store import lease
from unbroken.store.select import verify
from unbroken.system import disk

pytestmark = pytest.mark.process

Mount = Callable[[str], Path]


def one_step(base: Path, segment: int) -> None:
    ended = start_segment(base, segment, command=program("one_step")).end()
    assert ended.code == 0, ended.screen


def is_untouched(base: Path) -> bool:
    """The checkpoint of the first segment is there and whole, and nothing else."""
    (checkpoint,) = checkpoints(toy_job(base))
    return verify(checkpoint.folder, "demo").passport.progress.done == 1


def numbers(text: str) -> list[int]:
    return [int(word.replace(",", "")) for word in re.findall(r"\b\d[\d,]*\b(?= bytes| free| missing)", text)]


def test_a_program_that_fills_the_disk_is_told_apart_from_one_that_crashed(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)

    ended = start_segment(base, 2, command=program("big", 8)).end()

    said = "the program ended with exit code 1: OSError: [Errno 28] No space left on device in programs.py, line "
    assert ended.error.startswith(f"SegmentError: runs.demo: {said}")
    assert re.search(
        r"; results/demo: the disk is full, [\d,]+ bytes free, at least [\d,]+ missing; read ", ended.error
    )
    assert is_untouched(base)
    assert "the disk is full" in history(toy_job(base))[-1].message


def test_a_disk_that_is_full_when_a_checkpoint_is_published_is_told_with_the_bytes(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)

    ended = start_segment(base, 2, command=program("fill_and_hand_over")).end()

    assert ended.error.startswith("StorageError: results/demo/checkpoints: No space left on device; ")
    assert ended.error.endswith("; earlier checkpoints are untouched; free room, then start again")
    needed, free, missing = numbers(ended.error)
    assert needed > 3_000_000 and free < 4096 and missing == needed - free
    assert is_untouched(base)


def test_a_process_that_lives_on_gives_the_run_back_on_a_full_disk_too(small_disk: Mount) -> None:
    """A notebook, say: nobody takes a run from a process that lives."""
    results = small_disk("size=256k") / "results"
    with lease.take(results / "demo" / "lease", 1, 0.0), pytest.raises(OSError, match="No space left"):
        (results / "ballast").write_bytes(b"x" * 1_000_000)

    assert lease.current_claim(results / "demo" / "lease")[1] == "released"


def test_after_a_full_disk_the_run_goes_on_once_there_is_room(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)
    start_segment(base, 2, command=program("fill_and_hand_over")).end()

    one_step(base, 2)

    job = toy_job(base)
    assert checkpoints(job)[-1].passport.progress.done == 2
    assert [attempt.kind.value for attempt in history(job)] == ["paused", "failed", "paused"]
    assert hidden(job.places.root) == []


def test_a_disk_that_somebody_else_has_filled_starts_nothing(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)
    other = base / "results" / "data"
    with other.open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)

    ended = start_segment(base, 2, command=program("one_step")).end()
    is_whole = is_untouched(base)
    other.unlink()
    one_step(base, 2)

    assert re.match(r"StorageError: results/demo/lease\S*: No space left on device; [\d,]+ bytes needed", ended.error)
    assert "starting:" not in ended.screen
    assert is_whole
    assert hidden(toy_job(base).places.root) == []


def test_a_disk_that_takes_no_more_files_is_not_called_full(small_disk: Mount) -> None:
    base = small_disk("size=16m,nr_inodes=60")
    one_step(base, 1)
    for number in range(100):
        try:
            (base / "results" / f"file{number}").touch()
        except OSError:
            break

    ended = start_segment(base, 2, command=program("one_step")).end()

    assert ended.error.startswith("StorageError: results/demo/lease")
    assert "0 missing: a quota, or the number of files, is used up; earlier checkpoints are untouched" in ended.error
    assert is_untouched(base)


def test_a_disk_that_is_read_only_is_named(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)
    assert as_root("mount", "-o", "remount,ro", str(base / "results")).returncode == 0

    ended = start_segment(base, 2, command=program("one_step")).end()

    assert re.match(r"StorageError: results/demo/lease\S*: Read-only file system; earlier check", ended.error)
    assert ended.error.endswith("make it writable, then start again")
    assert is_untouched(base)


def hands_over_after(command: str) -> list[str]:
    """A program that changes the disk under us just before it hands over."""
    if os.geteuid() != 0:
        command = f"sudo --non-interactive {command}"
    text = (
        'd="$UNBROKEN_SAVE/draft"; mkdir "$d"; echo 2.0 > "$d/state"; mv "$d" "$UNBROKEN_SAVE/1.ready"; '
        f'echo \'{{"done": 2}}\' > "$UNBROKEN_PROGRESS"; {command}; exit 85'
    )
    return ["sh", "-c", text]


def test_a_disk_that_becomes_read_only_while_the_program_runs_keeps_what_was_published(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)

    command = hands_over_after(f"mount -o remount,ro '{base / 'results'}'")
    ended = start_segment(base, 2, command=command, segment_minutes=10).end()

    assert re.match(r"StorageError: results/demo/\S*: Read-only file system; earlier checkpoints are unt", ended.error)
    assert is_untouched(base)


def test_a_folder_that_was_mounted_over_is_named(small_disk: Mount) -> None:
    base = small_disk("size=4m")
    one_step(base, 1)
    shield = base / "results" / "demo" / "checkpoints"

    ended = start_segment(base, 2, command=hands_over_after(f"mount --bind '{shield}' '{shield}'")).end()
    as_root("umount", "--lazy", str(shield))

    found = "results/demo/checkpoints: another file system, mounted there; nothing there was touched; "
    assert ended.error.startswith(f"ForeignFolderError: {found}")
    assert is_untouched(base)


def test_folders_that_this_user_may_not_write_are_named(tmp_path: Path) -> None:
    one_step(tmp_path, 1)
    lease = toy_job(tmp_path).places.lease
    lease.chmod(0o555)
    # Root obeys modes only without this right.
    prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

    ended = start_segment(tmp_path, 2, command=program("one_step"), prefix=prefix).end()
    lease.chmod(0o755)

    assert re.match(r"StorageError: results/demo/lease\S*: Permission denied; earlier checkpoints are unt", ended.error)
    assert is_untouched(tmp_path)


def test_checkpoints_that_this_user_may_not_read_are_not_set_aside(tmp_path: Path) -> None:
    one_step(tmp_path, 1)
    (checkpoint,) = checkpoints(toy_job(tmp_path))
    (checkpoint.folder / "state").chmod(0)
    prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

    ended = start_segment(tmp_path, 2, command=program("one_step"), prefix=prefix).end()
    (checkpoint.folder / "state").chmod(0o644)

    assert re.match(r"StorageError: \S*/state: Permission denied; make it readable, then start again", ended.error)
    assert is_untouched(tmp_path)


@pytest.mark.parametrize("fills", [("big", 8), ("fill_and_hand_over",)])
def test_a_full_disk_does_not_speak_against_the_checkpoint(small_disk: Mount, fills: tuple[str | int, ...]) -> None:
    """Else an attempt would go on from the one before, and the newest would be set aside once there is room."""
    base = small_disk("size=4m")
    one_step(base, 1)
    one_step(base, 2)
    before = checkpoints(toy_job(base))

    said = [start_segment(base, 3, number, command=program(*fills)).end().error for number in (1, 2, 3)]
    stopped = start_segment(base, 3, 4, command=program("one_step")).end()
    attempts = history(toy_job(base))[2:]

    assert checkpoints(toy_job(base)) == before
    assert "No space left on device" in said[1]
    assert {attempt.from_checkpoint for attempt in attempts} == {before[1].name}
    assert stopped.error.startswith("StalledError: runs.demo: 2 attempts without progress, no further one is made; ")
    assert "No space left on device" in stopped.error


@pytest.fixture
def whole_disk(tmp_path: Path) -> Iterator[Path]:
    """A working directory on a disk of 600 kB."""
    (place := tmp_path / "disk").mkdir()
    mount_small(place, "size=600k")
    yield place
    unmount(place)


CONFIG = "runs: {demo: {engine: toy, segments: 4, segment_minutes: 1, settings: {goal: 400, save_steps: 100}}}"


@pytest.mark.parametrize("free_kb", [8, 12, 20])
def test_a_disk_that_is_full_for_snakemakes_own_files_is_told_last_and_by_status(
    whole_disk: Path, free_kb: int
) -> None:
    base = whole_disk
    (base / "config").mkdir()
    (base / "config" / "config.yaml").write_text(CONFIG)
    (base / "ballast").write_bytes(b"x" * (disk.free_bytes(base) - free_kb * 1024))

    started = called(base, "snakemake", "-s", str(ROOT / "Snakefile"), "--cores", "1")
    status = called(base, "unbroken", "status")

    line = rf"{base}(/\.snakemake)?: the disk is full, [\d,]+ bytes free, at least [\d,]+ missing; remove what"
    assert started.returncode == 1
    assert re.match(f"unbroken: {line}", started.stdout.splitlines()[-1]), started.stdout
    assert "the disk is full, " in status.stdout.splitlines()[-1], status.stdout


def called(base: Path, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of its own, typed in that folder; both its outputs in their order."""
    around = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "UNBROKEN_"))}
    command = [str(Path(sys.executable).parent / program), *words]
    return subprocess.run(
        command, cwd=base, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
