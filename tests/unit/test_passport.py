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
from unbroken.runs.imported import Imported
from unbroken.runs.passport import SCHEMA_VERSION, data_digest, parse_passport, read_passport, refuse_newer
from unbroken.runs.progress import FileDigest, Progress


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

    refuse_newer(folder)


def test_what_a_run_was_imported_from_stands_in_it_and_in_no_other(folder: Path) -> None:
    imported = Imported("/old", ("a", "b"), ("the loader's place",))
    (folder / "manifest.json").write_text(replace(PASSPORT, imported=imported).to_text())

    assert read_passport(folder).imported == imported
    assert "imported" not in json.loads(PASSPORT.to_text())  # an older unbroken reads these


# No clock: a machine may stand still for a moment.
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


@pytest.mark.parametrize("length", [0, 1, 100, -3])
def test_a_truncated_passport_is_refused(folder: Path, length: int) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:length])

    with pytest.raises(CheckpointError, match="the passport cannot be read"):
        read_passport(folder)


def test_a_missing_passport_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"manifest\.json: there is no passport"):
        read_passport(tmp_path)


def test_a_passport_says_the_oldest_format_that_holds_what_it_says(folder: Path) -> None:
    """So an unbroken of before reads what it can, and stops at the rest instead of taking it for bad."""
    plain = read_passport(folder)

    for passport, version in (
        (plain, 1),
        (replace(plain, environment={"venv": {"path": "/x"}}), 2),
        (replace(plain, imported=Imported("/x")), 2),
    ):
        data = json.loads(passport.to_text())
        assert data["schema_version"] == version
        assert ("environment" in data) == bool(passport.environment)
        assert ("imported" in data) == (passport.imported is not None)
        assert parse_passport(data, "here") == passport


def test_another_schema_version_is_named_with_the_one_that_is_read(folder: Path) -> None:
    rewrite_passport(folder, schema_version=SCHEMA_VERSION + 1)

    with pytest.raises(FormatError, match=r"found format 3, unbroken \S+ reads 1 to 2"):
        read_passport(folder)


@pytest.mark.parametrize("version", [0, -1, "1", None])
def test_a_schema_version_that_never_was_is_refused(folder: Path, version: object) -> None:
    rewrite_passport(folder, schema_version=version)

    with pytest.raises(
        FormatError, match=rf"^{folder}/manifest\.json: found format {version!r}, unbroken \S+ reads 1 t"
    ):
        read_passport(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"segment": "1"}, r"of a wrong type \['segment'\]"),
        ({"extra": 1}, r"unknown \['extra'\]"),
        ({"imported": {"from": "/x"}}, "'imported' is malformed, allowed: from"),
        ({"imported": {"from": "/x", "checked": [1], "not_checked": []}}, "'imported' is malformed"),
        ({"progress": {"goal": 1}}, "'done' is None"),
        ({"files": {"../x": {"size_bytes": 1, "digest": "0"}}}, "points outside the checkpoint"),
        ({"files": {"/etc/x": {"size_bytes": 1, "digest": "0"}}}, "points outside the checkpoint"),
        ({"files": {"x": {"size_bytes": "1"}}}, "allowed: size_bytes and digest"),
    ],
)
def test_a_passport_of_another_shape_is_refused(folder: Path, changes: dict[str, object], words: str) -> None:
    rewrite_passport(folder, **changes)

    with pytest.raises(CheckpointError, match=f"^{folder / 'manifest.json'}: .*{words}"):
        read_passport(folder)


@pytest.mark.parametrize("text", ["[]", "null", "3", '"x"'])
def test_a_passport_that_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)

    with pytest.raises(CheckpointError, match="the passport is not an object"):
        read_passport(folder)


def test_a_missing_key_is_named(folder: Path) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    del data["identity"]
    path.write_text(json.dumps(data))
    rewrite_passport(folder)

    with pytest.raises(CheckpointError, match=r"missing keys \['identity'\]"):
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
