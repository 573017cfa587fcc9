"""The array of a run: how many tasks, behind which jobs, by which words, and what a refusal leads to."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.slurm_commands import WORDS, Slurm, chain_spec, job_of_a_chain
from support.toyrun import PYTHONPATH, toy

from unbroken.job import array, segment_process, submissions
from unbroken.job.array import MOST_OF_FOLDER, Answer, Submitted
from unbroken.job.spec import JobSpec
from unbroken.slurm.job import EndState, ListedJob, chain_comment, number_of, tasks_of
from unbroken.slurm.this_job import hide_array, own_job_id
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder

pytestmark = pytest.mark.process

# What sbatch of Slurm 22.05 says.
FAILED = "sbatch: error: Batch job submission failed:"
NO_ARRAY = f"{FAILED} Invalid job array specification"
FULL = f"{FAILED} Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
SITE_FULL = f"{FAILED} Resource temporarily unavailable"
# What that of 26.05 says instead.
SITE_FULL_26_05 = f"{FAILED} MaxJobCount limit reached"
AWAY = f"{FAILED} Unable to contact slurm controller (connect failure)"
WRONG = "sbatch: error: invalid partition specified: shrt"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return job_of_a_chain(tmp_path, monkeypatch)


@pytest.fixture
def spec(tmp_path: Path, slurm: Slurm) -> JobSpec:
    """A run of nine segments, of which none is done."""
    return chain_spec(tmp_path)


def done_segments(count: int) -> None:
    for number in range(1, count + 1):
        toy(Path(), number, goal=10**6, segment_minutes=0.005)


# --- how many tasks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "tasks"),
    [(9, 9 + 2), (2, 2 + 2), (1, 1 + 2), (20, 20 + 2), (21, 21 + 3), (90, 90 + 9)],
)
def test_an_array_has_the_remaining_segments_and_a_tenth_or_two_in_reserve(
    segments: int, tasks: int, tmp_path: Path, slurm: Slurm
) -> None:
    spec = chain_spec(tmp_path, segments=segments)

    assert array.submit(spec) == Submitted(Answer.DONE, "101", tasks)

    assert slurm.said("--array") == [f"1-{tasks}%1"]


def test_segments_that_are_done_and_the_one_at_work_need_no_task(spec: JobSpec, slurm: Slurm) -> None:
    done_segments(2)
    slurm.shows(17, "RUNNING")

    assert array.submit(spec, at_work="17").tasks == 9 - 2 - 1 + 2
    assert array.submit(spec).tasks == 9 - 2 + 2


@pytest.mark.parametrize("most", [1, 2, 5])
def test_of_one_run_no_more_tasks_wait_than_the_profile_allows(most: int, tmp_path: Path, slurm: Slurm) -> None:
    assert array.submit(chain_spec(tmp_path, most_tasks=most)).tasks == most

    assert slurm.said("--array") == ([f"1-{most}%1"] if most > 1 else [])


@pytest.mark.parametrize(
    ("others", "tasks"), [(MOST_OF_FOLDER - 5, 5), (MOST_OF_FOLDER, 1), (MOST_OF_FOLDER - 50, 11), (0, 11)]
)
def test_all_runs_of_a_folder_have_a_thousand_tasks_and_each_run_at_least_one(
    others: int, tasks: int, spec: JobSpec, slurm: Slurm
) -> None:
    """Tasks of other folders, and jobs that are over, do not count."""
    if others:
        slurm.shows(f"40_[1-{others}%1]", "PENDING", key="other")
    slurm.shows("41_[1-900%1]", "PENDING", key="other", folder="/elsewhere")
    slurm.shows(42, "COMPLETED", key="other")

    assert array.submit(spec).tasks == tasks


def test_a_run_that_has_reached_its_goal_gets_none(tmp_path: Path, slurm: Slurm) -> None:
    toy(Path(), 1, goal=1)

    assert array.submit(chain_spec(tmp_path, goal=1)) == Submitted(Answer.DONE)
    assert slurm.told == []
    assert submissions.newest("demo") is None


def test_the_last_segment_at_work_needs_none_behind_it(tmp_path: Path, slurm: Slurm) -> None:
    slurm.shows(17, "RUNNING")

    assert array.submit(chain_spec(tmp_path, segments=1), at_work="17") == Submitted(Answer.DONE)
    assert slurm.told == []


# --- by which words, behind which jobs -------------------------------------------------------------------------------


def test_sbatch_is_given_the_words_of_the_spec_and_what_tells_the_chain(
    spec: JobSpec, slurm: Slurm, tmp_path: Path
) -> None:
    array.submit(spec)

    (words,) = slurm.told
    log = tmp_path / "logs" / "slurm-%A_%a.log"
    more = [f"--comment={chain_comment('demo')}", f"--output={log}", "--parsable", "--array=1-11%1", "--begin=now+2"]
    assert words == [*WORDS, *more, "--wrap=do it"]
    assert log.parent.is_dir()
    newest = submissions.newest("demo")
    assert newest is not None and newest.job_id == "101"
    assert newest.words == WORDS


def test_a_single_job_has_no_begin_and_a_log_by_its_own_number(tmp_path: Path, slurm: Slurm) -> None:
    array.submit(chain_spec(tmp_path, most_tasks=1))

    assert (slurm.said("--begin"), slurm.said("--array"), slurm.said("--dependency")) == ([], [], [])
    assert slurm.said("--output") == [str(tmp_path / "logs" / "slurm-%j.log")]


def test_an_array_waits_for_the_end_of_all_jobs_of_its_run_and_then_has_no_begin(spec: JobSpec, slurm: Slurm) -> None:
    slurm.shows("16_3", "COMPLETING")
    slurm.shows("16_2", "REQUEUED")  # it comes back after task 3, which alone would not be waited for
    slurm.shows(17, "RUNNING")
    slurm.shows(15, "COMPLETED")
    slurm.shows(18, "RUNNING", key="other")
    slurm.shows(19, "RUNNING", folder="/elsewhere")

    assert array.submit(spec, at_work="17").answer is Answer.DONE

    assert slurm.said("--dependency") == ["afterany:16:17"]
    assert slurm.said("--begin") == []


def test_behind_an_array_of_which_a_task_hangs_the_next_one_waits_for_the_others(spec: JobSpec, slurm: Slurm) -> None:
    slurm.shows("16_3", "COMPLETING")
    slurm.shows("16_4", "RUNNING")
    slurm.shows("17", "RUNNING")
    slurm.ending_for(400)

    assert array.submit(spec, at_work="16_4").answer is Answer.DONE

    assert slurm.said("--dependency") == ["afterany:16_4:17"]


@pytest.mark.parametrize("waits", ["101_[2-4%1]", "101_4", "101"])
def test_where_tasks_wait_nothing_is_submitted(waits: str, spec: JobSpec, slurm: Slurm) -> None:
    slurm.shows("101_1", "RUNNING")
    slurm.shows(waits, "PENDING")

    found = array.submit(spec, at_work="101_1")

    assert (found.answer, found.job_id) == (Answer.DONE, tasks_of(waits)[0])
    assert slurm.told == []


def test_what_attempts_have_shown_of_memory_and_nodes_goes_into_the_words(spec: JobSpec, slurm: Slurm) -> None:
    history = History(RunFolder("demo").history)
    failed = replace(ATTEMPT, kind=EndKind.FAILED, progress_to=ATTEMPT.progress_from, start="", to_checkpoint=None)
    for token, state in enumerate([EndState.OUT_OF_MEMORY] * 2 + [None] * 2, 1):
        history.append(replace(failed, token=token, job_state=state, mem_mb=100, slurm_node=f"node{(token + 1) // 2}"))

    array.submit(spec)

    (words,) = slurm.told
    assert [word for word in words if word.startswith("--mem=")] == ["--mem=225"]
    assert words.index("--mem=225") > words.index("--mem")  # the last one counts
    assert [word for word in words if "exclude" in word] == ["--exclude=node9,node2"]
    newest = submissions.newest("demo")
    assert newest is not None and newest.words == WORDS  # as the plan has it, which the next start compares


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most_of_site", "taken", "sizes"), [(5, 5, [11, 5]), (3, 3, [11, 3]), (1, 1, [11, 1])])
def test_a_site_that_takes_smaller_arrays_is_asked_how_large(
    most_of_site: int, taken: int, sizes: list[int], spec: JobSpec, slurm: Slurm
) -> None:
    slurm.takes_tasks(most_of_site, NO_ARRAY)
    slurm.answer("scontrol", f"printf 'MaxArraySize            = {most_of_site + 1}\\nMaxJobCount = 10000\\n'")

    assert array.submit(spec) == Submitted(Answer.DONE, "101", taken)
    assert slurm.sizes == sizes


def test_a_site_that_does_not_say_how_large_is_asked_for_half(spec: JobSpec, slurm: Slurm) -> None:
    slurm.takes_tasks(1, NO_ARRAY)
    slurm.answer("scontrol", "exit 1")

    assert array.submit(spec) == Submitted(Answer.DONE, "101", 1)
    assert slurm.sizes == [11, 5, 2, 1]


@pytest.mark.parametrize(("most", "sizes"), [(5, [11, 5]), (4, [11, 5, 2]), (1, [11, 5, 2, 1])])
def test_where_the_user_s_jobs_are_limited_half_as_many_are_tried_down_to_one(
    most: int, sizes: list[int], spec: JobSpec, slurm: Slurm
) -> None:
    slurm.takes_tasks(most, FULL)

    assert array.submit(spec) == Submitted(Answer.DONE, "101", sizes[-1])
    assert slurm.sizes == sizes


@pytest.mark.parametrize("said", [SITE_FULL, SITE_FULL_26_05])
def test_where_the_queue_of_the_whole_site_is_full_far_fewer_are_tried_at_once(
    tmp_path: Path, slurm: Slurm, said: str
) -> None:
    slurm.takes_tasks(1, said)

    assert array.submit(chain_spec(tmp_path, segments=90, most_tasks=100)).tasks == 1
    assert slurm.sizes == [99, 12, 1]


@pytest.mark.parametrize(
    "line", ["Slurm temporarily unable to accept job", "Slurm job queue full"], ids=["22.05", "26.05"]
)
def test_an_sbatch_that_would_try_again_for_minutes_is_ended(tmp_path: Path, slurm: Slurm, line: str) -> None:
    """At MaxJobCount; it has left nothing in the queue when it says so [measured, 22.05]."""
    slurm.takes_tasks(1, SITE_FULL)
    path = slurm.folder / "bin" / "sbatch"
    sleeps = f"{{ echo 'sbatch: error: {line}, sleeping and retrying' >&2; exec sleep 600; }}"
    path.write_text(path.read_text().replace("[ $n -le 1 ] ||", f"[ $n -le 1 ] || {sleeps} ||"))
    began = time.monotonic()

    assert array.submit(chain_spec(tmp_path, segments=90)).tasks == 1

    assert slurm.sizes == [99, 12, 1]
    assert time.monotonic() - began < 300


def test_sbatch_is_started_as_outside_of_the_job(spec: JobSpec, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the job around us would bend what it does."""
    for name in ("SLURM_CPUS_PER_TASK", "SBATCH_PARTITION", "SRUN_CPUS"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    slurm.answer("sbatch", f"env > {slurm.folder}/seen; echo 101")

    array.submit(spec)

    seen = (slurm.folder / "seen").read_text().splitlines()
    assert [line for line in seen if line.startswith(("SLURM_", "SBATCH_", "SRUN_"))] == [
        "SLURM_CONF=/etc/slurm/slurm.conf"
    ]


@pytest.mark.parametrize("said", [FULL, SITE_FULL, SITE_FULL_26_05, NO_ARRAY])
def test_where_not_even_one_job_is_taken_the_queue_is_full_and_others_may_submit(
    said: str, spec: JobSpec, slurm: Slurm
) -> None:
    slurm.refuses(said)

    assert array.submit(spec) == Submitted(Answer.FULL, said=said)

    assert slurm.sizes[-1] == 1
    assert submissions.newest("demo") is None


@pytest.mark.parametrize(
    ("said", "answer"), [(AWAY, Answer.LATER), (WRONG, Answer.REFUSED), (f"{WRONG}\n{FAILED} x", Answer.REFUSED)]
)
def test_a_refusal_that_no_smaller_array_heals_is_told_at_once(
    said: str, answer: Answer, spec: JobSpec, slurm: Slurm
) -> None:
    slurm.refuses(said)

    assert array.submit(spec) == Submitted(answer, said=said.splitlines()[0])

    assert slurm.sizes == [11]
    assert submissions.newest("demo") is None


def test_an_sbatch_that_says_nothing_is_tried_later(spec: JobSpec, slurm: Slurm) -> None:
    slurm.answer("sbatch", "exit 3")

    assert array.submit(spec) == Submitted(Answer.LATER, said="sbatch: exit code 3")


def test_a_submission_that_is_ended_with_the_job_is_no_refusal(
    spec: JobSpec, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.answer("sbatch", "kill -TERM $$")
    assert array.submit(spec).answer is Answer.ENDED

    monkeypatch.setattr(segment_process, "_received", {signal.SIGTERM})
    slurm.refuses(WRONG)
    assert array.submit(spec).answer is Answer.ENDED
    assert submissions.newest("demo") is None


def test_without_an_answer_of_squeue_nothing_is_submitted(spec: JobSpec, slurm: Slurm) -> None:
    slurm.answer("squeue", "exit 1")

    assert array.submit(spec) == Submitted(Answer.LATER, said="squeue does not answer")
    assert slurm.told == []


def test_notes_that_cannot_be_written_are_an_error_before_anything_is_submitted(tmp_path: Path, slurm: Slurm) -> None:
    spec = chain_spec(tmp_path, run=replace(chain_spec(tmp_path).run, name="other"))
    Path(".snakemake/unbroken/chains/other").touch()

    with pytest.raises(OSError, match=r"chains/other"):
        array.submit(spec)

    assert slurm.told == []


# --- several that submit ---------------------------------------------------------------------------------------------

SUBMIT = """
import sys
from unbroken.job import array, spec
print(array.submit(spec.read(spec.path_of("demo"))).answer.name)
"""


def test_of_many_that_submit_at_the_same_moment_one_submits_one_array(slurm: Slurm) -> None:
    line = f"me||101_[1-11%1]|PENDING|None|N/A|N/A|N/A|{chain_comment('demo')}|{Path().resolve()}"
    slurm.answer("squeue", f"sleep 0.2; cat {slurm.folder}/queue")  # all have asked before one of them has submitted
    slurm.takes(f"sleep 0.3; echo '{line}' >> {slurm.folder}/queue")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}

    started = [
        subprocess.Popen([sys.executable, "-c", SUBMIT], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    answers = [process.communicate()[0].strip() for process in started]

    assert slurm.said("--array") == ["1-11%1"]
    assert set(answers) <= {"DONE", "SOON"} and "DONE" in answers


def test_what_another_process_submits_after_slurm_was_asked_is_not_submitted_twice(spec: JobSpec, slurm: Slurm) -> None:
    note = ".snakemake/unbroken/chains/demo/1.json"
    slurm.answer("squeue", f'cat {slurm.folder}/queue; echo \'{{"job": "30"}}\' > {note}')

    assert array.submit(spec) == Submitted(Answer.SOON)
    assert slurm.told == []


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_submission_that_took_so_long_that_another_process_made_the_next_one_leaves_that_alone(
    is_taken: bool, spec: JobSpec, slurm: Slurm
) -> None:
    note = Path(".snakemake/unbroken/chains/demo/2.json").resolve()
    slurm.takes(f'echo \'{{"job": "30"}}\' > {note}' + ("" if is_taken else f'; echo "{FULL}" >&2; exit 1'))

    array.submit(replace(spec, submission=replace(spec.submission, most_tasks=1)))

    assert submissions.job_ids("demo") == (["101", "30"] if is_taken else ["30"])


def test_while_another_process_submits_slurm_is_not_even_asked(spec: JobSpec, slurm: Slurm) -> None:
    slurm.answer("squeue", f"touch {slurm.folder}/asked")
    assert submissions.take("demo", None)

    assert array.submit(spec) == Submitted(Answer.SOON)
    assert not (slurm.folder / "asked").exists()


def test_a_process_that_was_killed_over_its_submission_keeps_nobody_from_it(spec: JobSpec, slurm: Slurm) -> None:
    submissions.take("demo", None)
    killed = submissions.newest("demo")
    assert killed is not None
    os.utime(killed.path, (0, 0))

    assert array.submit(spec).answer is Answer.DONE
    assert submissions.job_ids("demo") == ["101"]


@pytest.mark.parametrize("is_out", [True, False])
def test_while_another_user_s_job_does_the_run_the_next_tasks_wait_for_its_end(
    is_out: bool, spec: JobSpec, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = submissions.take("demo", None)
    assert submission is not None
    submission.fill("30")
    slurm.shows(30, "RUNNING" if is_out else "COMPLETED", user="ada")
    slurm.answer("squeue", f'case "$*" in *--me*) exit 0;; *) cat {slurm.folder}/queue;; esac')
    monkeypatch.setattr(os, "getuid", lambda: 4711)

    found = array.submit(spec)

    assert found == Submitted(Answer.DONE, "101", 11)
    assert slurm.said("--dependency") == (["afterany:30"] if is_out else [])


# --- which jobs are the chain's --------------------------------------------------------------------------------------


def job(number: int | str, state: str = "PENDING", key: str = "demo", folder: str = "/somewhere") -> ListedJob:
    return ListedJob(str(number), state, "None", chain_comment(key), Path(folder))


def test_the_waiting_tasks_of_a_run_are_those_of_its_name_and_folder() -> None:
    base = Path("/somewhere")
    others = [job(3, key="demo_2"), job(4, key="other"), job(5, folder="/elsewhere")]
    plain = ListedJob("6", "PENDING", "None", "rule_toy_segment_wildcards_demo_003", base)
    jobs = [job(1, state="RUNNING"), job(2), *others, plain, job("7_2"), job(8, state="COMPLETED")]

    assert array.waiting(jobs, "demo", base) == ["2", "7_2"]
    assert [each.job_id for each in array.alive_of(jobs, "demo", base)] == ["1", "2", "7_2"]
    assert {key: [each.job_id for each in found] for key, found in array.by_chain(jobs, base).items()} == {
        "demo": ["1", "2", "7_2", "8"],
        "demo_2": ["3"],
        "other": ["4"],
    }


def test_an_array_is_canceled_as_far_as_it_waits(slurm: Slurm) -> None:
    slurm.shows("17_1", "RUNNING")
    slurm.shows("17_[2-3%1]", "PENDING")
    slurm.shows("18_[1-2%1]", "PENDING", key="other")
    slurm.answer("scancel", f'echo "$@" > {slurm.folder}/canceled')

    assert array.cancel_waiting("demo") == ["17_2", "17_3"]

    assert (slurm.folder / "canceled").read_text() == "--state=PENDING 17\n"


def test_nothing_is_canceled_where_slurm_does_not_answer(slurm: Slurm) -> None:
    slurm.answer("scancel", f"touch {slurm.folder}/canceled; exit 1")
    slurm.shows(18, "PENDING")
    assert array.cancel_waiting("demo") is None
    (slurm.folder / "canceled").unlink()
    slurm.answer("squeue", "exit 1")

    assert array.cancel_waiting("demo") is None
    assert not array.has_waiting("demo")

    assert not (slurm.folder / "canceled").exists()


@pytest.mark.parametrize(
    ("shown", "tasks"),
    [
        ("17_[2-3,5%1]", ["17_2", "17_3", "17_5"]),
        ("17_[4]", ["17_4"]),
        ("17_4", ["17_4"]),
        ("17", ["17"]),
        ("17+1", ["17+1"]),
        ("17_[1-9:2%1]", ["17_[1-9:2%1]"]),  # with steps it is none of ours
    ],
)
def test_what_waits_of_an_array_is_several_jobs(shown: str, tasks: list[str]) -> None:
    assert tasks_of(shown) == tasks


def test_jobs_are_in_the_order_of_their_numbers_and_tasks() -> None:
    assert sorted(["17_10", "17_2", "9", "17+1", "?"], key=number_of) == ["?", "9", "17+1", "17_2", "17_10"]


def test_a_program_does_not_see_that_its_job_is_the_task_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that took its seed from there would compute something else in each segment."""
    task = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1"}
    for name, value in task.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNBROKEN_ARRAY_TASK", "")

    hide_array()

    assert own_job_id() == "15_3"
    assert not [name for name in os.environ if name.startswith("SLURM_ARRAY")]
    hide_array()  # a second time nothing changes
    assert own_job_id() == "15_3"
    monkeypatch.setenv("SLURM_JOB_ID", "40")  # a job that the program has submitted
    assert own_job_id() == "40"
