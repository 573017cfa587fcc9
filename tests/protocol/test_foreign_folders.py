"""What a program or a user puts in the place of a run's folder is somebody else's: it is neither moved nor removed."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.disks import as_root, mount_small, unmount
from support.making import draft, publish
from support.needs import skip_or_fail
from support.snapshots import snapshot
from support.toyrun import (
    ProgramEngine,
    checkpoints,
    final_files,
    history,
    program,
    run_program,
    start_segment,
    toy,
    toy_job,
    toy_run,
    until,
    whole_toy,
)

from unbroken.errors import ConfigError, ForeignFolderError
from unbroken.job.lifecycle import run_segment
from unbroken.plan.plan import Plan
from unbroken.store import checkpoints as store_module
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.system import fs

OWN = [path.name for path in RunFolder("demo").own]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Somebody's work on another disk: plain files, and folders that look like what a program hands over."""
    folder = tmp_path / "scratch"
    for name in ("thesis.dat", "000001.ready/state", "000001.ready/progress.json", "draft/x", "000001/save/state"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"done": 50}')
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    return base


# --- the save folder -------------------------------------------------------------------------------------------------

REPLACES = {
    "a link": 'rmdir "$UNBROKEN_SAVE"; ln -s {scratch} "$UNBROKEN_SAVE"',
    "moved, and a link": 'mv "$UNBROKEN_SAVE" {scratch}/moved; ln -s {scratch} "$UNBROKEN_SAVE"',
    "a link to nowhere": 'rmdir "$UNBROKEN_SAVE"; ln -s {scratch}/nowhere "$UNBROKEN_SAVE"',
    "another folder": 'mv "$UNBROKEN_SAVE" {scratch}.old; cp -r {scratch} "$UNBROKEN_SAVE"',
    "a file": 'rmdir "$UNBROKEN_SAVE"; echo 1 > "$UNBROKEN_SAVE"',
    "nothing": 'rmdir "$UNBROKEN_SAVE"',
}
ENDS = {"leaves well": "exit 85", "is done": "exit 0", "fails": "exit 1", "works on": "sleep 1000"}


@pytest.mark.process
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("replaces", REPLACES)
def test_what_a_program_puts_in_the_place_of_its_save_folder_is_left_alone(
    base: Path, scratch: Path, replaces: str, end: str
) -> None:
    run_program(base, program("one_step"), goal=100)
    before = snapshot(scratch)
    command = ["sh", "-c", f"{REPLACES[replaces].format(scratch=scratch)}; {ENDS[end]}"]

    with pytest.raises(ForeignFolderError, match=r"/save: .*; a run's folders stay where unbroken made them"):
        run_program(base, command, 2, goal=100)
    run_program(base, program("one_step"), 2, goal=100)

    assert snapshot(scratch) == before
    job = toy_job(base)
    assert [attempt.kind for attempt in history(job)] == [EndKind.PAUSED, EndKind.FAILED, EndKind.PAUSED]
    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(job)] == [1, 2]
    assert not list(job.places.work.iterdir())


@pytest.mark.process
def test_a_handed_over_link_is_no_state_and_what_it_leads_to_is_left_alone(base: Path, scratch: Path) -> None:
    before = snapshot(scratch)
    command = ["sh", "-c", f'ln -s {scratch}/000001.ready "$UNBROKEN_SAVE/1.ready"; exit 85']

    for attempt in (1, 2):
        with pytest.raises(Exception, match=r"1\.ready: a link; a checkpoint is a folder of its own"):
            run_program(base, command, attempt=attempt, goal=100)

    assert snapshot(scratch) == before
    assert checkpoints(toy_job(base)) == []


@pytest.mark.process
def test_links_among_loose_files_are_refused_and_what_they_lead_to_is_left_alone(base: Path, scratch: Path) -> None:
    before = snapshot(scratch)
    command = ["sh", "-c", f'ln -s {scratch} "$UNBROKEN_SAVE/data"; echo 1 > "$UNBROKEN_SAVE/n"; exit 85']

    for attempt in (1, 2):
        with pytest.raises(Exception, match="not a plain file; a checkpoint holds plain files only"):
            run_program(base, command, attempt=attempt, goal=100)

    assert snapshot(scratch) == before


@pytest.mark.process
@pytest.mark.parametrize("replaces", ["a link", "another folder"])
def test_a_successor_leaves_alone_what_stands_in_the_place_of_a_killed_attempts_save_folder(
    base: Path, scratch: Path, replaces: str
) -> None:
    before = snapshot(scratch)
    script = REPLACES[replaces].format(scratch=scratch)
    wait = "until [ -e {}/{} ]; do sleep 0.02; done"
    command = ["sh", "-c", f"touch {base}/begun; {wait.format(base, 'go')}; {script}; touch {base}/ready; sleep 1000"]
    process = start_segment(base, command=command, goal=100)
    until((base / "begun").exists)
    process.kill(signal.SIGSTOP)  # else it would see what happens to the folder at once
    (base / "go").touch()
    until((base / "ready").exists)
    process.kill()
    process.end()

    run_segment(toy_job(base, driver_attempt=2, goal=100), ProgramEngine(program("one_step")))

    job = toy_job(base)
    assert snapshot(scratch) == before
    assert "nothing of the killed attempt 1 could be saved: " in job.places.log(1).read_text()
    assert [attempt.progress_to for attempt in history(job)] == [0, 1]
    assert not list(job.places.work.iterdir())


# --- the other folders -----------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("name", OWN)
def test_a_link_in_the_place_of_a_folder_of_the_run_is_refused_before_anything_is_done(
    base: Path, scratch: Path, name: str
) -> None:
    toy(base, segment_minutes=0.01, goal=10**6)
    job = toy_job(base, 2, goal=10**6)
    own = job.places.root / name
    if own.is_dir():
        shutil.move(own, scratch / "mine")
    else:
        shutil.copytree(scratch, scratch / "mine")
    own.symlink_to(scratch / "mine")
    before, run_before = snapshot(scratch), snapshot(job.places.root)
    line = rf"{own}: a link to {scratch}/mine; nothing there was touched; a run's folders stay where"

    with pytest.raises(ForeignFolderError, match=line):
        toy(base, 2, goal=10**6)
    with pytest.raises(ConfigError, match=r"runs\.demo: " + line):
        Plan((toy_run(goal=10**6),), base).check()

    assert (snapshot(scratch), snapshot(job.places.root)) == (before, run_before)


@pytest.mark.process
def test_another_file_system_in_the_place_of_a_folder_of_the_run_is_refused(base: Path) -> None:
    """A checkpoint is shown by a rename, which needs one file system; and what is mounted there is not ours."""
    run_program(base, program("one_step"), goal=100)
    places = toy_job(base).places
    mount_small(places.checkpoints, "size=1m")
    try:
        with pytest.raises(ForeignFolderError, match="checkpoints: another file system, mounted there; nothing there"):
            run_program(base, program("one_step"), 2, goal=100)
        touched = list(places.checkpoints.iterdir())
    finally:
        unmount(places.checkpoints)

    assert touched == []
    assert len(checkpoints(toy_job(base))) == 1


@pytest.mark.process
@pytest.mark.parametrize("linked", ["results", "results/demo"])
def test_the_runs_whole_folder_may_be_a_link(base: Path, tmp_path: Path, linked: str) -> None:
    (tmp_path / "disk").mkdir()
    (base / linked).parent.mkdir(exist_ok=True)
    (base / linked).symlink_to(tmp_path / "disk")

    toy(base, 1, save_steps=1, keep=1)

    job = toy_job(base)
    assert final_files(job) == whole_toy(tmp_path / "whole", save_steps=1)
    assert len(checkpoints(job)) == 1
    assert (base / linked).is_symlink()


@pytest.mark.process
def test_a_run_whose_folder_is_linked_elsewhere_while_it_works_ends_and_touches_nothing_there(
    base: Path, tmp_path: Path, scratch: Path
) -> None:
    disk, root = tmp_path / "disk", base / "results" / "demo"
    disk.mkdir()
    root.parent.mkdir()
    root.symlink_to(disk)
    before = snapshot(scratch)
    swap = f"ln -sfn {scratch} {root}"
    hand_over = 'mkdir "$UNBROKEN_SAVE/draft"; echo 1 > "$UNBROKEN_SAVE/draft/state"; '
    hand_over += 'echo \'{"done": 1}\' > "$UNBROKEN_SAVE/draft/progress.json"; '
    hand_over += 'mv "$UNBROKEN_SAVE/draft" "$UNBROKEN_SAVE/1.ready"'

    ended = start_segment(base, command=["sh", "-c", f"{swap}; {hand_over}; exit 85"], goal=100).end()
    assert ended.error.startswith(
        "StorageError: results/demo/lease: gone; somebody moved, removed or linked the run's "
    )
    assert snapshot(scratch) == before
    root.unlink()
    root.symlink_to(disk)
    run_program(base, program("one_step"), attempt=2, goal=100)

    assert snapshot(scratch) == before
    # One was handed over where nobody published it.
    assert checkpoints(toy_job(base))[-1].passport.progress.done == 2


def test_a_checkpoint_that_its_owner_keeps_elsewhere_is_used_and_never_removed(base: Path, tmp_path: Path) -> None:
    store, archive = Store(base / "checkpoints"), tmp_path / "archive"
    for sequence in (1, 2):
        publish(store, sequence, {"state": "one\n", "parts/piece": "two\n"})
    archive.mkdir()
    first = store.readable()[0]
    shutil.move(first.folder, archive / first.name)
    first.folder.symlink_to(archive / first.name)
    before = snapshot(archive)

    for sequence in (3, 4):
        publish(store, sequence, {"state": "one\n", "parts/piece": "two\n"})
    store.prune(keep=1, milestone_every=0)
    store.remove_leftovers()

    assert (snapshot(archive), len(store.archived())) == (before, 2)
    assert [checkpoint.passport.sequence for checkpoint in store.readable()] == [1, 4]


def test_a_link_among_archived_parts_is_left_alone(base: Path, scratch: Path) -> None:
    store = Store(base / "checkpoints")
    publish(store, 1)
    store.archive.mkdir()
    (store.archive / "000009_90-steps_20261121T000100Z_t1").symlink_to(scratch)
    before = snapshot(scratch)

    store.remove_leftovers()

    assert snapshot(scratch) == before


def test_a_draft_that_is_a_link_is_refused_before_anything_in_it_is_removed(base: Path, tmp_path: Path) -> None:
    """A copied passport would be."""
    store = Store(base / "checkpoints")
    theirs = publish(Store(tmp_path / "theirs" / "checkpoints"), 1)
    link = draft(store).with_name("other.ready")
    link.symlink_to(theirs.folder)
    before = snapshot(theirs.folder)

    with pytest.raises(Exception, match="a link; a checkpoint is a folder of its own"):
        store.publish(link, theirs.passport, lambda: None)

    assert snapshot(theirs.folder) == before


# --- removal ---------------------------------------------------------------------------------------------------------


def test_links_are_removed_and_not_followed(tmp_path: Path, scratch: Path) -> None:
    before, folder, link = snapshot(scratch), tmp_path / "folder", tmp_path / "link"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "link").symlink_to(scratch)
    link.symlink_to(scratch)

    assert [fs.remove_tree(folder), fs.remove_tree(link)] == ["", ""]

    assert snapshot(scratch) == before
    assert list(tmp_path.iterdir()) == [scratch]


@pytest.mark.process
@pytest.mark.parametrize("kind", ["another file system", "a folder of the same"])
def test_what_is_mounted_below_is_not_emptied(tmp_path: Path, kind: str) -> None:
    """As a program does that mounts a bucket, another machine's disk, or a container's folders in its own."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    for path in (folder / "mounted", home):
        path.mkdir(parents=True)
    (folder / "own").touch()
    if kind == "another file system":
        mount_small(home, "size=1m")
    (home / "thesis.dat").write_text("a year")
    before = snapshot(home)
    if as_root("mount", "--bind", str(home), str(folder / "mounted")).returncode != 0:
        skip_or_fail("missing: the right to mount a folder (root, or sudo without a password)")
    try:
        why = fs.remove_tree(folder)
        (hidden,) = tmp_path.glob(".trash-*")
        left, after = list(hidden.iterdir()), snapshot(home)
    finally:
        for path in (*tmp_path.glob(".trash-*/mounted"), folder / "mounted"):
            as_root("umount", "--lazy", str(path))
        unmount(home)

    assert (after, left) == (before, [hidden / "mounted"])
    assert why == f"{hidden}/mounted: another file system is mounted there"
    assert fs.remove_tree(hidden) == ""


def test_a_link_that_appears_while_a_folder_is_removed_is_not_followed(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder, really = snapshot(scratch), tmp_path / "folder", os.open
    (folder / "sub").mkdir(parents=True)

    def swapped(path: object, *args: int, dir_fd: int | None = None) -> int:
        if path == "sub":
            os.rmdir("sub", dir_fd=dir_fd)
            os.symlink(scratch, "sub", dir_fd=dir_fd)
        return really(path, *args, dir_fd=dir_fd)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", swapped)

    assert fs.remove_tree(folder) == ""

    assert snapshot(scratch) == before
    assert list(tmp_path.iterdir()) == [scratch]


@pytest.mark.process
def test_a_save_folder_that_is_replaced_while_a_state_is_published_leaves_nothing_elsewhere(
    base: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of a large file takes minutes, in which a program may do anything."""
    (scratch / "1.ready").mkdir()
    (scratch / "1.ready" / "state").write_text("somebody else's")
    before = snapshot(scratch)
    hand_over = 'mkdir "$UNBROKEN_SAVE/draft"; echo 1 > "$UNBROKEN_SAVE/draft/state"; '
    hand_over += 'echo \'{"done": 1}\' > "$UNBROKEN_SAVE/draft/progress.json"; '
    hand_over += 'mv "$UNBROKEN_SAVE/draft" "$UNBROKEN_SAVE/1.ready"; sleep 1000'
    digest = store_module.digest_file

    def slow(path: Path, algorithm: str) -> str:
        if (save := path.parents[1] / "save").is_dir() and not save.is_symlink():
            save.rename(save.with_name("moved"))
            save.symlink_to(scratch)
        return digest(path, algorithm)

    monkeypatch.setattr(store_module, "digest_file", slow)

    with pytest.raises(ForeignFolderError, match="/save: a link to "):
        run_program(base, ["sh", "-c", hand_over], goal=100)

    assert snapshot(scratch) == before
    (whole,) = checkpoints(toy_job(base))  # it was ours already
    assert (whole.folder / "state").read_text() == "1\n"
