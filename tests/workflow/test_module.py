"""unbroken imported as a module by another workflow: the snippet of docs/module.md, as it stands there."""

import re
import shutil
import subprocess

import pytest
import yaml
from support.workdir import BIN, ROOT, WorkDir, until

from unbroken.store.history import EndKind

PAGE = ROOT / "docs" / "module.md"


@pytest.fixture
def importing(work: WorkDir) -> WorkDir:
    """A workflow with the files of the page."""
    for name, text in re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        work.write(name, text)
    shutil.copytree(ROOT / "profiles" / "default", work.root / "profiles" / "default")
    work.snakefile = work.root / "workflow" / "Snakefile"
    return work


def set_run(work: WorkDir, segments: int, **settings: object) -> None:
    """Replaces the numbers of the page's run."""
    run = {"engine": "toy", "segments": segments, "segment_minutes": 0.001, "settings": settings}
    work.write("config/config.yaml", yaml.safe_dump({"unbroken": {"runs": {"demo": run}}}))


def test_the_snippet_of_the_page_runs_to_its_end(importing: WorkDir, whole) -> None:
    before, done, after = importing.plan(), importing.snakemake(), importing.plan()

    assert (before, done.code, after) == (5, 0, 0)
    assert importing.final("demo") == whole(300)
    last = (importing.root / "results" / "last_value.txt").read_text()
    assert importing.final("demo")["trace.csv"].decode().endswith(f"\n{last}")


def test_the_snippet_has_the_usual_layout(importing: WorkDir) -> None:
    snakefmt = [str(BIN / "snakefmt"), "--check", "--line-length", "120", str(importing.snakefile)]

    assert subprocess.run(snakefmt, capture_output=True).returncode == 0


def test_the_command_line_finds_the_runs_below_their_key(importing: WorkDir) -> None:
    assert importing.unbroken("status").text.splitlines()[-1] == "demo: has not started; type: snakemake"


def test_a_killed_driver_goes_on(importing: WorkDir, whole) -> None:
    set_run(importing, segments=2, goal=150, step_seconds=0.01, save_steps=20)
    text = (importing.root / "config/config.yaml").read_text()
    importing.write("config/config.yaml", text.replace("0.001", "2"))
    importing.start()
    until(lambda: importing.saved("demo") >= 40)
    importing.kill_everything()

    done = importing.snakemake()

    assert done.code == 0
    assert [attempt.kind for attempt in importing.history("demo")] == [EndKind.DIED, EndKind.FINISHED]
    assert (importing.root / "results" / "last_value.txt").read_text().startswith("150,")


def test_a_run_short_of_its_goal_says_what_to_type_and_then_goes_on(importing: WorkDir) -> None:
    set_run(importing, segments=1, goal=2, step_seconds=0)

    short = importing.snakemake()
    set_run(importing, segments=2, goal=2, step_seconds=0)
    planned, done = importing.plan(), importing.snakemake()

    assert short.code == 1
    assert short.lines("unbroken: ") == [
        "unbroken: demo: 1 of 2 steps, all 1 segments used; set segments: 2 and start again"
    ]
    assert (planned, done.code, done.lines("unbroken: ")) == (1, 0, [])
    assert (importing.root / "results" / "last_value.txt").read_text().startswith("2,")


def test_a_mistake_in_the_inner_configuration_is_one_line(importing: WorkDir) -> None:
    set_run(importing, segments=0, goal=2)

    done = importing.snakemake()

    assert done.code == 1
    assert done.lines("unbroken: ") == [
        "unbroken: runs.demo.segments: found 0, allowed: a whole number from 1 to 99999"
    ]
    assert not (importing.root / "results").exists()


def test_a_run_that_does_not_exist_is_named(importing: WorkDir) -> None:
    text = importing.snakefile.read_text()
    importing.snakefile.write_text(text.replace('targets("demo")', 'targets("dmo")'))

    done = importing.snakemake()

    assert done.code == 1
    assert "no run is named 'dmo', allowed: demo" in done.text
