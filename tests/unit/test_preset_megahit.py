"""The preset of MEGAHIT: what stands for its command line, and what is refused before anything starts."""

from pathlib import Path

import pytest

from unbroken.engines.files.states import matches
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.store.run import RunSpec


def run_of(folder: Path, *words: str) -> RunSpec:
    for name in ("a.fq", "b.fq", "c.fq"):
        (folder / name).touch()
    settings = {"preset": "megahit", "start": ["megahit", *words]}
    runs = {"a": {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": settings}}
    run, *_ = read_checked_runs({"runs": runs}, folder)
    return run


@pytest.mark.parametrize(
    ("words", "output"), [(("-o", "./asm/"), "asm"), (("--out-dir=asm",), "asm"), ((), "megahit_out")]
)
def test_its_output_folder_is_its_state_and_its_reads_are_inputs(
    tmp_path: Path, words: tuple[str, ...], output: str
) -> None:
    found = run_of(tmp_path, "-1", "a.fq", "-2", "b.fq", "-r", "c.fq", *words).settings

    assert set(found["inputs"]) == {"a.fq", "b.fq", "c.fq"}
    assert found["resume"] == ("megahit", "--continue", "-o", output)
    assert matches(found["files"], f"{output}/tmp/k21/21.edges.0")
    assert not matches(found["files"], f"{output}/log")
    assert matches(found["files"], found["saved_marker"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-r", "a.fq", "--tmp-dir", "/scratch"], "a folder there that is no part of the run"),
        (["-r", "a.fq", "--continue"], "unbroken types it at each resume"),
        (["-r", "a.fq", "-f"], "it begins again from zero"),
        (["-r", "a.fq", "--force"], "it begins again from zero"),
        (["-1", "a.fq,b.fq", "-2", "c.fq"], "unbroken does not see files in a list"),
        (["-r", "a.fq", "-o", "/scratch/asm"], "below the one where it is called"),
        (["-r", "a.fq", "-o", "../asm"], "below the one where it is called"),
    ],
)
def test_what_cannot_be_resumed_right_is_refused_with_the_reason(tmp_path: Path, words: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_of(tmp_path, *words)

    assert why in error.value.mistakes[0]
