"""What a line tells somebody to open, for somebody who stands elsewhere."""

from pathlib import Path

import pytest

from unbroken.plan.elsewhere import from_here


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("results: results/a/final", "results: ../work/results/a/final"),  # which is not there yet
        ("log: logs/a/001.log", "log: ../work/logs/a/001.log"),
        ("KeyError: 'results/b/x'", "KeyError: 'results/b/x'"),
        ("no results/nothing", "no results/nothing"),
        ("type: unbroken accept a", "type: unbroken accept -d ../work a"),
    ],
)
def test_paths_of_runs_that_there_are_begin_with_the_folder_that_was_typed(
    tmp_path: Path, said: str, read: str
) -> None:
    (tmp_path / "Snakefile").touch()
    (tmp_path / "results/a").mkdir(parents=True)
    (tmp_path / "logs/a").mkdir(parents=True)

    assert from_here(said, Path("../work"), tmp_path) == read
