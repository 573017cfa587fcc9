"""A driver beside files that a newer unbroken wrote: one line for each, and the folder of the run is as it was."""

import shutil
from pathlib import Path

import pytest
from support.newer import NEWER, newer_passport, newer_spec
from support.snapshots import snapshot
from support.toy_spec import toy_spec
from support.toyrun import toy_run
from support.workdir import WorkDir, one_step_segments

from unbroken.job.spec import path_of
from unbroken.store.layout import NOTES

KINDS = [kind for kind in NEWER if kind != "archived passport"]  # the toy's checkpoints have no parts


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which two of four segments are done."""
    work = WorkDir(tmp_path_factory.mktemp("half"), words=("--cores", "1"))
    work.configure({"demo": one_step_segments(4, goal=100), "other": one_step_segments(1, goal=100)})
    done = work.snakemake("results/demo/segments/002.json")
    assert done.code == 0, done.text
    return work.root


@pytest.fixture
def work(half_done: Path, tmp_path: Path) -> WorkDir:
    shutil.copytree(half_done, tmp_path / "work", symlinks=True)
    return WorkDir(tmp_path / "work", words=("--cores", "1"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_starts_nothing_beside_what_a_newer_unbroken_wrote(work: WorkDir, kind: str) -> None:
    newer = NEWER[kind](work.places("demo")).relative_to(work.root)
    before = snapshot(work.root / "results")

    done = work.snakemake()

    assert done.code == 1
    (line,) = done.lines("unbroken: ")
    assert line.startswith(f"unbroken: runs.demo: {newer}") and "found format " in line and "Traceback" not in done.text
    assert snapshot(work.root / "results") == before  # neither is `other` begun


def test_each_run_has_its_line_and_a_dry_run_says_the_same(work: WorkDir) -> None:
    newer_passport(work.places("demo"))
    newer_spec(toy_spec(toy_run("other")), work.root)
    before = snapshot(work.root / "results"), snapshot(work.root / NOTES)

    done = work.snakemake("-n")

    assert done.code == 1
    first, second = done.lines("unbroken: ")
    assert "runs.demo: results/demo/checkpoints/" in first
    assert f"runs.other: {path_of('other')}: found format 2, unbroken " in second and " reads 1; " in second
    assert (snapshot(work.root / "results"), snapshot(work.root / NOTES)) == before


def test_once_the_file_is_gone_the_run_goes_on(work: WorkDir) -> None:
    newer = newer_passport(work.places("demo"))
    assert work.snakemake().code == 1
    shutil.rmtree(newer.parent)

    done = work.snakemake()

    assert done.code == 0, done.text
    assert [record.segment for record in work.records("demo")] == [1, 2, 3, 4]
