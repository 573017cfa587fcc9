"""What follows the end of a job with `unbroken exec` in it; needs neither Snakemake nor Slurm."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.resources import Resources
from snakemake_interface_common.exceptions import WorkflowError
from unit.test_executor_parts import attempt

from snakemake_executor_plugin_unbroken.interruptible import (
    Interruptible,
    Paused,
    early_signal,
    interruptible_of,
    newest_notes,
    of_note,
    paused_by,
    refuse_mistakes,
)
from snakemake_executor_plugin_unbroken.job_outcome import Follows, JobOutcome
from unbroken.runs import submissions
from unbroken.runs.exec_note import STARTED, ExecNote, write_note
from unbroken.runs.history import History
from unbroken.runs.layout import EXEC_NOTES
from unbroken.runs.outcome import Outcome


def job(**changes: object) -> SimpleNamespace:
    """What is asked of a job of Snakemake."""
    values: dict[str, object] = {
        "is_group": lambda: False,
        "params": {},
        "resources": {"segments": 3},
        "wildcards": Wildcards(),
        "rule": SimpleNamespace(name="train"),
        "output": ["model.pt"],
    }
    return SimpleNamespace(**{**values, **changes})


class Wildcards(dict[str, str]):
    """As Snakemake's: a list of values that are also found by name."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.values())


def work(outcome: str = "", segments: int = 3, store: Path = Path("store")) -> Interruptible:
    found = interruptible_of(job(resources={"segments": segments}))
    assert found is not None
    note = ExecNote("net/de", str(store), outcome, 2) if outcome else None
    return Interruptible(found.run, 1, found.rule, found.wildcards, segments, note)


def paused(segments: int) -> Paused:
    return Paused(segments, attempt(Outcome.PAUSED, progress_to=300.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"is_group": lambda: True},
        {"resources": {}},
        {"resources": {"segments": 0}},
        {"resources": {"segments": "many"}},
        {"resources": {"segments": True}},
    ],
)
def test_other_jobs_are_plain(changes: dict[str, object]) -> None:
    assert interruptible_of(job(**changes)) is None


def test_a_pause_is_handed_over_and_told_in_one_line() -> None:
    found = of_note(work("paused"), "17", "FAILED", paused(2), 1)

    assert found is not None
    assert (found.follows, found.line) == (Follows.AGAIN, "net/de: segment 2 of 3 paused, 300 steps done")


def test_used_up_segments_name_what_to_raise() -> None:
    found = of_note(work("paused"), "17", "FAILED", paused(3), 2)

    assert found is not None
    assert found.follows is Follows.STOP
    assert found.line == (
        "net/de: its 3 segments are used up, with 300 steps done; to go on, raise `segments` of rule train, "
        "then start snakemake again"
    )


def test_a_pause_that_adds_nothing_is_no_reason_to_go_on_for_ever() -> None:
    found = of_note(work("paused"), "17", "FAILED", paused(1), 1)

    assert found is not None
    assert found.follows is Follows.RETRY


@pytest.mark.parametrize("outcome", [STARTED, "interrupted", "failed", "paused"])
@pytest.mark.parametrize("state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL", "FAILED", "CANCELLED"])
def test_without_a_pause_the_history_and_the_policy_decide(outcome: str, state: str) -> None:
    assert of_note(work(outcome), "17", state, None, 0) is None


def test_a_cancelled_job_that_paused_is_left_to_the_policy_which_stops() -> None:
    assert of_note(work("paused"), "17", "CANCELLED", paused(2), 1) is None


@pytest.mark.parametrize(
    ("state", "follows"),
    [
        ("FAILED", Follows.RETRY),
        ("TIMEOUT", Follows.RETRY),
        ("NODE_FAIL", Follows.AGAIN),
        ("PREEMPTED", Follows.AGAIN),
    ],
)
def test_a_finished_program_is_asked_again_only_where_its_node_was_lost(state: str, follows: Follows) -> None:
    found = of_note(work("finished"), "17", state, None, 0)

    assert found is not None
    assert found.follows is follows


def test_a_job_without_a_note_is_a_failure_like_any_other() -> None:
    found = of_note(work(), "17", "FAILED", None, 0)

    assert found is not None
    assert (found.follows, found.line) == (
        Follows.RETRY,
        "train: job 17 ended as FAILED; no segment of `unbroken exec`, or of a training, began in it",
    )


def test_what_was_refused_is_not_tried_again_and_says_why() -> None:
    refused = replace(work(), note=ExecNote("net/de", "store", "refused", 0, "net/de: the command line is another one"))

    found = of_note(refused, "17", "FAILED", None, 0)

    assert found == JobOutcome(Follows.STOP, "job 17: net/de: the command line is another one")


def test_of_a_job_that_started_twice_the_last_note_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for restart, outcome in (("2", STARTED), ("10", "paused")):
        write_note(EXEC_NOTES / f"17.{restart}.json", ExecNote("a", "store", outcome, 1))
    write_note(EXEC_NOTES / "171.0.json", ExecNote("b", "store", "failed", 1))
    (EXEC_NOTES / "18.0.json").write_text("{")

    assert {job_id: note.outcome for job_id, note in newest_notes(["17", "18", "19"]).items()} == {"17": "paused"}


def test_pauses_are_counted_in_the_store(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for number, outcome in enumerate([Outcome.PAUSED, Outcome.DIED, Outcome.PAUSED], 1):
        history.append(attempt(outcome, token=number, slurm_job=str(number)))

    found = paused_by(work("paused", store=tmp_path), "3")

    assert found is not None
    assert found.segments == 2
    assert paused_by(work("paused", store=tmp_path), "2") is None
    assert paused_by(work("paused", store=tmp_path), "4") is None


def test_a_comment_names_a_job_only_where_it_can_mean_no_other_one() -> None:
    one, two = (
        interruptible_of(job(wildcards=Wildcards(x="a"))),
        interruptible_of(job(wildcards=Wildcards(x="a", y="b"))),
    )

    assert one is not None and two is not None
    assert work().is_named_by("rule_train")
    assert one.is_named_by("rule_train_wildcards_a")
    assert not two.is_named_by("rule_train_wildcards_a_b")
    assert two.may_be("rule_train_wildcards_a_b")
    assert not two.may_be("rule_train_wildcards_a")


def test_submissions_of_two_jobs_of_a_rule_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = interruptible_of(job(output=["a"])), interruptible_of(job(output=["b"]))

    assert one is not None and two is not None
    assert submissions.take(one.key, None)
    submissions.fill(one.key, "17")
    found = submissions.newest(one.key)
    assert found is not None and found.job_id == "17"
    assert submissions.newest(two.key) is None
    assert json.loads(found.path.read_text())["job"] == "17"


@pytest.mark.parametrize(("runtime", "words"), [(4, ""), (5, " --signal=URG@90"), (None, "")])
def test_slurm_warns_no_job_in_its_first_half(runtime: int | None, words: str) -> None:
    assert early_signal(runtime) == words


def rule(segments: object) -> SimpleNamespace:
    return SimpleNamespace(name="train", resources=Resources.from_mapping({"segments": segments}), params={})


@pytest.mark.parametrize("found", ["many", 0, -1])
def test_segments_that_are_no_number_are_refused(found: object) -> None:
    with pytest.raises(WorkflowError) as error:
        refuse_mistakes([rule(found)], has_driver=True)

    assert str(error.value) == (
        f"unbroken: rule train: resources: segments: found {found!r}, allowed: a whole number, 1 or more"
    )


def test_a_function_for_segments_is_asked_later() -> None:
    refuse_mistakes([rule(20), rule(lambda wildcards: 20), rule(None)], has_driver=True)


def test_without_a_driver_segments_are_refused_with_what_to_type() -> None:
    with pytest.raises(WorkflowError) as error:
        refuse_mistakes([rule(20)], has_driver=False)

    assert str(error.value) == (
        "unbroken: rule train: found resources: segments, which needs a driver that waits; "
        "start snakemake --profile slurm, without --immediate-submit"
    )


def test_rules_without_segments_need_no_driver() -> None:
    plain = SimpleNamespace(name="all", resources=Resources.from_mapping({"mem_mb": 100}), params={})

    refuse_mistakes([plain, rule(None)], has_driver=False)
