"""A run that is lost is restored from its copies by a command, and by nothing else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.copying import GOAL, STEP, big_step, copied_run, copies, copy_now, job, log, result, step, whole_result
from support.disks import as_root, mount_small, unmount
from support.making import publish
from support.snapshots import snapshot
from support.toyrun import checkpoints, flip_byte, history, run_program, start_segment, until

from unbroken.cli import main as cli
from unbroken.cli import restart_command
from unbroken.copies import replica
from unbroken.copies.replica import read_note
from unbroken.copies.restore import restore
from unbroken.engines.found import outputs_of
from unbroken.errors import ConfigError, LeaseError, NoCheckpointError, StorageError
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.select import verify
from unbroken.system.log import lines_to

pytestmark = pytest.mark.process


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    return base


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    folder = tmp_path / "backup"
    folder.mkdir()
    return folder


def worked(base: Path, backup: Path, segments: int = 3) -> None:
    """A run that has pruned some of its checkpoints, and copied them."""
    for segment in range(1, segments + 1):
        step(base, backup, segment, keep=2)


def to_the_end(base: Path, backup: Path, segment: int) -> None:
    while step(base, backup, segment).kind is not EndKind.FINISHED:
        segment += 1


def restored(base: Path, backup: Path) -> list[str]:
    """What the command says after the first location was lost."""
    told: list[str] = []
    shutil.rmtree(base / "results")
    with lines_to(told.append):
        restore("demo", backup, base, outputs_of)
    return told


def test_a_restored_run_comes_to_the_result_of_an_uninterrupted_one(base: Path, backup: Path) -> None:
    worked(base, backup)
    places = job(base).places
    before = {path.name: path.read_bytes() for path in places.segments.iterdir()}
    attempts = history(job(base))

    restored(base, backup)

    newest = checkpoints(job(base))[-1]
    assert verify(newest.folder, "demo").passport.progress.done == 3
    assert os.readlink(places.checkpoints / "latest") == newest.name
    assert {path.name: path.read_bytes() for path in places.segments.iterdir()} == before
    assert history(job(base)) == attempts
    assert not list((base / "results").glob(".*"))
    to_the_end(base, backup, 4)
    assert result(base) == whole_result()
    assert copies(backup).store.readable()[-1].passport.is_finished


def test_a_restored_run_can_be_lost_again(base: Path, backup: Path) -> None:
    worked(base, backup)
    for segment in (4, 5):
        restored(base, backup / "demo")
        step(base, backup, segment)
    restored(base, backup)

    to_the_end(base, backup, 6)
    assert result(base) == whole_result()


def test_what_was_not_copied_is_done_again(base: Path, backup: Path) -> None:
    """History and records are copied more often than checkpoints: they speak of segment 2, whose work is lost."""
    step(base, backup, 1, every_minutes=60)
    step(base, backup, 2, every_minutes=60)

    restored(base, backup)

    places = job(base).places
    lost = history(job(base))[1]
    assert [path.name for path in places.segments.iterdir()] == ["001.json"]
    assert (lost.kind, lost.to_checkpoint, lost.progress_to) == (EndKind.DIED, None, 1)
    assert "its checkpoints were lost; the run was restored from the copy of 000001" in lost.message
    assert step(base, backup, 2).has_worked
    to_the_end(base, backup, 3)
    assert result(base) == whole_result()


def test_a_bad_copy_is_left_out_and_the_one_before_taken(base: Path, backup: Path) -> None:
    worked(base, backup)
    newest = copies(backup).store.readable()[-1]
    flip_byte(newest.folder / "big")

    told = restored(base, backup)

    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(job(base))] == [2]
    assert told[0].startswith("demo: a copy is bad and left out: ")
    assert f"{newest.name}/big: the content changed" in told[0]
    assert newest.folder.is_dir()
    to_the_end(base, backup, 3)
    assert result(base) == whole_result()


def test_without_a_good_copy_nothing_is_restored(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    flip_byte(copies(backup).store.readable()[-1].folder / "big")

    with pytest.raises(NoCheckpointError, match="demo: no good copy of a checkpoint; demo was not restored"):
        restored(base, backup)

    assert not (base / "results" / "demo").exists()


def test_the_command_restores_no_run_that_exists_and_says_what_to_type(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worked(base, backup)
    before = snapshot(base / "results")
    monkeypatch.setattr("sys.argv", ["unbroken", "restore", "demo", "--from", str(backup), "--directory", str(base)])
    capsys.readouterr()

    with pytest.raises(SystemExit) as refused:
        cli.main()
    error, after = capsys.readouterr().err, snapshot(base / "results")
    shutil.rmtree(base / "results")
    with pytest.raises(SystemExit) as left:
        cli.main()

    assert (refused.value.code, after, left.value.code) == (1, before, 0)
    assert error == (
        f"unbroken: {base}/results/demo: the run is there, nothing was restored; type: unbroken run -d "
        f"{base} (it continues), or: unbroken restart -d {base} demo (a backup is kept), then: unbroken restore -d "
        f"{base} demo --from {backup}/demo\n"
    )
    first, second = capsys.readouterr().out.splitlines()
    restored = f"demo: restored in {base}/results/demo from {backup}/demo: 3 of {GOAL} steps, checkpoint 000003"
    assert first.startswith(restored)
    assert second == f"demo: it continues with: unbroken run -d {base}"


def test_where_there_are_no_copies_of_the_run_the_line_says_so(base: Path, backup: Path) -> None:
    worked(base, backup)

    with pytest.raises(
        ConfigError, match=r"--from: found .*base, which holds no copies of demo; allowed: the folder of"
    ):
        restore("demo", base, base, outputs_of)
    with pytest.raises(ConfigError, match=r"--from: .*/demo holds copies of the run 'demo', not of 'other'"):
        restore("other", backup / "demo", base, outputs_of)


def test_a_run_that_was_lost_and_comes_back_copies_nothing_over_its_successor(
    base: Path, backup: Path, tmp_path: Path
) -> None:
    worked(base, backup)
    other = tmp_path / "other"
    other.mkdir()
    restore("demo", backup, other, outputs_of)
    before = snapshot(backup)

    step(base, backup, 4)

    (line,) = log(base, 4)
    assert f"holds the copies of another run of this name, {other}/results/demo" in line
    assert snapshot(backup) == before
    to_the_end(other, backup, 4)
    assert result(other) == whole_result()


def test_copies_that_cannot_be_written_can_be_restored(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "readonly"
    folder.mkdir()
    mount_small(folder, "size=4m")
    try:
        worked(base, folder)
        note = read_note(job(base).places.root)
        assert as_root("mount", "-o", "remount,ro", str(folder)).returncode == 0
        told = restored(base, folder)
    finally:
        unmount(folder)

    assert read_note(job(base).places.root) == note
    assert "Read-only file system" in told[0] and "should the lost run come back" in told[0]
    assert checkpoints(job(base))[-1].passport.progress.done == 3


def test_a_disk_without_space_for_the_run_is_told_and_a_second_try_succeeds(base: Path, backup: Path) -> None:
    step(base, backup, 1, big_step(2_000_000))
    shutil.rmtree(base / "results")
    (base / "results").mkdir()
    mount_small(base / "results", "size=1m")
    try:
        with pytest.raises(StorageError, match=r"No space left on device; [\d,]+ bytes needed"):
            restore("demo", backup, base, outputs_of)
        left = os.listdir(base / "results")
    finally:
        unmount(base / "results")
    restore("demo", backup, base, outputs_of)

    assert left == [".restoring-demo"]
    assert checkpoints(job(base))[-1].passport.progress.done == 1


def test_of_two_that_restore_at_once_one_is_told_to_wait(base: Path, backup: Path) -> None:
    worked(base, backup)
    shutil.rmtree(base / "results")
    draft = base / "results" / ".restoring-demo"
    draft.mkdir(parents=True)

    with lease.take(draft / "lease", 0, 0.0), pytest.raises(LeaseError, match="held, segment 0 by process"):
        restore("demo", backup, base, outputs_of)


def test_a_job_of_the_lost_run_that_still_lives_cannot_write_the_restored_one(base: Path, backup: Path) -> None:
    worked(base, backup)
    there = job(base, 4)
    with lease.take(there.places.lease, 4, 0.0) as held:
        restored(base, backup)

        with pytest.raises(LeaseError, match="was taken for dead and the run was taken over"):
            held.confirm()
    assert held.is_lost


# --- by nothing else -------------------------------------------------------------------------------------------------


def begun(base: Path, backup: Path) -> list[str]:
    """Return why a driver that starts now starts nothing; a job at work writes into its log meanwhile."""

    def seen() -> dict[str, object]:
        return {name: state for name, state in snapshot(base).items() if not name.startswith("logs/")}

    before = seen()
    refused = replica.mistakes([copied_run(backup)], base)
    assert seen() == before
    return refused


def removed(base: Path) -> None:
    shutil.rmtree(base / "results" / "demo")


def restarted(base: Path) -> None:
    restart_command.restart("demo", base)


@pytest.mark.parametrize("lose", [removed, restarted])
def test_a_run_that_is_not_there_but_for_its_copies_does_not_begin_again(
    base: Path, backup: Path, lose: Callable[[Path], None]
) -> None:
    worked(base, backup)
    lose(base)

    (line,) = begun(base, backup)

    assert f"{base}/results/demo is not there (is its disk mounted?); nothing there was touched; type: " in line
    assert f"type: unbroken restore demo --from {backup}, or mv {backup}/demo {backup}/demo.old" in line


def test_a_run_whose_disk_is_not_mounted_does_not_begin_again(base: Path, backup: Path) -> None:
    """What is seen then is the empty folder below; the run may be at work all the time."""
    (base / "results").mkdir()
    mount_small(base / "results", "size=4m")
    try:
        worked(base, backup)
    finally:
        unmount(base / "results")

    (line,) = begun(base, backup)

    assert "is not there (is its disk mounted?)" in line


def test_a_run_with_all_its_checkpoints_gone_or_bad_is_not_taken_from_the_copies(base: Path, backup: Path) -> None:
    worked(base, backup)
    for checkpoint in checkpoints(job(base)):
        flip_byte(checkpoint.folder / "big")

    assert begun(base, backup) == []
    with pytest.raises(NoCheckpointError, match="no good checkpoint is left"):
        step(base, backup, 4)
    assert checkpoints(job(base)) == []


def test_an_outage_in_the_middle_of_a_run_starts_nothing_from_its_copies(base: Path, backup: Path) -> None:
    """The first place vanishes under a job, a driver looks meanwhile, and it comes back."""
    disk = base.with_name("disk")
    disk.mkdir()
    (base / "results").symlink_to(disk)
    worked(base, backup)
    script = ["sh", "-c", STEP[2].replace("[ $n -lt", "sleep 1000; [ $n -lt")]
    process = start_segment(base, 4, command=script, goal=GOAL, copies={"folder": str(backup)})
    until(lambda: len(copies(backup).store.names()) and copies(backup).store.names()[-1].startswith("000004"))
    disk.rename(disk.with_name("away"))

    (line,) = begun(base, backup)
    process.kill()
    process.end()
    disk.with_name("away").rename(disk)

    assert "nothing there was touched" in line
    assert begun(base, backup) == []
    to_the_end(base, backup, 4)
    assert result(base) == whole_result()
    assert [attempt.kind for attempt in history(job(base))].count(EndKind.DIED) == 1


def test_a_killed_segments_run_is_restored_from_its_copies_to_the_same_result(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    script = ["sh", "-c", STEP[2].replace("[ $n -lt", "sleep 1000; [ $n -lt")]
    process = start_segment(base, 2, command=script, goal=GOAL, copies={"folder": str(backup)})
    until(lambda: len(copies(backup).store.names()) == 2)
    process.kill()
    process.end()

    restored(base, backup)

    to_the_end(base, backup, 2)
    assert result(base) == whole_result()


def test_the_best_checkpoint_comes_back_too(base: Path, backup: Path) -> None:
    store = Store(job(base).places.checkpoints)
    for sequence in (1, 2, 3):
        publish(store, sequence, is_best=sequence == 1)
        copy_now(base, backup, keep=1)

    restored(base, backup)

    assert [checkpoint.passport.sequence for checkpoint in store.readable()] == [1, 3]
    assert [os.readlink(store.root / link) for link in ("best", "latest")] == store.names()


def test_a_pruned_checkpoint_that_is_put_back_by_hand_carries_the_run_on(base: Path, backup: Path) -> None:
    """Its name stands in `parts/` already, since its pieces outlived it; so do those of the work after it."""
    places = job(base).places
    for segment in (1, 2):
        step(base, backup, segment, keep=9)
    second = checkpoints(job(base))[-1]
    shutil.copytree(second.folder, base / "kept")
    for segment in (3, 4):
        run_program(base, STEP, segment, goal=GOAL, keep=1, copies={"folder": str(backup)})
    pruned = [path.name for path in (places.root / "parts").iterdir()]
    shutil.rmtree(checkpoints(job(base))[-1].folder)
    shutil.copytree(base / "kept", places.checkpoints / second.name)

    for segment in range(5, 5 + GOAL):
        if run_program(base, STEP, segment, goal=GOAL, keep=1).kind is EndKind.FINISHED:
            break

    assert second.name in pruned
    assert result(base) == whole_result()
