"""`unbroken exec --preset`: what a program that a preset knows is given."""

import subprocess

import pytest
from support.exec_calls import Called

pytestmark = pytest.mark.process
PRESET = """
title: a line
programs: [lines]
settings:
  start: [sh, lines]
  files: [state]
equal: bytes
"""


@pytest.mark.parametrize(("of_preset", "expected"), [("", "3"), ("  environment: {OMP_NUM_THREADS: 2}\n", "2")])
def test_the_number_of_threads_is_that_of_the_user_or_of_the_preset(called: Called, of_preset, expected) -> None:
    folder = called.folder / "config/presets"
    folder.mkdir(parents=True)
    (folder / "lines.yaml").write_text(PRESET.replace("equal", f"{of_preset}equal"))
    (called.folder / "lines").write_text("echo $OMP_NUM_THREADS > state\n")

    done = called.call(
        "--preset", "lines", "--inputs", "lines", program=("sh", "lines"), environment={"OMP_NUM_THREADS": "3"}
    )

    assert done.returncode == 0, done.stderr
    assert (called.folder / "state").read_text().split() == [expected]


@pytest.mark.parametrize(
    ("line", "expected"), [("echo it has converged", (0, "finished")), ("echo FATAL: no mesh", (1, "FATAL: no mesh"))]
)
def test_what_it_prints_into_a_file_is_known_too(called: Called, line: str, expected: tuple[int, str]) -> None:
    """As in a batch job, whose output is one."""
    folder = called.folder / "config/presets"
    folder.mkdir(parents=True)
    patterns = "  exit_paused: [0]\n  finished_pattern: converged\n  error_pattern: 'FATAL.*'\n"
    (folder / "lines.yaml").write_text(PRESET.replace("equal", f"{patterns}equal"))
    (called.folder / "lines").write_text(f"echo 1 > state; {line}\n")

    words = called.words("--preset", "lines", "--inputs", "lines", program=("sh", "lines"))
    with (called.folder / "job.out").open("w") as printed:
        done = subprocess.run(words, cwd=called.folder, stdout=printed, stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, expected[1] in done.stderr) == (expected[0], True), done.stderr
