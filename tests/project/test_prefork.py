"""What tests start by a fork is what a new process would be: tests/support/prefork.py."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.prefork import Forked, Server, server
from support.toyrun import until

from unbroken.engines.testing.chain import is_alive

pytestmark = pytest.mark.process

LOADED = ("json",)
TELL = """
import json, os, sys
print(json.dumps({
    "words": sys.argv[1:], "folder": os.getcwd(), "told": os.environ.get("TOLD"), "home": os.environ.get("HOME"),
    "is_first_of_a_session": os.getsid(0) == os.getpid(), "is_main": __name__ == "__main__",
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
}))
print("to the other stream", file=sys.stderr)
"""


def start(tmp_path: Path, program: str, *words: str) -> Forked:
    (tmp_path / "program.py").write_text(program)
    environment = {"PATH": os.environ["PATH"], "TOLD": "this"}
    with (tmp_path / "output").open("ab") as output:
        return server(LOADED).start([str(tmp_path / "program.py"), *words], tmp_path, environment, output)


def test_a_forked_program_has_its_own_folder_environment_words_streams_and_session(tmp_path: Path) -> None:
    code = start(tmp_path, TELL, "a", "b c").wait(60)

    first, *rest = sorted((tmp_path / "output").read_text().splitlines(), reverse=True)
    assert code == 0
    assert {first, *rest} >= {"to the other stream"}
    told = json.loads(next(line for line in (first, *rest) if line.startswith("{")))
    assert told == {
        "words": ["a", "b c"],
        "folder": str(tmp_path),
        "told": "this",
        "home": None,
        "is_first_of_a_session": True,
        "is_main": True,
        "open": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("", 0),
        ("raise SystemExit(85)", 85),
        ("raise SystemExit('a last word')", 1),
        ("raise ValueError", 1),
        ("import os; os._exit(7)", 7),
        ("import atexit, os; atexit.register(os._exit, 9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_a_forked_program_ends_with_the_exit_code_that_it_would_have(tmp_path: Path, program: str, code: int) -> None:
    assert start(tmp_path, program).wait(60) == code


def test_a_forked_program_is_waited_for_and_can_be_signalled(tmp_path: Path) -> None:
    program = start(tmp_path, "import signal\nopen('ready', 'w').close()\nsignal.pause()")
    until((tmp_path / "ready").exists)

    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    assert program.poll() is None
    program.terminate()

    assert program.wait(60) == program.poll() == -signal.SIGTERM
    program.kill()  # of one that is gone, nothing


def test_each_fork_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        assert start(tmp_path, "import random; print(random.random())").wait(60) == 0

    one, other = (tmp_path / "output").read_text().split()
    assert one != other


def test_a_server_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    command = "from support.prefork import Server; print(Server(['json'])._process.pid)"
    folder = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", command], env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True
    )

    until(lambda: not is_alive(int(done.stdout)))


def test_the_end_of_a_server_is_an_error_and_no_wait(tmp_path: Path) -> None:
    made = Server(["json"])
    made._process.kill()
    made._process.wait()

    with (tmp_path / "output").open("ab") as output, pytest.raises((RuntimeError, OSError)):
        made.start(["program.py"], tmp_path, {}, output).wait(60)
    made.close()
