"""The preset of Canu: which state it names, and what it refuses."""

from pathlib import Path

import pytest
from support.command_jobs import command_run

from unbroken.cli.init_command import choose
from unbroken.errors import ConfigError

LINE = ["canu", "-p", "asm", "-d", "out", "genomeSize=1m", "useGrid=false", "-pacbio-hifi", "reads/a.fa", "reads/b.fa"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reads").mkdir()
    for name in ("a.fa", "b.fa"):
        (tmp_path / "reads" / name).write_text(">r\nA\n")
    return tmp_path


def test_its_state_is_its_folder_each_time_that_one_of_its_programs_starts(folder: Path) -> None:
    run = command_run(base=folder, preset="canu", start=LINE)

    assert run.settings["inputs"] == ("reads/a.fa", "reads/b.fa")
    assert run.settings["start"] == (*LINE[:-2], "a.fa", "b.fa")
    assert (run.settings["files"], run.settings["saved_marker"]) == (("out/**",), "out/canu-logs/*")
    assert choose(folder, LINE).starter.settings[0].startswith("preset: canu")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([word for word in LINE if word != "useGrid=false"], "Canu would submit jobs of its own and exit"),
        ([word if word != "useGrid=false" else "useGrid=remote" for word in LINE], "Canu would submit jobs of its own"),
        ([word for word in LINE if word not in ("-d", "out")], "type its folder"),
        ([word if word != "out" else "/scratch/out" for word in LINE], "type its folder"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused(folder: Path, words: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        command_run(base=folder, preset="canu", start=words)

    assert any(why in line for line in error.value.mistakes), error.value.mistakes
