import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from support.making import PASSPORT
from support.toyrun import flip_byte, rewrite_passport

from unbroken.errors import CheckpointError, FormatError, OutageError
from unbroken.store.checkpoint import FORMAT, Imported, data_digest, read_import, read_passport
from unbroken.store.progress import FileDigest, Progress


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text(PASSPORT.to_text())
    return tmp_path


def test_a_passport_reads_back_as_it_was_written(folder: Path) -> None:
    assert read_passport(folder) == PASSPORT


def test_the_digest_of_a_passport_is_that_of_its_canonical_json() -> None:
    """sha256 of `{"a":[1,null],"b":{"c":0.5,"d":"x"}}`; another would make all that there are altered ones."""
    data = {"b": {"d": "x", "c": 0.5}, "a": [1, None]}

    assert data_digest(data) == "a81aafc617931d14cb195e9243cb994df6fbd4d4774b9905bd31d4025d84ea7e"


def test_no_number_that_json_has_not_is_written(folder: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(PASSPORT, work_seconds=float("nan")).to_text()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{"), lambda path: path.write_text("[]")])
def test_whatever_is_wrong_with_a_passport_it_is_none_of_a_newer_unbroken(folder: Path, spoil) -> None:
    spoil(folder / "manifest.json")

    assert FORMAT.found(folder / "manifest.json") == {}


def test_what_a_run_was_imported_from_stands_in_it(folder: Path) -> None:
    imported = Imported("/old", ("a", "b"), ("the loader's place",), "mine.pt", epoch=2)
    (folder / "manifest.json").write_text(replace(PASSPORT, imported=imported).to_text())

    assert read_passport(folder).imported == imported
    assert read_import(folder) is None  # a later checkpoint: the program has saved all of it
    assert json.loads(PASSPORT.to_text())["imported"] is None


@pytest.mark.parametrize(("path", "is_told"), [("mine.pt", True), (".", True), ("", False)])
def test_a_training_is_told_of_the_users_own_file(tmp_path: Path, folder: Path, path: str, is_told: bool) -> None:
    imported = Imported("/old", path=path, step=20)
    (folder / "manifest.json").write_text(replace(PASSPORT, segment=0, imported=imported).to_text())

    assert read_import(folder) == (imported if is_told else None)
    assert (read_import(None), read_import(tmp_path / "none")) == (None, None)


# No clock: a machine may stand still for a moment.
@pytest.mark.process
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    some.floats(0, allow_nan=False, allow_infinity=False),
    some.text(),
    some.dictionaries(some.text(), some.none() | some.booleans() | some.integers() | some.text(), max_size=3),
)
def test_any_progress_and_note_survive_the_way_through_the_file(
    tmp_path_factory: pytest.TempPathFactory, done: float, note: str, metrics: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("passport")
    passport = replace(PASSPORT, progress=Progress(done, None, "steps", metrics), note=note)  # type: ignore[arg-type]
    (folder / "manifest.json").write_text(passport.to_text())

    assert read_passport(folder) == passport


def test_no_byte_of_a_passport_can_change_unseen(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_bytes()
    unseen = []
    for at in range(len(whole) - 1):
        flip_byte(path, at)
        try:
            read_passport(folder)
            unseen.append(at)
        except CheckpointError:
            pass
        path.write_bytes(whole)

    assert unseen == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no passport"),
        ("", "the passport cannot be read"),
        ("{", "the passport cannot be read"),
        (PASSPORT.to_text()[:100], "the passport cannot be read"),
        (PASSPORT.to_text()[:-3], "the passport cannot be read"),
        *((text, "found .*, allowed: an object") for text in ("[]", "null", "3", '"x"')),
    ],
)
def test_a_passport_that_is_missing_torn_or_no_object_is_refused(folder: Path, text: str | None, words: str) -> None:
    path = folder / "manifest.json"
    path.unlink()
    if text is not None:
        path.write_text(text)

    with pytest.raises(CheckpointError, match=rf"manifest\.json: .*{words}"):
        read_passport(folder)


@pytest.mark.parametrize("version", [FORMAT.newest + 1, FORMAT.newest - 1, 0, -1, "1", None])
def test_another_schema_version_is_named_with_the_one_that_is_read(folder: Path, version: object) -> None:
    rewrite_passport(folder, schema_version=version)

    with pytest.raises(
        FormatError, match=rf"^{folder}/manifest\.json: found format {version!r}, unbroken \S+ reads 2;"
    ):
        read_passport(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": 1}, "not a passport of unbroken .*'extra'"),
        ({"imported": {"from": "/x"}}, "not a passport of unbroken .*'from'"),
        ({"progress": {"goal": 1}}, "'done' is None"),
        ({"files": {"../x": {"size_bytes": 1, "digest": "0"}}}, "points outside the checkpoint"),
        ({"files": {"/etc/x": {"size_bytes": 1, "digest": "0"}}}, "points outside the checkpoint"),
        ({"files": {"x": {"size_bytes": "1"}}}, "not a passport of unbroken .*'digest'"),
    ],
)
def test_a_passport_of_another_shape_is_refused(folder: Path, changes: dict[str, object], words: str) -> None:
    rewrite_passport(folder, **changes)

    with pytest.raises(CheckpointError, match=f"^{folder / 'manifest.json'}: .*{words}"):
        read_passport(folder)


def test_a_missing_key_is_named(folder: Path) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    del data["identity"]
    path.write_text(json.dumps(data))
    rewrite_passport(folder)

    with pytest.raises(CheckpointError, match=r"not a passport of unbroken .*'identity'"):
        read_passport(folder)


def test_a_passport_that_cannot_be_read_now_is_not_called_bad(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object, **__: object) -> str:
        raise OSError(116, os.strerror(116))

    monkeypatch.setattr(Path, "read_text", stale)

    with pytest.raises(OutageError, match=r"manifest\.json: Stale file handle; that says nothing about the checkpoint"):
        read_passport(folder)


def test_a_file_entry_of_a_passport_is_size_and_digest(folder: Path) -> None:
    passport = replace(PASSPORT, files={"a": FileDigest(3, "ff")})
    (folder / "manifest.json").write_text(passport.to_text())

    assert json.loads((folder / "manifest.json").read_text())["files"] == {"a": {"size_bytes": 3, "digest": "ff"}}


def test_a_passport_is_indented_json_whatever_its_note_and_file_names_hold() -> None:
    names = ["a", 'quote"d', "b/ü", "\n"]
    files = {name: FileDigest(number, "0" * 32) for number, name in enumerate(names)}
    whole = replace(PASSPORT, files=files, note='"x"\n  "files": {}', identity_parts={"files": "{}"})

    for passport in (whole, replace(whole, files={})):
        text = passport.to_text()
        assert text == json.dumps(json.loads(text), indent=2) + "\n"
        assert list(json.loads(text)["files"]) == list(passport.files)
