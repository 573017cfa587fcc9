import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import skip_or_fail
from support.toyrun import guards_of, until

from unbroken.engines.testing.chain import is_alive
from unbroken.errors import SegmentError
from unbroken.program import process as child

pytestmark = pytest.mark.process


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
    assert program.end(30)
    assert program.wait(0) == 0


# A worker in its own group, one that went to a session of its own, and one that also lost its parents; all deaf.
FAMILY = """
import os, signal, sys, time
from pathlib import Path

def note(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (Path(sys.argv[1]) / name).write_text(str(os.getpid()))
    time.sleep(1000)

if os.fork() == 0:
    note("worker")
if os.fork() == 0:
    os.setsid()
    note("session")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note("orphan")
    os._exit(0)
os.wait()
note("main")
"""
NAMES = {"main", "worker", "session", "orphan"}
# A process of ours that starts the family, and leaves when it is told.
US = """
import sys
from pathlib import Path
from unbroken.program import process as child
program = child.start([sys.executable, "-c", sys.argv[1], sys.argv[2]], {}, Path(sys.argv[2]) / "log")
print(program.pid, flush=True)
sys.stdin.readline()
"""


def family_in(folder: Path) -> dict[str, int]:
    """The processes of the family, once all are there."""
    words = {path.name: path.read_text() for path in folder.iterdir() if path.name in NAMES}
    return {name: int(word) for name, word in words.items() if word} if all(words.values()) else {}


@pytest.fixture
def family(tmp_path: Path, log: Path) -> tuple[child.Child, dict[str, int]]:
    program = child.start([sys.executable, "-c", FAMILY, str(tmp_path)], {}, log)
    pids = until(lambda: len(found := family_in(tmp_path)) == len(NAMES) and found)
    return program, pids  # type: ignore[return-value]


def alive(pids: dict[str, int]) -> set[str]:
    return {name for name, pid in pids.items() if is_alive(pid)}


def test_kill_leaves_nothing_of_a_program_wherever_it_went(family: tuple[child.Child, dict[str, int]]) -> None:
    program, pids = family
    assert alive(pids) == NAMES

    assert program.end(30)
    assert alive(pids) == set()
    assert program.wait(0) == -signal.SIGKILL


@pytest.mark.parametrize("which", ["outer", "inner"])
def test_when_a_guard_is_killed_nothing_is_left(family: tuple[child.Child, dict[str, int]], which: str) -> None:
    program, pids = family
    outer, inner = guards_of(program.pid)

    os.kill({"outer": outer, "inner": inner}[which], signal.SIGKILL)

    assert program.wait(30) == -signal.SIGKILL
    assert program.end(30)
    assert alive(pids) == set()
    until(lambda: not is_alive(outer) and not is_alive(inner))


@pytest.mark.parametrize("which", ["outer", "inner", "both"])
def test_a_guard_that_was_stopped_ends_its_program_all_the_same(
    family: tuple[child.Child, dict[str, int]], which: str
) -> None:
    program, pids = family
    outer, inner = guards_of(program.pid)
    for pid in {"outer": [outer], "inner": [inner], "both": [outer, inner]}[which]:
        os.kill(pid, signal.SIGSTOP)

    assert program.end(30)
    assert alive(pids) == set()
    assert not is_alive(outer) and not is_alive(inner)


def test_when_the_program_is_killed_its_workers_live_until_we_say_so(
    family: tuple[child.Child, dict[str, int]],
) -> None:
    """Its exit code is known at once; what it started may still be writing."""
    program, pids = family

    os.kill(program.pid, signal.SIGKILL)
    code = program.wait(30)
    left = alive(pids)
    program.kill()

    assert (code, left) == (-signal.SIGKILL, NAMES - {"main"})
    assert program.end(30)
    assert alive(pids) == set()


def test_when_we_are_killed_nothing_is_left(tmp_path: Path) -> None:
    us = subprocess.Popen([sys.executable, "-c", US, FAMILY, str(tmp_path)], stdin=subprocess.PIPE)
    pids = until(lambda: len(found := family_in(tmp_path)) == len(NAMES) and found)
    was_alive = alive(pids)  # type: ignore[arg-type]
    us.kill()
    us.communicate()

    assert was_alive == NAMES
    until(lambda: alive(pids) == set())  # type: ignore[arg-type]


# `conda run` puts a shell before the program; a container may give it process numbers of its own.
IN_A_SHELL = ["bash", "-c", '"$@"; exit "$?"', "bash"]
IN_A_NAMESPACE = ["unshare", "--pid", "--fork"]
ENTERED = """
import sys
from pathlib import Path
from unbroken.program import process as child
folder, family, *enter = sys.argv[1:]
program = child.start([*enter, sys.executable, "-c", family, folder], {}, Path(folder) / "log")
sys.stdin.readline()
"""


@pytest.mark.parametrize("enter", [IN_A_SHELL, IN_A_NAMESPACE], ids=["shell", "namespace"])
def test_when_we_are_killed_nothing_is_left_below_what_enters_an_environment(tmp_path: Path, enter: list[str]) -> None:
    if enter == IN_A_NAMESPACE and os.geteuid() != 0:
        skip_or_fail("missing: root, who may make a PID namespace")
    us = subprocess.Popen([sys.executable, "-c", ENTERED, str(tmp_path), FAMILY, *enter], stdin=subprocess.PIPE)
    until(lambda: len(family_in(tmp_path)) == len(NAMES))
    were_there = processes_with(str(tmp_path)) - {us.pid}
    us.kill()
    us.communicate()

    assert len(were_there) >= len(NAMES) + 1  # and the one that entered
    until(lambda: not any(is_alive(pid) for pid in were_there))


def processes_with(word: str) -> set[int]:
    """All processes with this word in their command, numbered as we see them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found


def test_when_we_and_a_guard_are_killed_at_once_nothing_is_left(tmp_path: Path) -> None:
    words = [sys.executable, "-c", US, FAMILY, str(tmp_path)]
    us = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert us.stdout is not None
    outer, inner = guards_of(int(us.stdout.readline()))
    pids = until(lambda: len(found := family_in(tmp_path)) == len(NAMES) and found)
    us.send_signal(signal.SIGSTOP)  # so that it does not act upon the death of the guard
    os.kill(outer, signal.SIGKILL)
    us.kill()
    us.communicate()

    until(lambda: alive(pids) == set() and not is_alive(inner))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_what_slurm_sends_to_all_processes_of_a_job_ends_no_guard(log: Path, number: signal.Signals) -> None:
    program = child.start(["sleep", "60"], {}, log)
    guards = guards_of(program.pid)
    for pid in guards:
        os.kill(pid, number)
    program.send(signal.SIGKILL)

    assert program.wait(30) == -signal.SIGKILL
    assert all(is_alive(pid) for pid in guards)


def test_a_program_gets_the_signals_as_everybody_else_does(log: Path) -> None:
    """Python ignores SIGPIPE, and a guard much more."""
    text = "import signal; print([n.name for n in signal.Signals if signal.getsignal(n) is signal.SIG_IGN])"
    ignored = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=True).stdout

    child.start([sys.executable, "-I", "-c", text], {}, log).wait(30)
    child.start(["sh", "-c", "grep SigIgn /proc/self/status"], {}, log).wait(30)

    first, second = log.read_text().splitlines()
    assert first == ignored.strip()
    assert int(second.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_no_file_of_the_program_is_held_open_by_its_guards(log: Path, tmp_path: Path) -> None:
    program = child.start(["sleep", "60"], {}, log, tmp_path)
    guards = guards_of(program.pid)

    opened = {os.readlink(path) for pid in guards for path in Path(f"/proc/{pid}/fd").iterdir()}
    folders = {os.readlink(f"/proc/{pid}/cwd") for pid in guards}

    assert str(log) not in opened
    assert folders == {"/"}


def test_words_of_a_command_never_become_part_of_the_modules_shell_text(log: Path, tmp_path: Path) -> None:
    words = ["printf", "%s\\n", "$(touch harm)", "a 'b'", '"', ";"]
    text = child.with_modules(words, ["good/1.0; touch harm"])
    text[3] = "module() { shift; printf 'loaded %s\\n' \"$@\"; }; " + text[3]
    text.remove("-l")

    child.start([shutil.which("bash") or "bash", *text[1:]], {}, log).wait(30)

    assert log.read_text().splitlines() == ["loaded good/1.0; touch harm", "$(touch harm)", "a 'b'", '"', ";"]
