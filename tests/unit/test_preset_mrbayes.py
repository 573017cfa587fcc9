"""The preset of MrBayes: how an input is found, changed to resume, and what of it is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.making import PASSPORT
from support.preset_cases import CASES

from unbroken.cli.init_command import choose
from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled, seed_after
from unbroken.engines.files.settings import When, program_of
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.run import RunSpec

TEXT = (CASES / "mrbayes/genes.nex").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "genes.nex").write_text(TEXT)
    return tmp_path


def run_of(folder: Path) -> RunSpec:
    settings = {"preset": "mrbayes", "input": "genes.nex"}
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": settings}
    (found,) = read_checked_runs({"runs": {"a": run}}, folder)
    return found


def test_init_finds_the_file_with_a_block_of_mrbayes(folder: Path) -> None:
    (folder / "trees.nex").write_text("#NEXUS\nbegin trees;\nend;\n")

    found = choose(folder, []).starter

    assert "preset: mrbayes" in found.settings[0]
    assert found.settings[1] == "input: genes.nex"


def test_where_it_resumes_it_appends_and_draws_other_numbers(folder: Path) -> None:
    program, text = program_of(run_of(folder)), TEXT
    assert all(edit.when is When.RESUME for edit in program.edits)

    for edit in program.edits:
        text = edited(text, edit, filled(edit.put, {"seed": "123"})) or ""

    assert "set autoclose=yes nowarn=yes seed=123 swapseed=123;" in text
    assert "\n  mcmc append=yes;" in text
    assert text.count("append") == 1


def test_each_checkpoint_has_a_seed_of_its_own_and_always_the_same(tmp_path: Path) -> None:
    def seed(generations: float, identity: str) -> int:
        progress = replace(PASSPORT.progress, done=generations)
        return seed_after(Checkpoint(tmp_path, replace(PASSPORT, progress=progress, identity=identity)))

    seeds = [seed(generations, identity) for generations in (2000, 4000, 1e9) for identity in ("a", "b")]

    assert len(set(seeds)) == 6
    assert all(0 < each < 2**31 for each in seeds)
    assert seed(2000, "a") == seeds[0]


def test_it_is_done_when_all_its_commands_are_and_not_at_a_generation(folder: Path) -> None:
    assert run_of(folder).goal is None


def test_a_file_that_is_executed_is_an_input_too(folder: Path) -> None:
    (folder / "data.nex").write_text("#NEXUS\nbegin data;\nend;\n")
    (folder / "genes.nex").write_text("begin mrbayes;\n  execute data.nex;\n  mcmc;\nend;\n")

    assert run_of(folder).settings["inputs"] == ("genes.nex", "data.nex")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("  mcmc;", "  mcmc append=yes;", "leave it out"),
        ("checkpoint=yes", "checkpoint=no", "nothing to resume from"),
        ("  mcmc;", "  mcmc;\n  ss ngen=100;", "stepping-stone"),
        ("  mcmc;", "  mcmc;\n  mcmc ngen=10;", "two files"),
        ("  mcmc;", "  [mcmc;]", "one on a line"),
        ("  sump;", "  sump; mcmc;", "line of its own"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_the_reason(folder: Path, old: str, new: str, why: str) -> None:
    assert old in TEXT
    (folder / "genes.nex").write_text(TEXT.replace(old, new))

    with pytest.raises(ConfigError, match=why):
        run_of(folder)
