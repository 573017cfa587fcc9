"""How a segment of the DMTCP engine takes what may end its program, or keep it from its work.

In each case the next attempt goes on from the checkpoint before, and the result is that of one run.
"""

import os
import re
import signal
from contextlib import suppress

import pytest
from support.dmtcp_here import REAL, STAND_IN
from support.dmtcp_play import numbers
from support.workdir import until

from unbroken.errors import SegmentError
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process


@pytest.fixture
def at_20(dmtcp_run):
    """Saved at 20; the program may go on to 40."""
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)
    return dmtcp_run


def goes_on_to_its_end(run):
    """The next attempt."""
    run.let_pass(40)
    record = run.segment(2)
    return record.kind is EndKind.FINISHED and (run.places.final / "numbers.txt").read_bytes() == numbers(60)


def failed(run, meanwhile):
    """The line of an attempt that fails, once `meanwhile` happened to its program at 40."""

    def act():
        run.until_at(40)
        run.until_back()
        meanwhile()

    with pytest.raises(SegmentError) as error:
        run.segment(2, act)
    until(lambda: not run.pids("dmtcp_"))
    return str(error.value)


def kill_all(pids):
    """Where one of them is the parent of another, that one is gone by then."""
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("code", [7, pytest.param(85, marks=pytest.mark.slow)])
def test_a_programs_own_failure_is_told_with_its_last_words(dmtcp_run, code):
    dmtcp_run.settings["command"] = ["sh", "-c", f"echo last words; exit {code}"]

    with pytest.raises(SegmentError) as error:
        dmtcp_run.segment()

    line = f"runs.demo: the program ended with its own exit code {code}; its last lines stand in the log"
    assert str(error.value) == line
    assert "last words" in dmtcp_run.log()
    assert [attempt.kind for attempt in dmtcp_run.history()] == [EndKind.FAILED]


OUTSIDE = "the program was ended from outside, by a signal or its coordinator"
# What happens to a program at work, and the line that is told.
ENDS = {
    "killed_program": (
        lambda run: os.kill(run.program(), signal.SIGKILL),
        "the program ended with its own exit code 137, as one that SIGKILL ended; its last lines stand in the log$",
    ),
    "without_the_shell": (lambda run: kill_all(run.shells()), "the (shell around the )?program was ended from outside"),
    "told_to_die": (lambda run: run.command("--quit"), rf"{OUTSIDE} \(exit 0\)$"),
    "told_to_die_by_kill": (lambda run: run.command("--kill"), rf"{OUTSIDE} \(exit 0\)$"),
    "end_of_the_coordinator": (lambda run: os.kill(run.coordinator(), signal.SIGKILL), rf"{OUTSIDE} \(exit "),
    "interrupted_coordinator": (lambda run: os.kill(run.coordinator(), signal.SIGINT), rf"{OUTSIDE} \(exit "),
    "nobody_outlives": (
        lambda run: os.kill(run.pids("unbroken.engines.dmtcp.supervisor")[0], signal.SIGKILL),
        ".* was ended by SIGKILL",
    ),
}
QUICK = ("told_to_die", "end_of_the_coordinator")


@pytest.mark.parametrize("end", [pytest.param(end, marks=[] if end in QUICK else pytest.mark.slow) for end in ENDS])
def test_what_ends_a_program_from_outside_is_told_and_is_no_end_of_the_run(at_20, end):
    act, said = ENDS[end]

    line = failed(at_20, lambda: act(at_20))

    assert re.match(rf"runs\.demo: {said}", line), line
    assert goes_on_to_its_end(at_20)


@pytest.mark.slow
def test_a_request_that_was_lost_is_made_again(dmtcp_run, monkeypatch):
    monkeypatch.setenv("STAND_IN_WRITE_SECONDS", "1")

    def checkpoint_and_warn():
        dmtcp_run.until_at(20)
        dmtcp_run.command("--checkpoint")
        os.kill(os.getpid(), signal.SIGUSR1)

    record = dmtcp_run.segment(meanwhile=checkpoint_and_warn)

    assert record.kind is EndKind.PAUSED
    assert len(dmtcp_run.checkpoints()) == 1


# --- what cannot be provoked with the real one without spoiling the machine ---


@pytest.fixture
def switch(tmp_path, monkeypatch):
    """A file whose existence makes the stand-in fail, by the name of the variable."""

    def switch(name):
        monkeypatch.setenv(name, str(tmp_path / name))
        return tmp_path / name

    return switch


@pytest.mark.slow
def test_a_full_disk_leaves_the_checkpoint_before_and_the_line_says_how_much_is_free(dmtcp_run, switch):
    dmtcp_run.settings["dmtcp"] = str(STAND_IN / "4.1.1")
    full = switch("STAND_IN_FULL")
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)

    def warn():
        full.touch()
        os.kill(os.getpid(), signal.SIGUSR1)

    line = failed(dmtcp_run, warn)

    full.unlink()
    assert re.search(r"is gone \(exit code \d+\) without a whole checkpoint; it left ckpt_\S+\.temp", line)
    assert re.search(r"in \S+/results/demo/images/\S+, where \d+ MB are free$", line)
    assert goes_on_to_its_end(dmtcp_run)


@pytest.mark.slow
def test_a_hang_in_mid_work_is_ended(dmtcp_run, switch):
    dmtcp_run.settings["dmtcp"] = str(STAND_IN / "4.1.1")
    hangs = switch("STAND_IN_HANG")
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)
    dmtcp_run.settings["restart_seconds"] = 20

    line = failed(dmtcp_run, hangs.touch)

    hangs.unlink()
    del dmtcp_run.settings["restart_seconds"]
    assert re.fullmatch(
        r"runs\.demo: the program hangs: DMTCP says for \d+ s that its 2 processes are not all at work "
        r"\(settings\.restart_seconds\); it was killed",
        line,
    )
    assert goes_on_to_its_end(dmtcp_run)


def test_a_process_that_ends_after_its_coordinator_is_waited_for(dmtcp_run, monkeypatch):
    monkeypatch.setenv("STAND_IN_LEAVE_SECONDS", "1")
    dmtcp_run.settings["dmtcp"] = str(STAND_IN / "4.1.1")
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)

    line = failed(dmtcp_run, lambda: dmtcp_run.command("--quit"))

    assert line == "runs.demo: the program was ended from outside, by a signal or its coordinator (exit 0)"


@pytest.mark.slow
def test_a_program_that_neither_computes_nor_writes_stands_still_for_stall_minutes(dmtcp_run):
    dmtcp_run.settings["command"] = ["sleep", "600"] if REAL else ["python3", "-c", "import time; time.sleep(600)"]
    dmtcp_run.keys["stall_minutes"] = 0.15

    with pytest.raises(SegmentError, match=r"no progress in 0\.15 minutes \(stall_minutes\)"):
        dmtcp_run.segment()
