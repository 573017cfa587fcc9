import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import PASSPORT, draft, publish
from support.toyrun import flip_byte

from unbroken.errors import CheckpointError, FencedError, StorageError
from unbroken.store.checkpoint import age_by_name, folder_name, verify_files
from unbroken.store.checkpoints import Store
from unbroken.store.progress import FileDigest, Progress
from unbroken.system import fs
from unbroken.system.fs import unique_name


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "checkpoints")


def test_a_published_checkpoint_holds_the_files_and_a_passport_that_names_each(store: Store) -> None:
    checkpoint = publish(store, 1)

    assert sorted(checkpoint.passport.files) == ["state", "sub/more"]
    assert checkpoint.passport.files["state"].size_bytes == 4
    assert sorted(item.name for item in checkpoint.folder.iterdir()) == ["manifest.json", "state", "sub"]
    seen: list[int] = []
    verify_files(checkpoint, seen.append)
    assert seen == [4, checkpoint.passport.files["sub/more"].size_bytes]


def test_files_stand_in_a_passport_in_order_of_folder_and_name(store: Store) -> None:
    folder = draft(store)
    for name in ("a.x", "a/c", "a/b.d/e", "a/b/f", "B"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    checkpoint = store.publish(folder, PASSPORT, lambda: None)

    found = [Path(name) for name in checkpoint.passport.files]
    assert found == sorted(found)
    assert len(found) == 7


def test_publishing_takes_the_draft_away(store: Store) -> None:
    publish(store, 1)

    assert list((store.root.parent / "work").iterdir()) == []


def test_the_folder_says_number_progress_time_and_token() -> None:
    passport = replace(PASSPORT, sequence=42, token=7, progress=Progress(1200, 5000, "MD steps"))

    assert folder_name(passport) == "000042_1200-MD-steps_20261121T000100Z_t7"


@pytest.mark.parametrize(("done", "text"), [(0.25, "0.25"), (12345678, "12345678"), (1e6, "1000000"), (3.0, "3")])
def test_progress_in_a_folder_name_is_readable(done: float, text: str) -> None:
    passport = replace(PASSPORT, progress=Progress(done, unit="/.."))

    assert folder_name(passport) == f"000001_{text}-steps_20261121T000100Z_t1"


def test_a_writer_that_lost_the_run_publishes_nothing(store: Store) -> None:
    folder = draft(store)

    def lost() -> None:
        raise FencedError("lost")

    with pytest.raises(FencedError):
        store.publish(folder, PASSPORT, lost)

    assert store.names() == []
    assert not (store.root / "latest").is_symlink()


def test_a_sleeper_that_wakes_up_after_its_rename_does_not_turn_the_links(store: Store) -> None:
    newer = publish(store, 2, token=2)
    answers = iter([None, FencedError("lost")])

    def lost_later() -> None:
        if error := next(answers):
            raise error

    with pytest.raises(FencedError):
        store.publish(draft(store), replace(PASSPORT, sequence=2, token=1), lost_later)

    assert os.readlink(store.root / "latest") == newer.name
    assert store.readable()[-1].name == newer.name


def test_of_two_checkpoints_of_one_number_that_of_the_later_writer_is_newer(store: Store) -> None:
    publish(store, 1, token=9)

    publish(store, 1, token=10)

    assert [checkpoint.passport.token for checkpoint in store.readable()] == [9, 10]


def test_numbers_are_not_used_again_after_a_quarantine(store: Store) -> None:
    store.quarantine(publish(store, 7).name, "torn")

    assert store.last_sequence() == 7


def test_a_quarantined_checkpoint_lies_beside_its_reason(store: Store) -> None:
    name = publish(store, 1).name

    target = store.quarantine(name, "why")

    assert target == store.root / ".quarantine" / name
    assert (target / "state").exists()
    assert json.loads(target.with_name(f"{name}.reason.json").read_text()) == {"is_whole": False, "reason": "why"}
    assert store.names() == []
    assert store.is_set_aside(name) and not store.is_set_aside("000002")


def test_a_second_bad_checkpoint_of_the_same_name_does_not_replace_the_first(store: Store) -> None:
    name = publish(store, 1).name
    store.quarantine(name, "first")
    publish(store, 1)

    target = store.quarantine(name, "second")

    assert target.name == f"{name}.2"
    assert json.loads(target.with_name(f"{name}.2.reason.json").read_text())["reason"] == "second"


def test_what_was_bad_may_come_back_the_newest_first_also_without_a_reason_or_with_a_spoilt_one(store: Store) -> None:
    names = [publish(store, number).name for number in range(1, 6)]
    targets = [store.quarantine(name, "it is torn", is_whole=number == 4) for number, name in enumerate(names)]
    targets[0].with_name(f"{names[0]}.reason.json").unlink()
    targets[1].with_name(f"{names[1]}.reason.json").write_bytes(b"\xff\xfe")

    assert store.set_aside_as_bad() == targets[3::-1]


def test_the_newest_that_was_bad_is_that_of_the_highest_number_of_however_many_digits(store: Store) -> None:
    targets = [store.quarantine(publish(store, number).name, "torn") for number in (999_999, 1_000_000)]

    assert store.set_aside_as_bad() == targets[::-1]


@pytest.mark.parametrize(
    ("name", "age"),
    [
        ("000042_1200-steps_20261121T022642Z_t7", (42, 7)),
        ("1234567_1-steps_20261121T022642Z_t12", (1234567, 12)),
        ("000042_1200-steps_20261121T022642Z", (42, 0)),
        ("latest", (0, 0)),
    ],
)
def test_a_name_tells_the_age_where_the_passport_cannot(name: str, age: tuple[int, int]) -> None:
    assert age_by_name(name) == age


def test_the_size_of_a_tree_counts_what_lies_deeper(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"12345")
    (tmp_path / "a" / "other").write_bytes(b"123")

    assert fs.tree_bytes(tmp_path) == 8


def test_leftovers_are_removed_and_named_and_nothing_else(store: Store) -> None:
    name = publish(store, 1).name
    trash, link = store.root / unique_name("trash"), store.root / unique_name("latest")
    (trash / "sub").mkdir(parents=True)
    link.symlink_to(name)
    (store.root / ".keep").touch()

    removed = store.remove_leftovers()

    assert sorted(removed) == sorted([trash.name, link.name])
    assert sorted(item.name for item in store.root.iterdir()) == [".keep", name, "latest"]


def test_a_kill_within_a_quarantine_leaves_nothing_hidden_for_ever(store: Store) -> None:
    store.quarantine(publish(store, 1).name, "why")
    left = store.root / ".quarantine" / unique_name("x.reason.json")
    left.touch()

    assert store.remove_leftovers() == [left.name]
    assert not left.exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "link").symlink_to("state"), "link: not a plain file"),
        (lambda folder: (folder / "round").symlink_to(folder), "round: not a plain file"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe: not a plain file"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "the name manifest.json belongs to unbroken"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused_before_it_is_shown(store: Store, spoil, words: str) -> None:
    folder = draft(store)
    spoil(folder)

    with pytest.raises(CheckpointError, match=words):
        store.publish(folder, PASSPORT, lambda: None)

    assert store.names() == []


def test_a_link_to_a_folder_is_no_checkpoint(store: Store) -> None:
    folder = draft(store)
    link = folder.with_name("other.ready")
    link.symlink_to(folder)

    with pytest.raises(CheckpointError, match="a link; a checkpoint is a folder of its own"):
        store.publish(link, PASSPORT, lambda: None)

    assert store.names() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": {"state": FileDigest(5, "0")}}, "4 bytes found, the program wrote 5"),
        (
            {"files": {"gone": FileDigest(5, "0"), "away": FileDigest(5, "0")}},
            "the program named files that are not there: away, gone$",
        ),
        ({"algorithm": "md5"}, "digest algorithm 'md5' is unknown"),
    ],
)
def test_what_the_program_says_wrongly_of_its_files_is_refused(
    store: Store, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        store.publish(draft(store), replace(PASSPORT, **changes), lambda: None)  # type: ignore[arg-type]


def test_a_store_is_made_with_the_folders_above_it(store: Store, tmp_path: Path) -> None:
    new = Store(tmp_path / "of" / "a" / "run")

    assert new.publish(draft(store), PASSPORT, lambda: None).folder.parent == new.root


def test_a_disk_that_is_full_is_told_with_the_bytes_of_the_checkpoint(store: Store) -> None:
    def confirm() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = draft(store)
    needed = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    with pytest.raises(StorageError, match=f"^{store.root}: No space left on device; {needed} bytes needed, "):
        store.publish(folder, PASSPORT, confirm)

    assert store.names() == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "state").unlink(), "state: missing"),
        (lambda folder: (folder / "state").write_text("on"), "2 bytes, published with 4"),
        (lambda folder: flip_byte(folder / "state"), "the content changed since it was published"),
        (lambda folder: os.replace(folder / "sub" / "more", folder / "state"), "the content changed"),
        (lambda folder: replace_by_link(folder / "state"), "not a plain file any more"),
    ],
)
def test_a_file_that_is_not_as_it_was_published_is_found(store: Store, spoil, words: str) -> None:
    checkpoint = publish(store, 1)
    spoil(checkpoint.folder)

    with pytest.raises(CheckpointError, match=words):
        verify_files(checkpoint)


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def test_a_unit_that_is_longer_than_a_files_name_makes_a_good_checkpoint(store: Store) -> None:
    unit = "steps of a walk " * 30

    made = publish(store, 1, progress=Progress(10, 100, unit))

    assert store.readable()[0].passport.progress.unit == unit
    assert len(made.name) < 100


def test_names_stand_in_order_of_their_numbers_and_bad_ones_hide_none(store: Store) -> None:
    numbers = (1_000_000, 999_999, 5, 6, 7)
    made = {number: publish(store, number) for number in numbers}
    (made[6].folder / "manifest.json").write_text("{")

    assert store.names() == [made[number].name for number in (5, 6, 7, 999_999, 1_000_000)]
    assert [found.name for found in store.readable()] == [made[number].name for number in (5, 7, 999_999, 1_000_000)]


def left(store: Store) -> list[int]:
    return [int(name[:6]) for name in store.names()]


@pytest.mark.parametrize(
    ("count", "best", "keep", "milestone_every", "kept"),
    [
        (5, 0, 2, 0, [4, 5]),
        (7, 0, 1, 1, [1, 2, 3, 4, 5, 6, 7]),
        (7, 0, 1, 3, [3, 6, 7]),
        (1, 0, 1, 0, [1]),
        (5, 1, 1, 0, [1, 5]),
        (5, 3, 1, 0, [3, 5]),
    ],
)
def test_pruning_keeps_the_newest_the_milestones_and_the_last_best_with_its_link(
    store: Store, count: int, best: int, keep: int, milestone_every: int, kept: list[int]
) -> None:
    for sequence in range(1, count + 1):
        publish(store, sequence, is_best=sequence <= best)

    assert store.prune(keep, milestone_every) == []

    assert left(store) == kept
    assert not best or (store.root / "best" / "state").exists()


def test_pruning_leaves_alone_what_its_owner_keeps_elsewhere(store: Store, tmp_path: Path) -> None:
    moved = publish(store, 1).folder
    for sequence in (2, 3):
        publish(store, sequence)
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")

    assert store.prune(keep=1, milestone_every=0) == []

    assert left(store) == [1, 3]
    assert (tmp_path / "elsewhere" / "state").exists()


def test_a_link_that_a_killed_writer_left_goes_and_what_it_names_stays(store: Store, tmp_path: Path) -> None:
    publish(store, 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").write_text("1")
    (store.root / unique_name("latest")).symlink_to(tmp_path / "mine")

    store.remove_leftovers()

    assert (tmp_path / "mine" / "data").exists()
    assert [path.name for path in store.root.iterdir() if path.is_symlink()] == ["latest"]


@pytest.mark.parametrize("name", ["latest", "best"])
def test_a_link_that_still_names_what_is_pruned_is_put_right_first(store: Store, name: str) -> None:
    """The disk may have refused the new link when the checkpoint was published."""
    names = [publish(store, sequence, is_best=name == "best" and sequence < 3).name for sequence in (1, 2, 3)]
    (store.root / name).unlink()
    (store.root / name).symlink_to(names[0])

    store.prune(keep=1, milestone_every=0)

    assert os.readlink(store.root / "latest") == names[2]
    assert name == "latest" or os.readlink(store.root / "best") == names[1]


def test_an_unreadable_checkpoint_is_not_counted_among_the_newest(store: Store) -> None:
    for sequence in (1, 2, 3):
        publish(store, sequence)
    (store.root / store.names()[-1] / "manifest.json").unlink()

    store.prune(keep=1, milestone_every=0)

    assert left(store) == [2, 3]


def test_a_best_link_never_dangles_after_a_quarantine(store: Store) -> None:
    first = publish(store, 1, is_best=True)
    best = publish(store, 2, is_best=True)
    store.quarantine(best.name, "bad")

    store.mend_links(first)

    assert os.readlink(store.root / "best") == first.name
    assert os.readlink(store.root / "latest") == first.name


def test_without_any_best_there_is_no_best_link(store: Store) -> None:
    first = publish(store, 1)
    store.quarantine(publish(store, 2, is_best=True).name, "bad")

    store.mend_links(first)

    assert not (store.root / "best").is_symlink()


def test_a_passport_that_came_along_with_a_copied_checkpoint_is_replaced(store: Store) -> None:
    first = publish(store, 1)
    folder = draft(store)
    (folder / "manifest.json").write_bytes((first.folder / "manifest.json").read_bytes())

    second = store.publish(folder, replace(PASSPORT, sequence=2), lambda: None)

    assert second.passport.sequence == 2
    verify_files(second)


@pytest.mark.parametrize("name", ["latest", "best"])
def test_links_that_a_copy_has_made_folders_are_links_again(store: Store, name: str) -> None:
    """As `scp -r` and `cp -rL` leave them."""
    first = publish(store, 1, is_best=name == "latest")
    link = store.root / name
    link.unlink(missing_ok=True)
    shutil.copytree(first.folder, link)

    store.mend_links(first)

    assert not link.is_dir() or os.readlink(link) == first.name
    assert "a folder in the place of a link" in (store.root / ".quarantine" / f"{name}.reason.json").read_text()
