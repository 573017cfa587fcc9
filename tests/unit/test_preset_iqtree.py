"""The preset of IQ-TREE: how an alignment is found, and which command lines are refused."""

from pathlib import Path

import pytest
from support.preset_cases import CASES

from unbroken.cli.init_command import choose
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "genes.phy").write_bytes((CASES / "iqtree/genes.phy").read_bytes())
    return tmp_path


def run_of(folder: Path, *line: str) -> RunSpec:
    settings = {"preset": "iqtree", **({"start": list(line)} if line else {})}
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": settings}
    (found,) = read_checked_runs({"runs": {"a": run}}, folder)
    return found


def test_init_finds_an_alignment(folder: Path) -> None:
    (folder / "notes.phy").write_text("4 genes\n")

    found = choose(folder, []).starter

    assert "preset: iqtree" in found.settings[0]
    assert found.settings[1] == "input: genes.phy"
    assert run_of(folder).settings["start"] == ("iqtree2", "-s", "genes.phy", "-T", "{threads}", "-seed", "1")


def test_an_alignment_of_another_format_is_named_by_its_option(folder: Path) -> None:
    (folder / "data").mkdir()
    for name in ("data/genes.fasta", "data/parts.nex"):
        (folder / name).touch()

    found = run_of(folder, "iqtree2", "-s", "data/genes.fasta", "-p", "data/parts.nex", "--seed", "7").settings

    assert found["start"] == ("iqtree2", "-s", "genes.fasta", "-p", "parts.nex", "--seed", "7")
    assert found["inputs"] == ("data/genes.fasta", "data/parts.nex")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "add -seed 1"),
        (["-seed", "1", "-redo"], "begin again"),
        (["-seed", "1", "--undo"], "begin again"),
        (["-seed", "1", "-T", "AUTO"], "type a number"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_the_reason(folder: Path, options: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        run_of(folder, "iqtree2", "-s", "genes.phy", *options)
