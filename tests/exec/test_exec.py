import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from support.exec_calls import KEEP, Called, expected
from support.file_programs import wait_for_moment

from unbroken.store.exec_note import read_note

pytestmark = pytest.mark.process


def pause_at(called: Called, number: int, *options: str, **more) -> None:
    """The program is stopped by a signal to exec when it is there."""
    called.rest_at(number)
    process = called.start(*KEEP, *options, **more)
    called.wait_for_state(number)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 85
    called.go_on()


def test_a_program_that_saves_and_exits_0_when_told_does_not_end_the_run(called):
    pause_at(called, 7)

    assert not (called.folder / "sum.txt").exists()
    pause_at(called, 9)
    assert called.call(*KEEP).returncode == 0
    assert (called.result(), called.starts()) == (expected(), [0, 7, 9])
    logs = sorted(path.name for path in (called.store() / "logs").iterdir())
    assert [name for name in logs if name.count(".") == 2] == ["001.1.log", "001.2.log", "001.3.log"]


@pytest.mark.parametrize("is_in_job", [False, True])
def test_a_segment_ends_after_its_minutes_and_another_one_follows_also_in_the_same_job(called, is_in_job):
    called.rest_at(3)
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": str(int(time.time()) + 3600)} if is_in_job else {}

    assert called.call(*KEEP, "--minutes", "0.1", environment=job).returncode == 85
    called.go_on()
    assert called.call(*KEEP, environment=job).returncode == 0
    assert (called.starts(), called.result()) == ([0, 3], expected())


def test_without_kept_files_it_begins_again_after_a_kill(called):
    called.rest_at(5)
    process = called.start("--outputs", "sum.txt")
    called.wait_for_state(5)
    process.kill()
    process.wait()
    called.go_on()

    assert called.call("--outputs", "sum.txt").returncode == 0
    assert called.result() == expected()


@pytest.mark.parametrize(
    ("options", "script", "code", "said"),
    [
        ((), "echo boom >&2; exit 7", 7, "count: the program ended with exit code 7: last line: boom"),
        (("--outputs", "absent.txt"), "exit 0", 1, "--outputs: it made no absent.txt"),
        (("--keep", "nowhere/*"), "exit 85", 1, "; nothing that the program wrote matches nowhere/*"),
    ],
)
def test_a_failure_has_its_exit_code_and_its_reason(called, options, script, code, said):
    done = called.call(*options, program=("sh", "-c", script))

    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_finished_run_computes_nothing_puts_its_results_back_and_begins_anew_if_that_is_said(called):
    first = called.call(*KEEP)
    (called.folder / "sum.txt").unlink()

    done = called.call(*KEEP)

    assert (first.returncode, "at 20" in first.stdout) == (0, True)
    assert (done.returncode, called.result(), called.starts()) == (0, expected(), [0])
    assert "count: done before, nothing is computed; put back: sum.txt; to compute it anew add --anew" in done.stderr
    assert (called.call(*KEEP, "--anew").returncode, called.starts()) == (0, [0, 0])


def test_a_folder_is_a_result_too(called):
    make = (sys.executable, "-c", "import os; os.makedirs('out/a'); open('out/a/b', 'w').write('x')")
    called.call("--outputs", "out", program=make)
    (called.folder / "out/a/b").unlink()

    assert called.call("--outputs", "out", program=make).returncode == 0
    assert (called.folder / "out/a/b").read_text() == "x"


def test_changed_inputs_begin_anew_and_the_two_newest_old_states_stay(called):
    data = called.folder / "data.txt"
    options = (*KEEP, "--inputs", "data.txt")
    for content in "abcd":
        data.write_text(content)
        done = called.call(*options)
        assert done.returncode == 0
    os.utime(data, (1, 1))
    assert "nothing is computed" in called.call(*options).stderr

    assert "count: begins anew (the inputs have changed: data.txt)" in done.stderr
    assert called.starts() == [0, 0, 0, 0]
    assert len(list((called.store() / "old").iterdir())) == 2


def test_another_command_line_is_refused_in_one_line_and_begins_anew_if_that_is_said(called):
    pause_at(called, 4)

    done = called.call(*KEEP, goal=30)

    assert (done.returncode, done.stderr.count("\n"), called.starts()) == (1, 1, [0])
    assert "program.py 20 sum.txt; is: " in done.stderr
    assert "type: unbroken accept count; to begin anew: --on-change anew" in done.stderr
    assert called.call(*KEEP, "--on-change", "anew", goal=30).returncode == 0
    assert (called.starts(), called.result()) == ([0, 0], expected(30))
    assert "state.json" in called.replaced()


def test_words_that_may_differ_are_left_out(called):
    words = (sys.executable, "program.py", "20", "sum.txt")
    pause_at(called, 4, "--ignore", "--threads,--mem", program=(*words, "--threads", "4", "--mem=8"))

    more = (*words, "--threads", "2", "--mem=16")
    assert called.call(*KEEP, "--ignore", "--threads,--mem", program=more).returncode == 0
    assert called.starts() == [0, 4]


def test_the_temporary_folder_and_the_job_s_number_never_count(called):
    words = (sys.executable, "program.py", "20", "sum.txt")
    here, there = {"TMPDIR": "/tmp/of-a-job", "SLURM_JOB_ID": "17"}, {"TMPDIR": "/tmp", "SLURM_JOB_ID": "18"}
    first = called.call(*KEEP, "--minutes", "9", program=(*words, "/tmp/of-a-job/x", "job-17"), environment=here)
    other = called.call(*KEEP, "--minutes", "9", program=(*words, "/tmp/x", "job-18"), environment=there)

    assert (first.returncode, other.returncode) == (0, 0)
    assert called.starts() == [0]


def test_a_goal_that_is_raised_makes_a_finished_program_go_on(called):
    progress = ("--progress", 'ckpt/state.json:"n": (\\d+)', "--ignore", "program.py,20,30")

    first = called.call(*KEEP, *progress, "--goal", "20", goal=20)
    longer = called.call(*KEEP, *progress, "--goal", "30", "--on-change", "refuse", goal=30)
    again = called.call(*KEEP, *progress, "--goal", "30", goal=30)

    assert (first.returncode, longer.returncode, again.returncode) == (0, 0, 0), longer.stderr
    assert (called.starts(), called.result()) == ([0, 20], expected(30))
    assert "nothing is computed" in again.stderr


@pytest.mark.parametrize(
    "way",
    [("--progress", 'ckpt/state.json:"n": (\\d+)', "--goal", "20"), ("--done-if", "complete")],
    ids=["goal", "file"],
)
def test_a_goal_or_a_file_decides_what_exit_code_0_means(called, way):
    first = called.call(*KEEP, *way, goal=8)
    (called.folder / "complete").touch()
    second = called.call(*KEEP, *way, "--on-change", "anew", goal=20)

    assert (first.returncode, second.returncode) == (85, 0)


def test_a_program_that_is_done_just_after_it_was_told_to_leave_is_done(called):
    leave = "save 2; echo done > sum.txt; exit 0"
    save = "save() { echo $1 > new; mv new n; }"
    work = f"{save}; trap '{leave}' TERM; save 1; touch ready; while :; do sleep 0.05; done"
    options = ("--keep", "n", "--save-minutes", "60", "--outputs", "sum.txt", "--done-if", "sum.txt")
    process = called.start(*options, program=("sh", "-c", work))
    called.wait_until((called.folder / "ready").exists)
    wait_for_moment(called, "n")  # a file that is always renamed is complete from then on
    process.send_signal(signal.SIGTERM)

    assert process.wait(600) == 0
    kept = sorted(called.store().glob("checkpoints/0*/kept/n"))
    assert [path.read_text() for path in kept] == ["1\n", "2\n"]


def test_another_command_line_goes_on_with_resume(called):
    going_on = f"{sys.executable} program.py 20 sum.txt again"
    pause_at(called, 9, "--resume", going_on)

    done = called.call(*KEEP, "--resume", going_on)

    assert done.returncode == 0
    assert "starting: " in done.stderr and "sum.txt again" in done.stderr


def test_a_program_that_keeps_the_contract_needs_no_options(called):
    (called.folder / "contract.py").write_text(
        "import json, os, pathlib\n"
        "save, resume = pathlib.Path(os.environ['UNBROKEN_SAVE']), os.environ['UNBROKEN_RESUME']\n"
        "n = int(pathlib.Path(resume, 'n').read_text()) if resume else 0\n"
        "draft = save / 'draft'; draft.mkdir(); (draft / 'n').write_text(str(n + 1))\n"
        "(draft / 'progress.json').write_text(json.dumps({'done': n + 1, 'goal': 3, 'unit': 'steps'}))\n"
        "draft.rename(save / '1.ready')\n"
        "raise SystemExit(0 if n + 1 == 3 else 85)\n"
    )
    program = (sys.executable, "contract.py")

    codes = [called.call(program=program).returncode for _ in range(4)]

    assert codes == [85, 85, 0, 0]


def test_the_streams_are_passed_on_and_kept(called):
    (called.folder / "in.txt").write_text("from a file\n")
    words = called.words(program=("sh", "-c", "cat; echo to-err >&2"))

    with (called.folder / "in.txt").open() as file:
        done = subprocess.run(words, cwd=called.folder, stdin=file, capture_output=True, text=True, timeout=600)

    log = (called.store() / "logs/001.log").read_text()
    assert (done.returncode, done.stdout, "to-err\n" in done.stderr) == (0, "from a file\n", True)
    assert "from a file\n" in log and "to-err\n" in log


@pytest.mark.parametrize("before", ["", "lines of a driver\n"])
def test_an_output_that_the_shell_has_emptied_is_warned_of_and_no_log_with_other_lines(called, before):
    pause_at(called, 7)
    (called.folder / "printed.txt").write_text(before)

    with (called.folder / "printed.txt").open("a") as file:
        done = subprocess.run(
            called.words(*KEEP), cwd=called.folder, stdin=-3, stdout=file, stderr=-1, text=True, timeout=600
        )

    assert ("add --stdout FILE" in done.stderr) is (not before)
    assert (called.folder / "printed.txt").read_text().startswith(f"{before}at 8\n")


def test_notes_of_jobs_that_are_long_gone_are_removed_and_nothing_else(called):
    notes = called.folder / ".snakemake/unbroken/exec"
    notes.mkdir(parents=True)
    for name, days in (("17.0.json", 100), ("18.0.json", 80), ("mine.txt", 100)):
        (notes / name).touch()
        os.utime(notes / name, (0, time.time() - days * 86400))

    called.call(*KEEP, "--minutes", "1", environment={"SLURM_JOB_ID": "4711"})

    assert sorted(path.name for path in notes.iterdir()) == ["18.0.json", "4711.0.json", "mine.txt"]


def test_a_job_of_slurm_notes_how_it_ended_and_why_it_was_refused(called):
    (called.folder / ".snakemake").mkdir()
    called.call(*KEEP, "--minutes", "1", environment={"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"})
    called.call(*KEEP, "--minutes", "1", goal=30, environment={"SLURM_JOB_ID": "4712"})

    done, refused = (read_note(called.folder / f".snakemake/unbroken/exec/{job}.json") for job in ("4711.2", "4712.0"))

    assert done is not None and refused is not None
    assert (done.name, done.store, done.kind) == ("count", str(called.store()), "finished")
    assert refused.kind == "refused"
    assert refused.reason.startswith("count: the command line is another one; was: ")


def test_the_store_lies_beside_snakemake_s_folder(called):
    (called.folder / ".snakemake").mkdir()
    inner = Called(called.folder / "below") if (called.folder / "below").mkdir() is None else None

    assert inner.call(*KEEP).returncode == 0
    assert called.store().is_dir()
    assert not (inner.folder / ".unbroken").exists()


@pytest.mark.parametrize("name", ["train", "train/de/small"])
def test_no_run_lies_in_the_folder_of_another(called, name):
    called.call(program=("true",), name="train/de")

    done = called.call(program=("true",), name=name)

    assert done.returncode == 1
    assert f"found '{name}', and there is a run 'train/de'" in done.stderr
    assert called.call(program=("true",), name="train/en").returncode == 0


def test_no_two_runs_keep_one_file(called):
    called.rest_at(3)
    process = called.start(*KEEP)
    called.wait_for_state(3)

    done = called.call("--keep", "ckpt/s*", name="other")

    assert done.returncode == 1
    assert "other keeps 'ckpt/s*', and count keeps 'ckpt/*', which may be the same file" in done.stderr
    called.go_on()
    assert process.wait(600) == 0
    assert called.call("--keep", "ckpt/s*", name="other").returncode == 0  # the other one is finished


def test_what_was_there_before_unbroken_came_is_saved_first_and_gone_on_from(called):
    (called.folder / "ckpt").mkdir()
    (called.folder / "ckpt/state.json").write_text(json.dumps({"n": 10, "sum": 385}))
    called.rest_at(11)
    process = called.start(*KEEP)
    called.wait_for_checkpoint(10)
    called.go_on()

    assert process.wait(600) == 0
    assert (called.starts(), called.result()) == ([10], expected())


def in_job(number: int, seconds: float) -> dict[str, str]:
    """What a job of Slurm tells its programs, with so much time left; no Slurm answers here."""
    return {"SLURM_JOB_ID": str(number), "SLURM_JOB_END_TIME": f"{time.time() + seconds:.0f}", "PATH": "/nowhere"}


def stopped_at(called: Called, number: int) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """A call in job 7 that rests at this number until the job's time is up; and that job.

    It has 6 s, more where a busy machine needs as long to start the program.
    """
    called.rest_at(number)
    for seconds in (6, 24, 96):
        job = in_job(7, seconds)
        paused = called.call(*KEEP, environment=job)
        if called.state().get("n") == number:
            break
        for folder in (called.store(), called.folder / "ckpt"):
            shutil.rmtree(folder, ignore_errors=True)
        (called.folder / "starts").unlink(missing_ok=True)
    called.go_on()
    return paused, job


def test_a_job_whose_time_was_up_is_not_used_again_and_the_next_one_goes_on(called):
    paused, job = stopped_at(called, 3)
    again = called.call(*KEEP, environment=job)
    late = called.call(*KEEP, environment=in_job(8, -2))
    done = called.call(*KEEP, environment=in_job(8, 3600))

    assert (paused.returncode, again.returncode, late.returncode, done.returncode) == (85, 85, 85, 0), paused.stderr
    assert "unbroken: count: the time of job 7 is up, nothing is started" in again.stderr
    assert (called.folder / "starts").read_text() == "0\n3\n"
    history = (called.folder / ".unbroken/count/history.jsonl").read_text().splitlines()
    assert len(history) == 2


def test_a_job_that_was_put_back_into_the_queue_has_its_time_again(called):
    paused, _ = stopped_at(called, 3)

    done = called.call(*KEEP, environment=in_job(7, 3600))

    assert (paused.returncode, done.returncode) == (85, 0), done.stderr
    assert (called.folder / "starts").read_text() == "0\n3\n"


@pytest.mark.slow
def test_a_program_that_makes_no_progress_is_ended(called):
    called.rest_at(3)

    done = called.call("--keep", "ckpt/*", "--save-minutes", "0", "--stall-minutes", "0.1")

    assert done.returncode == 1
    assert "stall_minutes" in done.stderr
