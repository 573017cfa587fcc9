"""Outputs that are copied to another location: each lies there once, and what is shown there stays complete."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from unbroken.copies import transfer
from unbroken.copies.outputs import OutputPlace, OutputTransfer
from unbroken.store.layout import RunOutput
from unbroken.system import fs


@pytest.fixture
def first(tmp_path: Path) -> Path:
    (tmp_path / "first").mkdir()
    return tmp_path / "first"


@pytest.fixture
def second(tmp_path: Path) -> Path:
    (tmp_path / "second").mkdir()
    return tmp_path / "second"


def begins_with(content: bytes, skip: int, path: Path) -> bool:
    return path.read_bytes()[skip : len(content)] == content[skip:]


def put(root: Path, name: str, content: bytes, piece: int | None = None, head: bytes = b"") -> RunOutput:
    """Write an output, and return it as it is now."""
    listed = partial(begins_with, content, len(head))
    output = RunOutput(name, len(content), len(content), content.hex(), piece, head, is_as_listed=listed)
    (root / output.place).parent.mkdir(parents=True, exist_ok=True)
    (root / output.place).write_bytes(content)
    return output


def moved(first: Path, second: Path) -> OutputTransfer:
    return OutputTransfer(OutputPlace(first), second)


def there(root: Path) -> dict[str, bytes]:
    return {str(name): (root / name).read_bytes() for name in fs.tree_files(root)}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what is copied."""
    lengths: list[int] = []
    really: Callable[[Path, int, int, int, int], int] = transfer.append_part

    def recorded(path: Path, old: int, new: int, at: int, end: int) -> int:
        lengths.append(really(path, old, new, at, end))
        return lengths[-1]

    monkeypatch.setattr(transfer, "append_part", recorded)
    return lengths


def test_a_file_that_was_begun_again_since_the_last_copy_moves_to_the_pieces(
    first: Path, second: Path, written: list[int]
) -> None:
    """The checkpoint from which the segment resumed was not copied."""
    old = put(first, "log", b"one\n" * 10)
    assert moved(first, second).copy([old]) == []
    piece = put(first, "log", b"one\n" * 12, piece=5)
    new = put(first, "log", b"two\n" * 3)
    written.clear()

    assert moved(first, second).copy([new, piece], [old]) == []

    assert there(second) == {"output/log": b"two\n" * 3, "pieces/000005/log": b"one\n" * 12}
    assert OutputPlace(second).lacking([old]) == []
    assert sum(written) == 8 + 12


def test_a_file_that_is_begun_again_and_not_there_yet_is_moved_and_not_copied(
    first: Path, second: Path, written: list[int]
) -> None:
    old = put(first, "log", b"one\n" * 10)
    moved(first, second).copy([old])
    piece = put(first, "log", b"one\n" * 10, piece=5)
    (first / "output/log").unlink()
    written.clear()

    assert moved(first, second).copy([piece], [old]) == []

    assert there(second) == {"pieces/000005/log": b"one\n" * 10}
    assert not written


def test_what_was_a_file_and_is_a_folder_now_and_the_other_way_is_kept_for_the_checkpoint_that_is_shown(
    first: Path, second: Path
) -> None:
    old = [put(first, "a", b"a file"), put(first, "b/c", b"in a folder")]
    moved(first, second).copy(old)
    (first / "output/a").unlink()
    (first / "output/b/c").unlink()
    (first / "output/b").rmdir()
    new = [put(first, "a/d", b"in a folder now"), put(first, "b", b"a file now")]

    again = moved(first, second)
    assert again.copy(new, old) == []
    assert OutputPlace(second).lacking([*old, *new]) == []
    again.drop_unneeded(new)

    assert there(second) == {"output/a/d": b"in a folder now", "output/b": b"a file now"}


def test_a_head_that_counts_frames_is_that_of_the_checkpoint(first: Path, second: Path, written: list[int]) -> None:
    old = put(first, "run.dcd", b"0001" + b"x" * 96, head=b"0001")
    moved(first, second).copy([old])
    new = put(first, "run.dcd", b"0002" + b"x" * 196, head=b"0002")
    (first / "output/run.dcd").write_bytes(b"0003" + b"x" * 296)  # the program works
    written.clear()

    assert moved(first, second).copy([new], [old]) == []

    assert there(second)["output/run.dcd"] == b"0002" + b"x" * 196
    assert sum(written) == 100


def test_after_a_fall_back_what_differs_is_copied_again(first: Path, second: Path, written: list[int]) -> None:
    kept, newer = put(first, "table", b"1\n2\n"), put(first, "table", b"1\n2\n3\n4\n")
    moved(first, second).copy([newer])
    other = put(first, "table", b"1\n2\nthree\n")
    written.clear()

    assert moved(first, second).copy([other], [kept, newer]) == []

    assert there(second) == {"output/table": b"1\n2\nthree\n"}
    assert OutputPlace(second).lacking([kept]) == []
    assert sum(written) == 6


def test_an_append_that_a_crash_tore_is_cut_and_copied_again(first: Path, second: Path, written: list[int]) -> None:
    old = put(first, "traj", b"frame " * 10)
    moved(first, second).copy([old])
    with (second / "output/traj").open("ab") as torn:
        torn.write(bytes(40))
    new = put(first, "traj", b"frame " * 20)
    written.clear()

    assert moved(first, second).copy([new], [old]) == []

    assert there(second) == {"output/traj": b"frame " * 20}
    assert sum(written) == 60


def test_a_file_that_the_program_has_written_again_is_named_and_nothing_of_it_is_copied(
    first: Path, second: Path
) -> None:
    lost, kept = put(first, "status", b"one"), put(first, "table", b"1\n")
    (first / "output/status").write_bytes(b"two")

    assert moved(first, second).copy([lost, kept]) == ["status"]

    assert there(second) == {"output/table": b"1\n"}


def test_a_folder_that_is_a_link_at_the_target_is_not_written_into(first: Path, second: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (second / "output").mkdir()
    os.symlink(tmp_path / "others", second / "output/deep")

    with pytest.raises(Exception, match="a link to"):
        moved(first, second).copy([put(first, "deep/table", b"1\n")])

    assert there(tmp_path / "others") == {}
