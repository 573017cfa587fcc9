"""What unbroken tells somebody to type or to open, typed and opened as it stands, from another folder."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.workdir import BIN, ROOT, Done, WorkDir, counting, one_step_segments

from unbroken.cli.init_command import SNAKEFILE

TYPED = re.compile(r"(?:\b(?:type|with|then):|, or) ((?:cd \S+ && )?(?:snakemake|unbroken)\b[^;(\n]*)", re.M)
OPENED = re.compile(r"[^\s;,:'\"()]*\b(?:logs|results)/[^\s;,:'\"()]*")
NOT_THERE = re.compile(r"not found|No such file|no run is named|no such run|Traceback|Usage")


@pytest.fixture(params=["the installed workflow", pytest.param("a workflow of its own", marks=pytest.mark.slow)])
def told(request: pytest.FixtureRequest, work: WorkDir, tmp_path: Path) -> WorkDir:
    """Runs in every state that has something to type; `told.root` is not where the user stands."""
    (work.root / "data.txt").write_text("one")
    crashing = {"engine": "command", "segments": 2, "segment_minutes": 5}
    crashing["settings"] = {"start": ["sh", "-c", "exit 7"], "files": ["state"]}
    work.configure(
        {
            "done": one_step_segments(segments=3, goal=2),
            "paused": one_step_segments(segments=3, goal=2),
            "used": one_step_segments(segments=1, goal=2),
            "crashed": crashing,
            "changed": counting("--steps", "100", inputs=["data.txt"], segments=9, segment_minutes=5),
            "fresh": one_step_segments(segments=4, goal=2),
        }
    )
    asked = [
        "done/segments/003",
        "paused/segments/001",
        "used/segments/001",
        "crashed/segments/001",
        "changed/segments/001",
    ]
    work.snakemake(*(f"results/{name}.json" for name in asked))
    (work.root / "data.txt").write_text("two")
    if request.param == "a workflow of its own":
        work.write("Snakefile", SNAKEFILE)
        shutil.copytree(ROOT / "profiles" / "default", work.root / "profiles" / "default")
    (tmp_path / "elsewhere").mkdir()
    return work


def typed(work: WorkDir, line: str) -> Done:
    """The line in a shell of somebody who stands elsewhere, with the console as it is."""
    environment = {**work.environment(), "PATH": f"{BIN}:{work.environment()['PATH']}", "UNBROKEN_CONSOLE": ""}
    there = work.root.parent / "elsewhere"
    done = subprocess.run(
        ["bash", "-c", line], cwd=there, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return Done(done.returncode, done.stdout)


def test_each_line_can_be_typed_and_each_path_opened_from_another_folder(told: WorkDir) -> None:
    elsewhere = told.root.parent / "elsewhere"
    begin = [
        "unbroken status -d ../work crashed changed paused used fresh",
        "unbroken run -d ../work",
        "unbroken accept fresh -d ../work",
        "unbroken accept paused -d ../work",
        "unbroken back used -d ../work",
    ]

    said = {line: typed(told, line).text for line in begin}

    told_to_type = {found.strip() for text in said.values() for found in TYPED.findall(text)}
    told_to_open = {found for text in said.values() for found in OPENED.findall(text) if "{" not in found}
    start = "cd ../work && snakemake" if (told.root / "Snakefile").exists() else "unbroken run -d ../work"
    assert told_to_type == {
        start,
        "unbroken accept -d ../work changed",
        "unbroken restart -d ../work changed",
        "unbroken restart -d ../work used",
    }, said
    assert len(told_to_open) >= 3, said
    assert [path for path in told_to_open if not (elsewhere / path).exists()] == []
    for line in sorted(told_to_type):
        done = typed(told, line)
        assert not NOT_THERE.search(done.text), f"{line}\n{done.text}"
        # One of the runs crashes, and another one is refused until its change is accepted, which comes first if at all.
        is_right = done.code == 0 or (line == start and re.search(r"paused|runs.changed", done.text))
        assert is_right, f"{line}\n{done.text}"


# Where the workflow lies and what is typed have nothing to do with each other: each of both once.
STARTED = {
    "the installed workflow": "unbroken run -d ../work",
    "a workflow of its own": "snakemake -s {snakefile} --directory ../work",
}


@pytest.mark.parametrize(("told", "line"), STARTED.items(), indirect=["told"], ids=STARTED)
def test_what_a_driver_says_that_was_started_from_another_folder_can_be_opened(told: WorkDir, line: str) -> None:
    (told.root / "data.txt").write_text("one")

    done = typed(told, line.format(snakefile=ROOT / "Snakefile"))

    opened = OPENED.findall(done.text)
    assert "../work/results/paused/final" in opened
    assert any(path.startswith("../work/logs/crashed/") for path in opened)
    assert [path for path in opened if not (told.root.parent / "elsewhere" / path).exists()] == []
