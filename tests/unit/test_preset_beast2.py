"""The preset of BEAST 2: how an input is found, how it resumes, and what of it is refused."""

import subprocess
from pathlib import Path

import pytest
from support.preset_cases import CASES

from unbroken.cli.init_command import choose
from unbroken.engines.command.placeholders import filled
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec

TEXT = (CASES / "beast2/genes.xml").read_text()
LINE = ["beast2-mcmc", "-seed", "7", "-threads", "1", "genes.xml"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "genes.xml").write_text(TEXT)
    return tmp_path


def run_of(folder: Path, *line: str) -> RunSpec:
    settings = {"preset": "beast2", **({"start": list(line)} if line else {})}
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": settings}
    (found,) = read_checked_runs({"runs": {"a": run}}, folder)
    return found


def test_init_finds_an_input(folder: Path) -> None:
    (folder / "other.xml").write_text('<beast version="1.0">\n')

    found = choose(folder, []).starter

    assert "preset: beast2" in found.settings[0]
    assert found.settings[1] == "input: genes.xml"


@pytest.mark.process
def test_it_resumes_with_what_the_shortest_log_lacks_and_another_seed(folder: Path) -> None:
    """The words of `resume` are a shell script: here it starts `echo` in place of BEAST."""
    (folder / "genes.log").write_text("# log\nSample\tposterior\n0\t-1.5\n41000\t-1.5\n")
    (folder / "genes.trees").write_text("#NEXUS\ntree STATE_0 = (1);\ntree STATE_40000 = (1:9000);\n")
    words = run_of(folder, *LINE).settings["resume"]
    assert isinstance(words, tuple)
    command = ["echo" if word == "beast2-mcmc" else filled(str(word), {"seed": "99"}) for word in words]

    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    assert said.split() == ["-seed", "99", "-threads", "1", "-resume", "genes.xml"]
    assert 'chainLength="460000"' in (folder / "genes.xml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (' chainLength="500000"', "", "only a run of MCMC"),
        ("storeEvery", "sampleEvery", "saves no state"),
        ('spec="MCMC"', 'spec="beast.gss.NS"', "not known to resume"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_the_reason(folder: Path, old: str, new: str, why: str) -> None:
    assert old in TEXT
    (folder / "genes.xml").write_text(TEXT.replace(old, new))

    with pytest.raises(ConfigError, match=why):
        run_of(folder, *LINE)


def test_to_resume_or_to_begin_again_is_not_for_the_command_line(folder: Path) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        run_of(folder, "beast2-mcmc", "-overwrite", "genes.xml")
