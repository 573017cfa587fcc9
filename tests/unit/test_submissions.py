"""The list of a run's submissions: one process at a time adds to it, and what it says outlives whoever wrote it."""

import multiprocessing
import os
from pathlib import Path

import pytest

from unbroken.job import submissions
from unbroken.job.submissions import KEPT, UNANSWERED_SECONDS
from unbroken.store.layout import CHAINS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def submit(number: int, *words: str) -> None:
    submission = submissions.take("demo", submissions.newest("demo"))
    assert submission is not None
    submission.fill(str(number), words)


def newest_words() -> tuple[str, ...]:
    newest = submissions.newest("demo")
    assert newest is not None
    return newest.words


def take_after_all_have_looked(barrier: object) -> bool:
    newest = submissions.newest("demo")
    barrier.wait()  # type: ignore[attr-defined]
    return submissions.take("demo", newest) is not None


def in_process(barrier: object, answers: object) -> None:
    answers.put(take_after_all_have_looked(barrier))  # type: ignore[attr-defined]


@pytest.mark.process
def test_of_many_that_take_the_next_submission_one_has_it() -> None:
    submit(17)
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(8), context.Queue()
    started = [context.Process(target=in_process, args=(barrier, answers)) for _ in range(8)]
    for process in started:
        process.start()

    found = [answers.get(timeout=60) for _ in started]
    for process in started:
        process.join()

    assert sorted(found) == [False] * 7 + [True]


def test_the_newest_one_counts_and_the_others_are_remembered() -> None:
    assert (submissions.newest("demo"), submissions.job_ids("demo"), submissions.any_of("demo")) == (None, [], False)

    submit(17, "-p", "short")
    submit(40, "-p", "long")

    newest = submissions.newest("demo")
    assert newest is not None and (newest.number, newest.job_id, newest.is_being_filled) == (2, "40", False)
    assert submissions.job_ids("demo") == ["17", "40"]
    assert newest_words() == ("-p", "long")
    assert submissions.any_of("demo") and not submissions.any_of("other")


def test_many_submissions_leave_no_more_files_than_may_be_asked_for() -> None:
    for number in range(1, 31):
        submit(number)

    assert submissions.job_ids("demo")[-1] == "30"
    assert len(list((CHAINS / "demo").iterdir())) <= KEPT + 1
    assert not submissions.take("demo", None)  # of a process that has slept since before the first one
    assert submissions.job_ids("demo")[-1] == "30"


def test_while_slurm_is_asked_it_is_being_filled_and_after_minutes_it_is_not() -> None:
    assert submissions.take("demo", None)
    found = submissions.newest("demo")
    assert found is not None and found.is_being_filled

    for seconds in (UNANSWERED_SECONDS + 1, -UNANSWERED_SECONDS - 1):  # or a clock was set back
        when = found.path.stat().st_mtime - seconds
        os.utime(found.path, (when, when))
        late = submissions.newest("demo")
        assert late is not None and not late.is_being_filled
        os.utime(found.path)


def test_one_that_was_refused_is_given_back() -> None:
    submit(17)
    submission = submissions.take("demo", submissions.newest("demo"))
    assert submission is not None

    submission.give_back()

    newest = submissions.newest("demo")
    assert newest is not None and newest.job_id == "17"


@pytest.mark.parametrize("is_refused", [False, True])
def test_who_is_so_late_that_another_process_has_submitted_writes_on_its_own_submission(is_refused: bool) -> None:
    late = submissions.take("demo", None)
    assert late is not None
    quick = submissions.take("demo", late)
    assert quick is not None

    late.give_back() if is_refused else late.fill("17", ["-p", "short"])
    found = submissions.newest("demo")
    quick.fill("40", ["-p", "long"])

    assert found is not None and found.is_being_filled
    assert submissions.job_ids("demo") == ([] if is_refused else ["17"]) + ["40"]
    assert newest_words() == ("-p", "long")


def test_files_that_are_no_submissions_do_not_count() -> None:
    (CHAINS / "demo").mkdir(parents=True)
    for name in ("spec.json", "state.json", "1.json.draft"):
        (CHAINS / "demo" / name).write_text("{}")

    assert (submissions.newest("demo"), submissions.any_of("demo")) == (None, False)


def test_a_torn_submission_is_not_waited_for_and_those_of_other_runs_stay() -> None:
    torn, other = submissions.take("demo", None), submissions.take("demo2", None)
    assert torn is not None and other is not None

    torn.path.write_text("{")

    found = submissions.newest("demo")
    assert found is not None and not found.is_being_filled
    torn.give_back()
    assert (submissions.newest("demo"), submissions.newest("demo2") is not None) == (None, True)
