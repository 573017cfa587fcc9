import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.dmtcp_here import PROGRAMS

# Counts in memory alone, prints, and writes its result at the end; knows nothing of files to go on from.
PROGRAM = """
import sys, time
from pathlib import Path

here, word, out = Path(sys.argv[1]), Path(sys.argv[2]).read_text(), sys.argv[3]
total = 0
for number in range(1, 21):
    total += number
    print("at", number, flush=True)
    (here / f"at-{number}").touch()
    while (here / f"rest-at-{number}").exists():
        time.sleep(0.02)
if not (here / "without-result").exists():
    Path(out).write_text(f"{word} {total}\\n")
"""
PRINTED = "".join(f"at {number}\n" for number in range(1, 21))


@pytest.fixture
def counted(called, monkeypatch):
    (called.folder / "program.py").write_text(PROGRAM)
    (called.folder / "word.txt").write_text("the sum is")
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    return called


def words(counted, *options: str) -> list[str]:
    program = [sys.executable, "program.py", str(counted.folder), "word.txt", "out/deep/sum.txt"]
    known = ("--name", "count", "--engine", "dmtcp", "--outputs", "out/deep/sum.txt")
    return [sys.executable, "-m", "unbroken", "exec", *known, *options, "--", *program]


def call(counted, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(counted, *options), cwd=counted.folder, text=True, capture_output=True, stdin=-3, timeout=600
    )


def pause_at(counted, number: int, *options: str) -> None:
    counted.rest_at(number)
    process = subprocess.Popen(words(counted, *options), cwd=counted.folder, stdout=-3, stderr=-3, stdin=-3)
    counted.started.append(process)
    counted.wait_until((counted.folder / f"at-{number}").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 85
    counted.go_on()


def test_a_program_without_files_of_its_own_goes_on_in_its_memory(counted):
    pause_at(counted, 7, "--stdout", "said.txt")
    done = call(counted, "--stdout", "said.txt")

    assert done.returncode == 0, done.stderr
    assert (counted.folder / "out/deep/sum.txt").read_text() == "the sum is 210\n"
    assert (counted.folder / "said.txt").read_text() == PRINTED
    assert "resuming from" in done.stderr


def test_it_finds_its_inputs_by_their_last_names(counted):
    (counted.folder / "in").mkdir()
    (counted.folder / "in/word.txt").write_text("together")
    (counted.folder / "word.txt").unlink()

    assert call(counted, "--inputs", "in/word.txt").returncode == 0
    assert (counted.folder / "out/deep/sum.txt").read_text() == "together 210\n"


def test_its_results_are_put_back_and_nothing_is_computed(counted):
    assert call(counted).returncode == 0
    (counted.folder / "out/deep/sum.txt").unlink()
    (counted.folder / "at-1").unlink()

    again = call(counted)

    assert "put back: out/deep/sum.txt" in again.stderr
    assert (counted.folder / "out/deep/sum.txt").read_text() == "the sum is 210\n"
    assert not (counted.folder / "at-1").exists()


def test_an_output_may_be_a_folder(counted):
    text = "import os; os.makedirs('made/in'); open('made/in/a', 'w').write('1'); open('made/b', 'w').write('2')"
    known = ("--name", "made", "--engine", "dmtcp", "--outputs", "made")
    line = [sys.executable, "-m", "unbroken", "exec", *known, "--", sys.executable, "-c", text]

    done = subprocess.run(line, cwd=counted.folder, text=True, capture_output=True, stdin=-3, timeout=600)

    assert done.returncode == 0, done.stderr
    assert (counted.folder / "made/in/a").read_text() + (counted.folder / "made/b").read_text() == "12"


def test_an_output_that_it_does_not_make_is_named(counted):
    (counted.folder / "without-result").touch()

    done = call(counted)

    assert done.returncode == 1
    assert "--outputs: out/deep/sum.txt is none of the results" in done.stderr


@pytest.mark.parametrize("name", ["/tmp/sum.txt", "../sum.txt"])
def test_an_output_outside_of_the_folder_is_refused(counted, name):
    done = call(counted, "--outputs", name)

    assert done.returncode == 1
    assert f"--outputs: found {name}, allowed: paths below the folder where it is called" in done.stderr


def test_where_there_is_no_dmtcp_it_says_what_to_type(counted, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    done = call(counted)

    assert done.returncode == 1
    assert "dmtcp_launch: not found on the PATH; load DMTCP's module" in done.stderr
    assert not Path(counted.folder / "out").exists()
