"""What `status` and the page say of a run's output files, and what `verify` finds of them, for real programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.command_jobs import command_job, command_segment
from support.pages import facts_in
from typer.testing import CliRunner

from unbroken.cli.main import app
from unbroken.engines.files.outputs import bytes_words
from unbroken.report.page import write_report
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder

pytestmark = pytest.mark.process

# Appends three lines to a log, begins another file again, and drops a third.
PROGRAM = """
n=$(cat n 2>/dev/null || echo 0)
date > piece
for i in 1 2 3; do n=$((n + 1)); echo "line $n" >> log; echo $n >> piece; echo $n > x.tmp; done
echo $n > n
"""
SETTINGS: dict[str, object] = {
    "start": ["sh", "-c", PROGRAM],
    "files": ["n"],
    "progress_file": "n",
    "progress_pattern": r"^(\d+)",
    "goal": 9,
    "exit_paused": [0],
    "discard": ["*.tmp"],
}


def segments(
    base: Path, count: int, outcome: EndKind = EndKind.PAUSED, settings: dict[str, object] = SETTINGS
) -> RunFolder:
    """The program's first segments in a working directory with a config."""
    (base / "config").mkdir(exist_ok=True)
    run = {"engine": "command", "segments": 9, "segment_minutes": 1, "settings": settings}
    (base / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))
    for segment in range(1, count + 1):
        record = command_segment(base, settings, segment)
    assert record.kind is outcome
    return command_job(base, settings).places


def typed(base: Path, *words: str) -> tuple[int, str]:
    answer = CliRunner(env={"COLUMNS": "400"}).invoke(app, [*words, "--directory", str(base)])
    return answer.exit_code, answer.output


def row_of(base: Path) -> dict[str, object]:
    (row,) = json.loads(typed(base, "status", "--json")[1])
    return dict(row)


# --- status, and the page ---


def test_status_says_how_much_space_output_takes_and_what_is_dropped(tmp_path: Path) -> None:
    places = segments(tmp_path, 2)

    _, shown = typed(tmp_path, "status")

    first, second = (places.root / "pieces" / "000001" / "piece").stat(), (places.output / "piece").stat()
    size = (places.output / "log").stat().st_size + first.st_size + second.st_size
    assert f"demo: output: 3 files, {bytes_words(size)}; dropped, as `discard` says: *.tmp\n" in shown
    assert row_of(tmp_path)["output"] == {"files": 3, "size_bytes": size, "dropped": ["*.tmp"]}


SIZES = [(0, "0 bytes"), (999, "999 bytes"), (999_600, "1,000 kB"), (3_412_345_678, "3.41 GB"), (12e15, "12,000 TB")]


@pytest.mark.parametrize(("size", "words"), SIZES)
def test_a_size_is_told_in_three_digits(size: float, words: str) -> None:
    assert bytes_words(size) == words


def test_the_page_and_the_table_have_the_doubts_of_a_run(tmp_path: Path) -> None:
    settings = {**SETTINGS, "start": ["sh", "-c", f"[ -e n ] || date > first\n{PROGRAM}"]}
    places = segments(tmp_path, 1, settings=settings)
    (places.output / "first").unlink()
    command_segment(tmp_path, settings, 2)
    assert command_segment(tmp_path, settings, 3).kind is EndKind.FINISHED
    page = tmp_path / "results" / "report.html"

    write_report(tmp_path, Path("config/config.yaml"), (), page)

    (run,) = facts_in(page)["runs"]
    assert run["output"].startswith("output: 4 files, ") and run["output"].endswith("as `discard` says: *.tmp")
    (doubt,) = run["doubts"]
    assert doubt.startswith("first: it was removed or written again after the checkpoint")
    assert row_of(tmp_path)["doubts"] == [doubt]
    assert "finished, with doubts" in typed(tmp_path, "status")[1]


# --- verify ---


def test_verify_finds_outputs_in_pieces_and_in_place_as_they_are_listed(tmp_path: Path) -> None:
    segments(tmp_path, 3, EndKind.FINISHED)

    code, shown = typed(tmp_path, "verify")

    assert (code, shown) == (
        0,
        "2 of 2 checkpoints are whole\n4 of 4 output files are as their newest checkpoint lists them\n",
    )


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _changed(path: Path) -> None:
    path.write_bytes(b"L" + path.read_bytes()[1:])


@pytest.mark.parametrize("done", [False, True], ids=["paused", "finished"])
@pytest.mark.parametrize("name", ["output/log", "pieces/000001/piece"])
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (Path.unlink, "gone; the newest checkpoint lists {size} bytes"),
        (_cut, "found {less} bytes; {size} of the newest checkpoint are listed"),
        (_changed, "found {size} bytes; {size} of the newest checkpoint are listed, with other content"),
    ],
    ids=["gone", "cut", "changed"],
)
def test_verify_names_an_output_that_is_not_as_it_is_listed_and_fails(
    spoil: Callable[[Path], None], found: str, name: str, done: bool, tmp_path: Path
) -> None:
    places = segments(tmp_path, 3 if done else 2, EndKind.FINISHED if done else EndKind.PAUSED)
    path = places.root / name
    size = path.stat().st_size
    spoil(path)

    code, shown = typed(tmp_path, "verify")

    (line,) = [line for line in shown.splitlines() if line.startswith("bad ")]
    assert code == 1
    assert line.startswith(f"bad {path}: {found.format(size=size, less=size - 1)}; put it back from a backup")
    assert shown.splitlines()[-1].endswith("output files are as their newest checkpoint lists them")


def test_a_file_that_grew_behind_the_newest_checkpoint_is_as_listed(tmp_path: Path) -> None:
    places = segments(tmp_path, 2)
    with (places.output / "log").open("a") as file:
        file.write("written behind it\n")

    assert typed(tmp_path, "verify")[0] == 0


def test_an_output_that_a_killed_attempt_has_taken_is_found_in_its_folder(tmp_path: Path) -> None:
    places = segments(tmp_path, 2)
    (places.work / "000009").mkdir()
    places.output.rename(places.work / "000009" / "program")
    good = typed(tmp_path, "verify")
    _cut(places.work / "000009" / "program" / "log")

    code, shown = typed(tmp_path, "verify")

    assert (good[0], code) == (0, 1)
    assert f"bad {places.work / '000009' / 'program' / 'log'}: found " in shown


def test_while_a_job_works_its_outputs_are_not_compared(tmp_path: Path) -> None:
    places = segments(tmp_path, 2)
    (places.output / "log").unlink()

    with lease.take(places.lease, 3, 1.0):
        code, shown = typed(tmp_path, "verify")

    assert code == 0
    assert "demo: its outputs are not compared while a job works on it\n" in shown


def test_a_list_of_outputs_that_cannot_be_read_is_told_with_its_checkpoint(tmp_path: Path) -> None:
    places = segments(tmp_path, 2)
    newest = Store(places.checkpoints).readable()[-1]
    (newest.folder / "unbroken-output" / "list.json").write_text("{")

    code, shown = typed(tmp_path, "verify")
    status_code, _ = typed(tmp_path, "status")

    assert (code, status_code) == (1, 0)
    assert f"bad {newest.folder}: {newest.folder}/unbroken-output/list.json: " in shown
