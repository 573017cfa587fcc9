"""`python -m unbroken.job`, a task of a run's array, as a process of its own: its segment, and what follows it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain
from support.toyrun import PYTHONPATH, toy

from unbroken.job.end_note import exit_code_for
from unbroken.job.next_attempt import note_stop, stop_of
from unbroken.job.segment_process import PATIENCE
from unbroken.job.spec import JobSpec, path_of
from unbroken.slurm.job import chain_comment
from unbroken.store.history import EndKind, History
from unbroken.store.layout import CHAINS, RunFolder
from unbroken.store.record import read_record

pytestmark = pytest.mark.process

START = "20260101T000000Z-1a2b3c4d"
QUICK = {"segment_minutes": 0.01, "step_seconds": 0.01, "save_steps": 5, "start": START}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is job 17 of a chain; accounting is off, and nobody wants a page."""
    monkeypatch.setenv(PATIENCE, "1")
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    slurm.answer("scontrol", f'echo "$@" >> {tmp_path}/asked; exit 1')
    slurm.answer("scancel", f'echo "$@" >> {tmp_path}/canceled')
    slurm.shows(17, "RUNNING")
    return slurm


def job(spec: JobSpec, **environment: str) -> "subprocess.CompletedProcess[str]":
    """One task, by this spec."""
    spec.write()
    return subprocess.run(
        [sys.executable, "-m", "unbroken.job", str(path_of("demo"))],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
    )


def outcomes() -> list[EndKind]:
    return [line.kind for line in History(RunFolder("demo").history).attempts()]


def canceled(slurm: Slurm) -> str:
    path = slurm.folder / "canceled"
    return path.read_text() if path.exists() else ""


def test_a_task_does_the_first_segment_without_a_record_and_submits_the_next_array_behind_itself(
    tmp_path: Path, slurm: Slurm
) -> None:
    toy(Path(), 1, goal=10**6, segment_minutes=0.01)
    row = f"me||101_[1-9%1]|PENDING|Dependency|N/A|N/A|N/A|{chain_comment('demo')}|{Path().resolve()}"
    slurm.takes(f"echo '{row}' >> {slurm.folder}/queue")

    # Long enough to be at work still when the next array is submitted.
    done = job(chain_spec(tmp_path, **{**QUICK, "segment_minutes": 0.08}))

    assert done.returncode == 0, done.stderr
    record = read_record(RunFolder("demo").record(2))
    assert record is not None and record.kind is EndKind.PAUSED
    assert not RunFolder("demo").record(3).exists()
    assert (slurm.said("--array"), slurm.said("--dependency")) == (["1-9%1"], ["afterany:17"])  # seven and two
    assert "no task of this run waits: submitting the next ones; submitted array of 9 tasks 101" in done.stderr
    assert History(RunFolder("demo").history).attempts()[-1].start == START


def test_where_tasks_wait_a_task_submits_nothing(tmp_path: Path, slurm: Slurm) -> None:
    slurm.shows("17_[2-4%1]", "PENDING")

    done = job(chain_spec(tmp_path, **QUICK))

    assert (done.returncode, outcomes()) == (0, [EndKind.PAUSED])
    assert (slurm.told, canceled(slurm)) == ([], "")


def test_a_task_of_an_array_is_known_by_its_own_number_and_hides_the_array_from_the_program(
    tmp_path: Path, slurm: Slurm
) -> None:
    slurm.shows("17_[2-4%1]", "PENDING")
    script = tmp_path / "script.py"
    script.write_text("import os\nopen('seen', 'w').write(' '.join(n for n in os.environ if 'SLURM_ARRAY' in n))\n")

    job(chain_spec(tmp_path, script=str(script)), SLURM_JOB_ID="18", SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="1")

    assert Path("seen").read_text() == ""
    (line,) = History(RunFolder("demo").history).attempts()  # the script did nothing, which the job notes
    assert line.slurm_job == "17_1"


def test_at_the_goal_the_tasks_that_wait_are_canceled(tmp_path: Path, slurm: Slurm) -> None:
    slurm.shows("17_[2-4%1]", "PENDING")

    done = job(chain_spec(tmp_path, **{**QUICK, "segment_minutes": 1, "goal": 3}))

    assert (done.returncode, outcomes()) == (0, [EndKind.FINISHED])
    assert canceled(slurm) == "--state=PENDING 17\n"
    assert "canceled the waiting tasks: 17_2, 17_3, 17_4" in done.stderr
    assert stop_of("demo", START) == ""


def test_with_the_last_segment_at_work_nothing_is_submitted(tmp_path: Path, slurm: Slurm) -> None:
    done = job(chain_spec(tmp_path, segments=1, **QUICK))

    assert (done.returncode, outcomes()) == (0, [EndKind.PAUSED])
    assert slurm.told == []


def test_a_task_of_a_run_that_is_over_does_nothing(tmp_path: Path, slurm: Slurm) -> None:
    toy(Path(), 1, goal=3)

    done = job(chain_spec(tmp_path, goal=3))

    assert (done.returncode, outcomes()) == (0, [EndKind.FINISHED])
    assert slurm.told == []


def test_a_run_that_stops_cancels_what_waits_and_notes_why_for_its_driver(tmp_path: Path, slurm: Slurm) -> None:
    """The seed was changed: the same again would be refused again."""
    toy(Path(), 1, goal=10**6, segment_minutes=0.01)
    slurm.shows("17_[2-4%1]", "PENDING")

    done = job(chain_spec(tmp_path, seed=2, **QUICK))

    assert done.returncode == 1
    assert canceled(slurm) == "--state=PENDING 17\n"
    why = stop_of("demo", START)
    assert why.startswith("no further attempt is made: ") and "seed" in why
    assert f"the run stops: {why}" in done.stderr
    assert slurm.told == []


def test_a_task_that_starts_after_its_run_has_stopped_makes_no_attempt_and_says_so_by_its_code(
    tmp_path: Path, slurm: Slurm
) -> None:
    slurm.shows("17_[2-4%1]", "PENDING")
    note_stop("demo", START, "it was canceled")

    done = job(chain_spec(tmp_path, **QUICK))

    assert done.returncode == exit_code_for(EndKind.STOPPED, 1)
    assert (outcomes(), canceled(slurm)) == ([], "--state=PENDING 17\n")
    assert stop_of("demo", START) == "it was canceled"


def test_a_run_that_stops_while_slurm_does_not_answer_is_not_taken_for_the_last_one(
    tmp_path: Path, slurm: Slurm
) -> None:
    note_stop("demo", START, "it was canceled")
    last = job(chain_spec(tmp_path, **QUICK))
    slurm.answer("squeue", "exit 1")

    done = job(chain_spec(tmp_path, **QUICK))

    assert "all runs are over" in last.stderr
    assert "the run stops: it was canceled" in done.stderr
    assert "all runs are over" not in done.stderr


def test_a_task_that_waited_for_the_one_before_works_for_the_start_of_snakemake_that_came_meanwhile(
    tmp_path: Path, slurm: Slurm
) -> None:
    chain_spec(tmp_path, start="20270101T000000Z-5e6f7a8b", goal=3, segments=1).write()
    newer = path_of("demo").read_text()
    slurm.shows("17_1", "COMPLETING")
    leaves = f"echo '{newer}' > {path_of('demo').resolve()}; : > {slurm.folder}/queue"
    slurm.answer("squeue", f"cat {slurm.folder}/queue; {leaves}")
    note_stop("demo", START, "it was canceled")

    done = job(chain_spec(tmp_path, **QUICK))

    assert (done.returncode, outcomes()) == (0, [EndKind.FINISHED]), done.stderr
    assert History(RunFolder("demo").history).attempts()[-1].start == "20270101T000000Z-5e6f7a8b"


def test_a_task_whose_files_are_away_leaves_the_others_in_the_queue(tmp_path: Path, slurm: Slurm) -> None:
    """They try again when their time comes; it does not go back into the queue and submits nothing."""
    slurm.shows("17_[2-4%1]", "PENDING")

    done = job(chain_spec(tmp_path, script="gone.py", **QUICK))

    assert done.returncode == exit_code_for(EndKind.UNAVAILABLE, 1)
    (line,) = History(RunFolder("demo").history).attempts()
    assert (line.kind, line.slurm_job) == (EndKind.UNAVAILABLE, "17")
    assert (canceled(slurm), slurm.told, stop_of("demo", START)) == ("", [], "")
    assert not (slurm.folder / "asked").exists() or "requeue" not in (slurm.folder / "asked").read_text()


def test_the_second_such_task_in_a_row_stops_the_run(tmp_path: Path, slurm: Slurm) -> None:
    slurm.shows("17_[2-4%1]", "PENDING")
    job(chain_spec(tmp_path, script="gone.py", **QUICK), SLURM_JOB_ID="16")

    done = job(chain_spec(tmp_path, script="gone.py", **QUICK))

    assert done.returncode == 1
    assert stop_of("demo", START).startswith("2 attempts in a row ended before their work")
    assert canceled(slurm) == "--state=PENDING 17\n"


def test_a_node_without_slurm_s_commands_does_its_segment_and_says_what_it_cannot_do(
    tmp_path: Path, slurm: Slurm
) -> None:
    for command in ("sbatch", "squeue", "scontrol", "scancel"):
        (slurm.folder / "bin" / command).unlink()

    done = job(chain_spec(tmp_path, **QUICK), PATH="/usr/nowhere")

    assert (done.returncode, outcomes()) == (0, [EndKind.PAUSED])
    assert "sbatch, squeue, scontrol, scancel: not found on this node" in done.stderr


# --- why a run stopped -----------------------------------------------------------------------------------------------


def test_why_a_run_stopped_is_read_by_the_driver_of_that_start_alone(slurm: Slurm) -> None:
    """A later start counts anew: something may have been fixed."""
    assert stop_of("demo", START) == ""
    note_stop("demo", START, "the goal was changed")

    assert stop_of("demo", START) == "the goal was changed"
    assert (stop_of("demo", "another"), stop_of("other", START)) == ("", "")

    note_stop("demo", "another", "the seed was changed")
    assert (stop_of("demo", START), stop_of("demo", "another")) == ("", "the seed was changed")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"stopped": {"start": "20260101T000000Z-1a2b3c4d"}}'])
def test_a_corrupt_note_says_nothing(slurm: Slurm, text: str) -> None:
    note_stop("demo", START, "x")
    (CHAINS / "demo" / "state.json").write_text(text)

    assert stop_of("demo", START) == ""


def test_a_disk_that_takes_no_note_ends_no_work(slurm: Slurm) -> None:
    (CHAINS / "demo" / "state.json").mkdir(parents=True)

    note_stop("demo", START, "x")

    assert stop_of("demo", START) == ""
