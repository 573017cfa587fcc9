"""The next jobs of a run, submitted by a job: which, behind which, by which words, and what stands against it."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.slurm_commands import Slurm, job_of_a_chain, template_in
from support.toyrun import toy, toy_run

from snakemake_executor_plugin_unbroken.detached import Detached
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.detached import resubmit, segment_command, successors, targets
from unbroken.detached.resubmit import Again
from unbroken.detached.successors import DONE, ENDED, NO_ROOM, VERSION, NeedsSnakemake, Template
from unbroken.runs import submissions
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.submissions import Key
from unbroken.slurm.job_end import EndState
from unbroken.slurm.queue import number_of, tasks_of
from unbroken.slurm.this_job import hide_array, own_job_id

FULL = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return job_of_a_chain(tmp_path, monkeypatch)


@pytest.fixture
def template(tmp_path: Path) -> Template:
    return template_in(tmp_path)


def test_behind_the_job_at_work_as_many_are_submitted_as_may_be_out(slurm: Slurm, template: Template) -> None:
    slurm.shows(17, "RUNNING")
    slurm.shows(18, "COMPLETED")

    assert successors.submit("demo", template) == DONE

    assert slurm.said("--dependency") == ["afterany:17", "afterany:17:101", "afterany:17:101:102"]
    assert slurm.said("--wrap") == ["do --after=17 it", "do --after=17,101 it", "do --after=17,101,102 it"]
    words = slurm.told[1]
    named = {option: words[words.index(option) + 1] for option in ("--comment", "--output")}
    log = Path(template.logs) / "rule_toy_segment/demo_003/%j.log"
    assert named == {"--comment": "rule_toy_segment_wildcards_demo_003", "--output": str(log)}
    assert log.parent.is_dir()
    kept = [submissions.newest(Key("demo", number)) for number in (2, 3, 4)]
    assert [found.job_id if found else "" for found in kept] == ["101", "102", "103"]
    assert submissions.newest(Key("demo", 5)) is None


def test_an_array_is_submitted_at_once_behind_the_last_task_of_the_one_before(
    slurm: Slurm, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.shows("17_3", "RUNNING", segment=3)
    for name, value in {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(name, value)

    assert successors.submit("demo", replace(template, is_array=True), at_work=1) == DONE

    (words,) = slurm.told
    assert slurm.said("--array") == ["1-3%1"]
    assert slurm.said("--dependency") == ["afterany:17_3"]
    assert words[words.index("--output") + 1] == str(Path(template.logs) / "rule_toy_segment/demo_002/%A_%a.log")
    kept = [submissions.newest(Key("demo", number)) for number in (2, 3, 4)]
    assert [found.job_id if found else "" for found in kept] == ["101_1", "101_2", "101_3"]


def test_tasks_that_wait_count_one_by_one(slurm: Slurm, template: Template) -> None:
    slurm.shows(17, "RUNNING")
    slurm.shows("101_[2-4%1]", "PENDING", segment=2)

    assert successors.submit("demo", replace(template, is_array=True)) == DONE

    assert slurm.told == []


@pytest.mark.parametrize("said", [FULL, "sbatch: error: Batch job submission failed: Invalid job array specification"])
def test_where_an_array_is_not_taken_its_jobs_are_tried_one_by_one(said: str, slurm: Slurm, template: Template) -> None:
    slurm.shows(17, "RUNNING")
    slurm.answer("sbatch", f'case "$*" in *--array*) echo "{said}" >&2; exit 1;; esac; echo 101')

    assert successors.submit("demo", replace(template, is_array=True, ahead=2)) == DONE

    assert submissions.newest(Key("demo", 2)).job_id == "101"  # type: ignore[union-attr]


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
    array = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1"}
    for name, value in array.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNBROKEN_ARRAY_TASK", "")

    before = hide_array()

    assert before == ["15_1", "15_2"]
    assert own_job_id() == "15_3"
    assert not [name for name in os.environ if name.startswith("SLURM_ARRAY")]
    assert hide_array() == []  # a second time nothing is known of those before
    assert own_job_id() == "15_3"
    monkeypatch.setenv("SLURM_JOB_ID", "40")  # a job that the program has submitted
    assert own_job_id() == "40"


def test_a_job_waits_for_the_end_of_all_jobs_before_it() -> None:
    assert successors.dependency([]) == []
    assert successors.dependency(["17", "18"]) == ["--dependency=afterany:17:18"]


def test_jobs_of_a_driver_submit_none_so_they_take_no_room_in_a_chain() -> None:
    segment, chain = Segment(toy_run(), 1, "toy_segment", ("demo", "001")), Detached(2)
    for job in ("17", "18"):
        chain.found_driven(job)
        chain.add(segment, job)

    assert chain.has_room(segment)
    chain.add(segment, "19")
    chain.add(segment, "20")
    assert not chain.has_room(segment)


def test_a_job_that_leaves_is_waited_for_and_counts_for_no_segment(slurm: Slurm, template: Template) -> None:
    toy(Path(), 1, goal=10**6, segment_minutes=0.01)
    slurm.shows(17, "RUNNING")

    assert successors.submit("demo", replace(template, ahead=2), leaving="17") == DONE

    assert slurm.said("--dependency") == ["afterany:17", "afterany:17:101"]
    assert [words[words.index("--comment") + 1][-3:] for words in slurm.told] == ["002", "003"]


def test_a_segment_that_ends_while_its_job_submits_the_next_one_is_not_taken_for_undone(
    slurm: Slurm, template: Template
) -> None:
    """Else the job counts itself for the next segment, submits nothing, and goes back into the queue to do it."""
    toy(Path(), 1, goal=10**6, segment_minutes=0.01)
    slurm.shows(17, "RUNNING")

    assert successors.submit("demo", replace(template, ahead=2), at_work=1) == DONE

    assert [words[words.index("--comment") + 1][-3:] for words in slurm.told] == ["002"]


def test_no_more_jobs_than_segments(slurm: Slurm, template: Template) -> None:
    targets.keep(toy_run(goal=10**6, segments=2))
    slurm.shows(17, "RUNNING")

    assert successors.submit("demo", template) == DONE
    assert len(slurm.told) == 1

    toy(Path(), 1, goal=1)
    targets.keep(toy_run(goal=1, segments=9))
    assert successors.submit("demo", template, leaving="17") == DONE
    assert len(slurm.told) == 1


def test_what_somebody_submits_after_slurm_was_asked_is_not_submitted_twice(slurm: Slurm, template: Template) -> None:
    slurm.shows(17, "RUNNING")
    text = f'cat {slurm.folder}/queue; mkdir -p .snakemake/unbroken/demo; echo \'{{"job": "30"}}\' > '
    slurm.answer("squeue", f"{text}.snakemake/unbroken/demo/002.1.json")

    assert successors.submit("demo", template) == DONE

    assert slurm.told == []


def test_while_somebody_is_just_submitting_nothing_is(slurm: Slurm, template: Template) -> None:
    slurm.shows(17, "RUNNING")
    assert submissions.take(Key("demo", 3), None)

    assert successors.submit("demo", template) == "somebody else submits jobs of demo just now"
    assert slurm.told == []


@pytest.mark.parametrize("is_out", [True, False])
def test_behind_the_job_of_another_user_a_driver_has_to_submit(
    is_out: bool, slurm: Slurm, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions.take(Key("demo", 1), None)
    submissions.fill(Key("demo", 1), "30")
    slurm.shows(30, "RUNNING" if is_out else "COMPLETED", user="ada")
    slurm.answer("squeue", f'case "$*" in *--me*) exit 0;; *) cat {slurm.folder}/queue;; esac')
    monkeypatch.setattr(os, "getuid", lambda: 4711)

    if is_out:
        with pytest.raises(NeedsSnakemake):
            successors.submit("demo", template)
    else:
        assert successors.submit("demo", template) == DONE
        assert len(slurm.told) == 4


def test_where_the_queue_is_full_those_that_are_out_go_on(slurm: Slurm, template: Template) -> None:
    slurm.refuses(FULL)

    assert successors.submit("demo", template) == NO_ROOM
    slurm.shows(17, "RUNNING")
    assert successors.submit("demo", template) == DONE

    assert submissions.newest(Key("demo", 2)) is None


def test_a_run_without_any_job_that_finds_no_room_is_left_out_once_more(slurm: Slurm, template: Template) -> None:
    slurm.refuses(FULL)
    resubmit.keep("demo", Again("/nowhere", ("false",), template))

    assert resubmit.submit("demo", "") == DONE
    assert resubmit.any_left_out()


def test_why_slurm_takes_no_job_is_told(slurm: Slurm, template: Template) -> None:
    resubmit.keep("demo", Again("/nowhere", ("false",), template))
    slurm.refuses("sbatch: error: Unable to contact slurm controller (connect failure)")
    assert resubmit.submit("demo", "") == "sbatch: error: Unable to contact slurm controller (connect failure)"
    slurm.refuses("sbatch: error: invalid partition specified: shrt")
    assert resubmit.submit("demo", "") == "Slurm refuses them: sbatch: error: invalid partition specified: shrt"
    slurm.answer("sbatch", "exit 3")
    assert resubmit.submit("demo", "") == "sbatch: exit code 3"
    slurm.answer("squeue", "exit 1")
    assert resubmit.submit("demo", "") == "squeue does not answer"
    assert submissions.newest(Key("demo", 1)) is None


def test_a_submission_that_is_ended_with_the_job_is_no_refusal(slurm: Slurm, template: Template) -> None:
    slurm.answer("sbatch", "kill -TERM $$")

    assert successors.submit("demo", template).startswith(ENDED)


def test_a_job_that_is_being_ended_submits_only_if_it_is_the_last_chance(
    slurm: Slurm, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_command, "_heard", {signal.SIGTERM})
    resubmit.keep("demo", Again("/nowhere", ("false",), template))

    assert resubmit.submit("demo", "") == ENDED
    assert slurm.told == []
    assert resubmit.submit("demo", "", is_last_chance=True) == DONE
    assert len(slurm.told) == 4


def test_notes_that_cannot_be_written_are_told(slurm: Slurm, template: Template) -> None:
    resubmit.keep("demo", Again("/nowhere", ("false",), template))
    Path(".snakemake/unbroken/demo").touch()

    assert ".snakemake/unbroken/demo" in resubmit.submit("demo", "")
    assert slurm.told == []


def test_what_attempts_have_shown_of_memory_and_nodes_goes_into_the_words(slurm: Slurm, template: Template) -> None:
    history = History(RunFolder("demo").history)
    failed = replace(ATTEMPT, outcome=Outcome.FAILED, progress_to=ATTEMPT.progress_from, start="", to_checkpoint=None)
    for token, cause in enumerate([EndState.OUT_OF_MEMORY.value] * 2 + [""] * 2, 1):
        history.append(replace(failed, token=token, cause=cause, mem_mb=100, slurm_node=f"node{(token + 1) // 2}"))

    assert successors.submit("demo", replace(template, ahead=1)) == DONE

    (words,) = slurm.told
    assert words[words.index("--mem") + 1] == "225"
    assert [word for word in words if "exclude" in word] == ["--exclude=node9,node2"]


OTHERS = {
    "of a later version": {"template": {"version": VERSION + 1}},
    "none": {"template": None},
    "of a version that had none": {},
}


@pytest.mark.parametrize("kept", OTHERS.values(), ids=OTHERS)
def test_without_a_template_that_is_understood_snakemake_submits(kept: dict[str, object], slurm: Slurm) -> None:
    resubmit.keep("demo", Again(str(Path().resolve()), ("sh", "-c", "touch called")))
    path = Path(".snakemake/unbroken/demo.again.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps({key: data[key] for key in ("folder", "submit")} | kept))

    assert resubmit.submit("demo", "") == DONE
    assert (slurm.told, Path("called").exists()) == ([], True)


def test_a_spoilt_template_is_told_with_what_to_do(slurm: Slurm, template: Template) -> None:
    resubmit.keep("demo", Again("/nowhere", ("false",), template))
    path = Path(".snakemake/unbroken/demo.again.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "template": {"version": VERSION, "words": 7}}))

    assert resubmit.submit("demo", "") == f"{path} is missing or spoilt; start snakemake again"
