"""What a training by hand leaves of each of its attempts: a line in its folder's history, and its job's note."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.test_attempt_times import assert_in_order
from unit.test_training_home import content, train
from unit.test_training_plain import told_to_save

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.job import policy
from unbroken.job.rule_work import end_of
from unbroken.report.account import account
from unbroken.report.spans import Kind
from unbroken.store.attempts import all_attempts
from unbroken.store.exec_note import ExecNote, note_path, read_note
from unbroken.store.history import Attempt, EndCause, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.training import AtomicDirectory
from unbroken.training.core.environment import DeadlineFile
from unbroken.training.core.save_schedule import Phase, SaveSchedule
from unbroken.training.torch import Saves
from unbroken.training.torch.serialization import save_verified

EACH_STEP = Saves(steps=1)
WHOLE_STEPS = 8
KILLED = """
import signal, sys
from pathlib import Path
from unit.test_training_home import train
from unbroken.training.torch import Saves
train(Path(sys.argv[1]), stop_at=int(sys.argv[2]), number=signal.SIGKILL, saves=Saves(steps=1))
"""


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


@pytest.fixture
def in_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes this process that of a job in a workflow's folder; `ends_in` are the seconds that the job has left."""
    (tmp_path / ".snakemake").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNBROKEN_START", "first")

    def begin(number: int, ends_in: float = 3600) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + ends_in)))

    return begin


def history(folder: Path) -> list[Attempt]:
    return History(folder / "history.jsonl").attempts()


def note_of(job: int) -> ExecNote | None:
    path = note_path(Path(), {"SLURM_JOB_ID": str(job)})
    assert path is not None
    return read_note(path)


def note(job: int) -> tuple[str, str, str, int]:
    found = note_of(job)
    assert found is not None
    return found.kind, found.name, found.store, found.segment


def kill_at(step: int, folder: Path) -> None:
    """Trains in a process that is killed in its step; not in a fork of this one, whose autograd may have threads."""
    words = [sys.executable, "-c", KILLED, str(folder), str(step)]
    ended = subprocess.run(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_pause_a_signal_and_the_end_are_lines_of_the_history_and_notes_of_their_jobs(tmp_path: Path, in_job) -> None:
    folder, seen = tmp_path / "deep" / "ckpt", []
    in_job(16, ends_in=-5)
    codes = [train(folder)]
    in_job(17)
    codes.append(train(folder, stop_at=3))
    in_job(18)
    codes.append(train(folder, each_step=lambda step, model: seen.append(note(18)[0])))
    lines = history(folder)

    assert codes == [85, 85, 0]
    assert set(seen) == {None}
    assert [note(job) for job in (16, 17, 18)] == [
        ("paused", "deep/ckpt", str(folder), 1),
        ("interrupted", "deep/ckpt", str(folder), 2),
        ("finished", "deep/ckpt", str(folder), 2),
    ]
    assert [(line.kind.value, line.segment, line.slurm_job, line.start) for line in lines] == [
        ("paused", 1, "16", "first"),
        ("interrupted", 2, "17", "first"),
        ("finished", 2, "18", "first"),
    ]
    assert [line.from_checkpoint for line in lines] == [None, lines[0].to_checkpoint, lines[1].to_checkpoint]
    assert [line.progress_to for line in lines] == [line.progress_from for line in lines[1:]] + [2.0]
    assert [line.exit_code for line in lines] == [85, 85, None]
    assert lines[0].message == "paused at 0.25 of 2 epochs"
    assert lines[2].message == "finished at 2 of 2 epochs"


def test_a_job_counts_the_pauses_in_the_folder(tmp_path: Path, in_job) -> None:
    for job in (17, 18):
        in_job(job, ends_in=-5)
        train(tmp_path / "ckpt")
    history = History(tmp_path / "ckpt" / "history.jsonl").attempts()
    note = ExecNote("train", str(tmp_path / "ckpt"), EndKind.PAUSED, 2)

    assert end_of(note, history[1], None) == history[1]
    assert [line.kind for line in history] == [EndKind.PAUSED] * 2
    assert (history[1].kind, history[1].segment, history[1].unit) == (EndKind.PAUSED, 2, "epochs")


@pytest.mark.parametrize(("seconds", "is_pause"), [(80.0, False), (91.0, True)])
def test_a_signal_in_the_last_tenth_of_the_time_is_a_pause(tmp_path: Path, seconds: float, is_pause: bool) -> None:
    now = [1000.0]
    contract = told_to_save(tmp_path / "stop", 1100.0, DeadlineFile())
    signals = SimpleNamespace(heard=lambda: now[0] > 1000, resumed_at=-math.inf)
    pace = SaveSchedule(contract, Saves(), signals, 0.1, now=lambda: now[0])
    before = pace.must_stop(Phase.BATCH)
    now[0] += seconds

    assert (before, pace.must_stop(Phase.BATCH), pace.is_time_up) == (False, True, is_pause)


def test_without_slurm_or_a_workflow_there_is_a_history_and_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train(tmp_path / "plain", stop_at=2)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))
    train(tmp_path / "slurm", stop_at=2)

    assert [line.kind for line in history(tmp_path / "plain")] == [EndKind.INTERRUPTED]
    assert [line.slurm_job for line in history(tmp_path / "slurm")] == ["17"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "slurm"]


def test_what_makes_no_sense_to_try_again_is_not_tried_again(tmp_path: Path, in_job) -> None:
    in_job(17)

    def spoil(step, model):
        if step == 2:
            model[0].weight.data.fill_(float("nan"))

    code = train(tmp_path / "ckpt", each_step=spoil)
    (line,) = history(tmp_path / "ckpt")
    why = policy.next_action([line], policy.Rules(3), policy.Situation(1)).why

    assert str(code).startswith("unbroken: loss is nan")
    assert note(17)[0] == "failed"
    assert (line.kind, line.cause) == (EndKind.FAILED, EndCause.DIVERGED)
    assert why.startswith("no further attempt is made: loss is nan")


def test_kills_without_progress_are_noted_by_the_next_start_and_end_by_the_policy(tmp_path: Path, in_job) -> None:
    folder = tmp_path / "ckpt"
    train(folder, stop_at=2)
    for job in (17, 18, 19):
        in_job(job)
        kill_at(3, folder)
    seen = all_attempts(RunFolder("ckpt", Path(), folder))
    lines = history(folder)
    why = policy.next_action(policy.of_start(seen, "first"), policy.Rules(3), policy.Situation(1)).why

    assert note(19)[0] is None
    assert [line.kind.value for line in lines] == ["interrupted", "died", "died"]
    assert [(line.slurm_job, line.segment) for line in seen[1:]] == [("17", 1), ("18", 1), ("19", 1)]
    assert [line.has_advanced for line in seen] == [True, False, False, False]
    assert why.startswith("3 attempts without progress")


def test_what_a_killed_one_has_saved_counts_and_changes_no_byte(tmp_path: Path, in_job) -> None:
    folder = tmp_path / "ckpt"
    in_job(17)
    kill_at(5, folder)
    (died,) = all_attempts(RunFolder("ckpt", Path(), folder))
    in_job(18)
    code = train(folder)
    train(tmp_path / "whole")

    assert (code, died.kind, died.has_advanced) == (0, EndKind.DIED, True)
    assert died.progress_to == pytest.approx(1.0)
    assert [(line.kind.value, line.slurm_job) for line in history(folder)] == [("died", "17"), ("finished", "18")]
    assert content(folder) == content(tmp_path / "whole")


def test_each_attempt_has_its_times_also_one_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    train(folder, stop_at=3, saves=EACH_STEP)
    kill_at(5, folder)
    train(folder, saves=EACH_STEP)
    stopped, died, finished = history(folder)

    for line in (stopped, finished):
        assert_in_order(line.times, "job_started", "first_step", "saved", "ended")
    assert_in_order(stopped.times, "first_step", "stop_asked", "saved")
    assert_in_order(died.times, "job_started", "first_step", "saved", "ended")
    assert stopped.times.stall_seconds and finished.times.stall_seconds
    found = account([stopped, died, finished], time.time())
    assert found.kills == 1
    assert found.seconds[Kind.USEFUL] > 0 and found.seconds[Kind.SAVING] > 0
    assert sorted(path.name for path in (folder / "lease").iterdir()) == ["000003.attempt.json", "000003.json"]


def test_a_save_beside_the_training_counts_by_what_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments, **options):
        time.sleep(0.5)
        return save_verified(*arguments, **options)

    monkeypatch.setattr("unbroken.training.torch.rank_checkpoint.save_verified", slowly)
    lines = {}
    for in_background in (True, False):
        folder = tmp_path / str(in_background)
        train(folder, saves=Saves(steps=3, in_background=in_background), each_step=lambda *_: time.sleep(0.3))
        (lines[in_background],) = history(folder)

    beside, stopping = lines[True], lines[False]
    assert beside.saves >= 2  # the last one, of the result, is never beside it
    assert beside.times.stall_seconds < beside.save_seconds - 0.4
    assert stopping.times.stall_seconds == pytest.approx(stopping.save_seconds, abs=0.01)


def test_a_finished_training_gives_its_results_again_and_trains_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[int] = []
    train(tmp_path, each_step=lambda step, model: trained.append(step))
    before = content(tmp_path)
    shutil.rmtree(tmp_path / "final")
    capsys.readouterr()
    code = train(tmp_path, each_step=lambda step, model: trained.append(step))

    assert code == 0
    assert trained == list(range(1, WHOLE_STEPS + 1))
    assert content(tmp_path) == before
    assert f"{tmp_path}: finished before, at 2 of 2 epochs; nothing is trained" in capsys.readouterr().out
    assert [line.has_advanced for line in history(tmp_path)] == [True, False]


def test_a_disk_that_takes_no_line_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self, attempt):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(History, "append", full)

    assert train(tmp_path, stop_at=2) == 85
    assert "history.jsonl: no line for this attempt ([Errno 28] No space left on device)" in capsys.readouterr().out
    assert train(tmp_path) == 0


def test_a_folder_of_checkpoints_alone_has_no_history_and_no_note(tmp_path: Path, in_job) -> None:
    in_job(17)

    with AtomicDirectory(tmp_path / "ckpt") as directory, directory.checkpoint(1) as draft:
        (draft / "state").write_text("1")

    assert history(tmp_path / "ckpt") == []
    assert note_of(17) is None
