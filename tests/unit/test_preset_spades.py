"""The preset of SPAdes: which state it names, and what it refuses."""

from pathlib import Path

import pytest
from support.command_jobs import command_run

from unbroken.cli.init_command import choose
from unbroken.errors import ConfigError

LINE = ["spades.py", "-1", "reads/a_1.fq", "-2", "reads/a_2.fq", "-t", "4", "-o", "./out/asm/"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reads").mkdir()
    for name in ("a_1.fq", "a_2.fq"):
        (tmp_path / "reads" / name).write_text("@r\nA\n+\nI\n")
    return tmp_path


def test_its_state_is_the_output_folder_at_the_end_of_a_stage(folder: Path) -> None:
    run = command_run(base=folder, preset="spades", start=["nice", *LINE])

    assert run.settings["inputs"] == ("reads/a_1.fq", "reads/a_2.fq")
    assert run.settings["start"][:5] == ("nice", "spades.py", "-1", "a_1.fq", "-2")
    assert run.settings["resume"] == ("nice", "spades.py", "--continue", "-o", "out/asm")
    assert run.settings["files"][:2] == ("out/asm/**", "!out/asm/spades.log")
    assert run.settings["saved_marker"] == "out/asm/pipeline_state/stage_*|out/asm/K*/saves/checkpoint.dat"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (LINE[:-2], "type its output folder"),
        ([*LINE[:-1], "/scratch/asm"], "type its output folder"),
        ([*LINE, "--continue"], "found '--continue': unbroken types it at each resume"),
        ([*LINE, "--restart-from", "k33"], "found '--restart-from': unbroken types it"),
        ([*LINE, "--checkpoints", "last"], "found '--checkpoints last': SPAdes removes the one before"),
        ([*LINE[:1], "--dataset", "all.yaml", *LINE[-2:]], "found '--dataset': unbroken does not see the reads"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused(folder: Path, words: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        command_run(base=folder, preset="spades", start=words)

    assert any(why in line for line in error.value.mistakes), error.value.mistakes


def test_init_knows_its_command_line(folder: Path) -> None:
    assert choose(folder, LINE).starter.settings[0].startswith("preset: spades")
