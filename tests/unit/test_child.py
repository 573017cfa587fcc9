import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import is_alive, until

from longhaul import child
from longhaul.errors import SegmentError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_both_outputs_are_added_to_the_log(log: Path) -> None:
    log.write_text("before\n")
    program = child.start(["sh", "-c", "echo out; echo err >&2; exit 7"], {}, log)

    assert program.wait(30) == 7
    assert log.read_text() == "before\nout\nerr\n"


def test_the_program_gets_our_environment_and_its_own(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "a")

    child.start(["sh", "-c", 'echo "$OURS $ITS"'], {"ITS": "b"}, log).wait(30)

    assert log.read_text() == "a b\n"


def test_the_program_reads_nothing_from_our_terminal(log: Path) -> None:
    assert child.start(["sh", "-c", "read x"], {}, log).wait(30) == 1


@pytest.mark.parametrize("command", [["/does/not/exist", "now"], ["/"]])
def test_a_program_that_cannot_be_started_is_named(command: list[str], log: Path) -> None:
    with pytest.raises(SegmentError, match=f"cannot start {command[0]}"):
        child.start(command, {}, log)


def test_a_running_program_has_no_exit_code(log: Path) -> None:
    program = child.start(["sleep", "60"], {}, log)
    code = program.wait(0)
    program.kill()

    assert code is None
    assert program.wait(30) == -signal.SIGKILL


def test_it_runs_in_a_session_of_its_own(log: Path) -> None:
    program = child.start(["sleep", "60"], {}, log)
    session = os.getsid(program.pid)
    program.kill()
    program.wait(30)

    assert session == program.pid


def test_term_reaches_the_main_process_alone_and_kill_its_workers_too(log: Path, tmp_path: Path) -> None:
    text = "trap 'exit 3' TERM; sleep 1000 & echo $! > worker; while :; do sleep 0.02; done"
    program = child.start(["sh", "-c", f"cd {tmp_path}; {text}"], {}, log)
    worker = int(until(lambda: (tmp_path / "worker").exists() and (tmp_path / "worker").read_text().strip()))  # type: ignore[call-overload]
    program.terminate()
    code = program.wait(30)
    survived = is_alive(worker)
    program.kill()

    assert (code, survived) == (3, True)
    until(lambda: not is_alive(worker))


def test_ending_what_has_ended_does_no_harm(log: Path) -> None:
    program = child.start(["true"], {}, log)
    program.wait(30)

    program.terminate()
    program.kill()

    assert program.wait(0) == 0


def test_the_program_dies_with_us(tmp_path: Path) -> None:
    text = (
        "import sys; from pathlib import Path; from longhaul import child\n"
        "print(child.start(['sleep', '1000'], {}, Path(sys.argv[1])).pid, flush=True); input()"
    )
    us = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / "log")], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert us.stdout is not None
    pid = int(us.stdout.readline())
    was_alive = is_alive(pid)
    us.kill()
    us.communicate()

    assert was_alive
    until(lambda: not is_alive(pid))


def test_a_command_alone_is_itself() -> None:
    assert child.entered(["prog", "a b"], [], []) == ["prog", "a b"]


def test_a_prefix_comes_first() -> None:
    assert child.entered(["prog"], [], ["apptainer", "exec", "x.sif"]) == ["apptainer", "exec", "x.sif", "prog"]


def test_words_of_a_command_never_become_part_of_the_modules_shell_text(log: Path, tmp_path: Path) -> None:
    words = ["printf", "%s\\n", "$(touch harm)", "a 'b'", '"', ";"]
    text = child.entered(words, ["good/1.0; touch harm"], [])
    text[3] = "module() { shift; printf 'loaded %s\\n' \"$@\"; }; " + text[3]
    text.remove("-l")

    child.start([shutil.which("bash") or "bash", *text[1:]], {}, log).wait(30)

    assert log.read_text().splitlines() == ["loaded good/1.0; touch harm", "$(touch harm)", "a 'b'", '"', ";"]
