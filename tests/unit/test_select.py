import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.making import PASSPORT, publish
from support.toyrun import flip_byte, rewrite_passport

from unbroken.errors import ConfigError, FormatError, IdentityError, NoCheckpointError, StorageError
from unbroken.store import checkpoint as checkpoint_module
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.select import select
from unbroken.system import log


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "checkpoints")


def picked(store: Store, told: list[str] | None = None, has_worked: bool = False) -> Checkpoint | None:
    lines = told if told is not None else []
    with log.lines_to(lines.append):
        return select(store, "demo", lambda identity: identity == PASSPORT.identity, has_worked=has_worked)


def truncate(folder: Path) -> None:
    os.truncate(folder / "state", 2)


def swap(folder: Path) -> None:
    """Two files of one size change places."""
    (folder / "state").rename(folder / "x")
    (folder / "sub" / "more").rename(folder / "state")
    (folder / "x").rename(folder / "sub" / "more")


def flip_in_passport(folder: Path) -> None:
    text = (folder / "manifest.json").read_bytes()
    flip_byte(folder / "manifest.json", text.index(b'"segment": 1') + 11)


def alter_passport(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"segment": 1', '"segment": 2'))


SPOILS = [
    (truncate, "state: 2 bytes, published with 4"),
    (lambda folder: (folder / "state").write_bytes(b""), "state: 0 bytes, published with 4"),
    (lambda folder: flip_byte(folder / "state"), "state: the content changed since it was published (digest)"),
    (swap, "the content changed since it was published (digest)"),
    (flip_in_passport, "manifest.json: the passport cannot be read"),
    (alter_passport, "manifest.json: the passport was altered (its own digest does not match)"),
    (lambda folder: (folder / "manifest.json").unlink(), "manifest.json: there is no passport"),
    (lambda folder: rewrite_passport(folder, run="other"), "the passport belongs to the run 'other'"),
    (lambda folder: (folder / "sub" / "more").unlink(), "sub/more: missing"),
    (lambda folder: rewrite_passport(folder, parent_digest="0"), "is not the one it was made from"),
]


@pytest.mark.process
@pytest.mark.parametrize(("spoil", "reason"), SPOILS)
def test_of_a_bad_newest_checkpoint_the_one_before_is_taken_and_the_reason_is_kept(store: Store, spoil, reason) -> None:
    before = publish(store, 1)
    bad = publish(store, 2)
    spoil(bad.folder)
    told: list[str] = []

    found = picked(store, told)

    assert found is not None and found.name == before.name
    assert store.names() == [before.name]
    assert reason in (store.root / ".quarantine" / f"{bad.name}.reason.json").read_text()
    assert len(told) == 1 and told[0].startswith(f"bad checkpoint {bad.name}: ") and reason in told[0]


@pytest.mark.parametrize("spoil", [spoil for spoil, _ in SPOILS[:-1]])  # the last one needs a parent
def test_with_no_good_checkpoint_left_the_run_does_not_start_from_nothing(store: Store, spoil) -> None:
    spoil(publish(store, 1).folder)

    with pytest.raises(NoCheckpointError) as caught:
        picked(store)

    quarantine = store.root / ".quarantine"
    assert str(caught.value) == (
        f"runs.demo: no good checkpoint is left; the bad ones and their reasons are in {quarantine}; put a good copy "
        f"into {store.root}, or begin anew with: unbroken restart demo, then start again"
    )


def test_a_run_whose_bad_checkpoints_were_set_aside_earlier_does_not_start_from_nothing(store: Store) -> None:
    bad = publish(store, 1)
    truncate(bad.folder)
    store.quarantine(bad.name, "bad")

    with pytest.raises(NoCheckpointError):
        picked(store)


def test_what_was_set_aside_as_bad_and_reads_whole_now_is_back_before_the_run_gives_up(store: Store) -> None:
    """A file server in trouble showed other bytes than it holds."""
    older, newer, torn = (publish(store, sequence) for sequence in (1, 2, 3))
    for checkpoint in (torn, newer, older):
        store.quarantine(checkpoint.name, "state: the content changed since it was published (digest)")
    truncate(store.root / ".quarantine" / torn.name)
    told: list[str] = []

    found = picked(store, told)

    assert found is not None and found.name == newer.name
    assert store.names() == [newer.name]
    assert not (store.root / ".quarantine" / f"{newer.name}.reason.json").exists()
    assert told == [f"{newer.name}: was quarantined as bad, and is valid now; it is back in {store.root}"]


def test_what_was_set_aside_although_it_is_whole_stays_there(store: Store) -> None:
    """By `unbroken back`, or because no attempt came forward from it, or by the program's own word."""
    store.quarantine(publish(store, 1).name, "set aside by hand", is_whole=True)

    with pytest.raises(NoCheckpointError):
        picked(store)


def test_a_run_that_worked_and_has_no_checkpoints_does_not_start_from_nothing(store: Store) -> None:
    with pytest.raises(NoCheckpointError):
        picked(store, has_worked=True)


def test_a_new_run_has_none(store: Store) -> None:
    assert picked(store) is None


def test_a_good_copy_put_back_by_hand_is_taken(store: Store) -> None:
    good = publish(store, 1)
    target = store.quarantine(good.name, "by mistake")
    target.rename(good.folder)

    found = picked(store)

    assert found is not None and found.name == good.name


def test_several_bad_ones_in_a_row_are_all_set_aside(store: Store) -> None:
    first = publish(store, 1)
    for sequence in (2, 3, 4):
        flip_byte(publish(store, sequence).folder / "state")

    found = picked(store)

    assert found is not None and found.name == first.name
    assert store.names() == [first.name]


def test_the_number_in_the_passport_decides_and_not_the_name_of_the_folder(store: Store) -> None:
    old, new = publish(store, 1), publish(store, 2)
    old.folder.rename(store.root / "000009_copied-back")

    found = picked(store)

    assert found is not None and found.name == new.name


def test_a_folder_without_a_passport_hides_no_good_one(store: Store) -> None:
    good = publish(store, 1)
    (store.root / "000099_half-copied").mkdir()

    found = picked(store)

    assert found is not None and found.name == good.name
    assert (store.root / ".quarantine" / "000099_half-copied").is_dir()


def test_a_file_in_place_of_a_folder_hides_no_good_one(store: Store) -> None:
    good = publish(store, 1)
    (store.root / "000099_notes.txt").write_text("mine")

    found = picked(store)

    assert found is not None and found.name == good.name


def test_a_good_checkpoint_of_another_computation_is_refused_and_stays_where_it_is(store: Store) -> None:
    publish(store, 1)
    other = publish(store, 2, identity="2" * 64)

    with pytest.raises(IdentityError):
        picked(store)

    assert other.name in store.names()


def test_a_child_of_a_checkpoint_that_was_set_aside_is_still_good(store: Store) -> None:
    parent = publish(store, 1)
    child = publish(store, 2)
    flip_byte(parent.folder / "manifest.json")

    found = picked(store)

    assert found is not None and found.name == child.name


def test_a_checkpoint_that_this_user_may_not_read_is_not_set_aside(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = publish(store, 1)

    def forbidden(path: Path, algorithm: str) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint_module, "digest_file", forbidden)

    with pytest.raises(StorageError, match="Permission denied; make it readable, then start again"):
        picked(store)

    assert store.names() == [good.name]


def of_a_later_format(folder: Path) -> None:
    """With more in it, and a digest by another rule."""
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99, "sealed": "ab12"}))


@pytest.mark.parametrize("change", [of_a_later_format, lambda folder: rewrite_passport(folder, schema_version=99)])
def test_a_checkpoint_of_another_version_is_named_and_nothing_is_set_aside(
    store: Store, change: Callable[[Path], None]
) -> None:
    publish(store, 1)
    newer = publish(store, 2)
    change(newer.folder)

    with pytest.raises(
        FormatError, match=r"manifest\.json: found format 99, unbroken \S+ reads 2; nothing was changed; install"
    ):
        picked(store)

    assert len(store.names()) == 2 and not (store.root / ".quarantine").exists()


def test_checkpoints_are_not_set_aside_because_a_library_is_missing_here(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = publish(store, 1, algorithm="xxh3_128")
    monkeypatch.setattr("unbroken.system.digests.HAS_XXHASH", False)

    with pytest.raises(ConfigError, match="pip install xxhash"):
        picked(store)

    assert store.names() == [good.name]


def test_the_quarantine_keeps_the_passport_for_whoever_looks_into_it(store: Store) -> None:
    publish(store, 1)
    bad = publish(store, 2)
    flip_byte(bad.folder / "state")
    picked(store)

    kept = json.loads((store.root / ".quarantine" / bad.name / "manifest.json").read_text())

    assert kept["sequence"] == 2
