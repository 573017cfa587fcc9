"""A node whose clock is wrong: the segment's length counts on Slurm's, and what the program is told on the node's.

Slurm's commands are stand-ins with answers as Slurm 22.05 prints them, from a controller whose clock differs from ours.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.toyrun import checkpoints, history, program, start_segment, toy_job, until

from unbroken.job.deadline import JobTime, Margin, deadline_for
from unbroken.job.segment_process import LAST_SECONDS, give_up_at
from unbroken.program.contract import AttemptFolder
from unbroken.slurm.this_job import SlurmJob, job_around_us
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

SDIAG = """\
echo '*******************************************************'
echo "sdiag output at Sun Nov 22 19:31:05 2026 ($(($(date +%s) - AHEAD)))"
echo 'Data since      Sun Nov 22 00:00:00 2026 (1795305600)'
echo '*******************************************************'
echo 'Server thread count:  3'
"""


class Controller:
    """Stand-ins for sdiag and squeue; `ahead` is what our clock is ahead of the controller's, in seconds."""

    def __init__(self, folder: Path, ahead: int) -> None:
        self._folder, self._ahead = folder, ahead
        folder.mkdir()
        self._write("sdiag", SDIAG.replace("AHEAD", str(ahead)))
        self._write("squeue", f"cat {folder}/end")

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self._folder / name).chmod(0o755)

    def end_job_in(self, seconds: float) -> int:
        """From now on that is what squeue says; the time by the controller's clock."""
        end = int(time.time() - self._ahead + seconds)
        self.end_job_at(end)
        return end

    def end_job_at(self, end: int) -> None:
        (self._folder / "new").write_text(f"me|node1|17|RUNNING|None|N/A|N/A|{end}||/\n")
        (self._folder / "new").replace(self._folder / "end")

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self._folder}:{os.environ['PATH']}"
        return {"PATH": path, "SLURM_JOB_ID": "17", "SLURMD_NODENAME": "node1", "SLURM_JOB_PARTITION": "batch"}


@pytest.mark.parametrize("ahead", [400, -400, 0])
def test_the_time_that_is_left_does_not_depend_on_this_nodes_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    controller = Controller(tmp_path / "bin", ahead)
    end = controller.end_job_in(300)
    for name, value in controller.environment.items():
        monkeypatch.setenv(name, value)

    job = job_around_us()
    deadline = deadline_for(3600, job)

    assert job is not None and (job.end_unix, job.to_json()["end_unix"]) == (end, end)
    assert job.clock_ahead_seconds == pytest.approx(ahead, abs=30)
    assert (deadline.left_seconds(), deadline.seconds_to_force()) == pytest.approx((300, 300), abs=30)
    assert deadline.unix(20) == pytest.approx(time.time() + 280, abs=30)  # what the program is told
    assert give_up_at() - time.monotonic() == pytest.approx(300 - LAST_SECONDS, abs=30)  # what may pass is waited for


def test_the_controllers_word_of_the_end_comes_before_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a job with --time-min that backfill started, the variable says start + time-min."""
    controller = Controller(tmp_path / "bin", 0)
    end = controller.end_job_in(300)
    for name, value in {**controller.environment, "SLURM_JOB_END_TIME": str(end - 240)}.items():
        monkeypatch.setenv(name, value)

    asked = job_around_us()
    (tmp_path / "bin" / "end").unlink()
    unanswered = job_around_us()

    assert asked is not None and asked.end_unix == end
    assert unanswered is not None and unanswered.end_unix == end - 240


def test_where_slurm_does_not_say_its_time_this_nodes_clock_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path / "bin", 0)
    (tmp_path / "bin" / "sdiag").write_text("#!/bin/sh\necho 'slurm_get_statistics: Access denied' >&2\nexit 1\n")
    end = controller.end_job_in(300)
    for name, value in controller.environment.items():
        monkeypatch.setenv(name, value)

    job = job_around_us()

    assert job is not None and (job.end_here_unix, job.remark) == (end, "")


def test_a_clock_that_is_off_by_more_than_a_minute_is_named() -> None:
    rest = "the segment's length does not count on it, its time stamps do; tell the administrators"

    assert SlurmJob("17", "node1", "batch", 0.0, 400.2).remark == f"node1's clock is 400 s ahead of Slurm's; {rest}"
    assert SlurmJob("17", "node1", "batch", 0.0, -61).remark == f"node1's clock is 61 s behind Slurm's; {rest}"
    assert SlurmJob("17", "node1", "batch", 0.0, 59).remark == SlurmJob("17", "node1", "batch", 0.0, -59).remark == ""


@pytest.mark.parametrize(("ahead", "word"), [(4000, "ahead of"), pytest.param(-4000, "behind", marks=pytest.mark.slow)])
def test_a_segment_on_such_a_node_saves_in_its_time_and_is_not_blamed(tmp_path: Path, ahead: int, word: str) -> None:
    controller = Controller(tmp_path / "bin", ahead)
    controller.end_job_in(60)

    ended = start_segment(
        tmp_path,
        command=program("obedient"),
        environment=controller.environment,
        segment_minutes=30,
        first_margin_seconds=50,
    ).end()

    assert re.search(rf"node1's clock is (3[89]|40)\d\d s {word} Slurm's; ", ended.screen)
    assert "stopping the program: its time is up" in ended.screen
    (attempt,) = history(toy_job(tmp_path))
    assert (attempt.kind, attempt.exit_code) == (EndKind.PAUSED, 85)
    assert len(checkpoints(toy_job(tmp_path))) == 1


def test_a_job_that_gets_more_time_works_longer_whatever_the_nodes_clock_says(tmp_path: Path) -> None:
    controller = Controller(tmp_path / "bin", -4000)
    end = controller.end_job_in(3600)
    segment = start_segment(
        tmp_path,
        command=program("obedient"),
        environment=controller.environment,
        patch={"job.deadline.LOOK_SECONDS": 0.1},
        segment_minutes=59,
    )
    log = toy_job(tmp_path).places.log(1)
    until(lambda: log.exists() and "told to stop" in log.read_text())
    controller.end_job_at(end + 480)
    until(lambda: "Slurm ends the job 480 s later than it said" in log.read_text())
    segment.kill(signal.SIGUSR1)
    ended = segment.end()

    assert ended.record["kind"] == "paused"
    assert ended.screen.count("than it said") == 1


def test_a_clock_that_is_set_in_the_middle_moves_no_deadline_but_what_the_program_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path / "bin", 0)
    controller.end_job_in(3600)
    for name, value in controller.environment.items():
        monkeypatch.setenv(name, value)
    slurm_job = job_around_us()
    deadline, attempt_folder = deadline_for(7200, slurm_job), AttemptFolder(tmp_path / "desk")
    attempt_folder.prepare()
    limits = JobTime(attempt_folder, slurm_job, deadline, Margin(10.0, 1.0))
    limits.write_deadline()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 4000)

    limits._next_look = 0.0
    limits.watch(0.0)

    assert limits.deadline is deadline
    assert float(attempt_folder.deadline.read_text()) == pytest.approx(now() + 4000 + 3599, abs=60)
    attempt_folder.close()
