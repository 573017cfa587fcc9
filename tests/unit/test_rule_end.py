"""What follows the end of a job in the chain of a user's own rule; needs neither Snakemake nor Slurm."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from snakemake_executor_plugin_unbroken.chain_specs import _memory_by_attempt
from snakemake_executor_plugin_unbroken.segments import work_of
from unbroken.job import rule_state
from unbroken.job.left_out import leave_out, left_out
from unbroken.job.rule_end import Allowed, RuleEnd, after
from unbroken.job.rule_pauses import RulePauses
from unbroken.job.rule_state import RuleState, read_state
from unbroken.runs import attempts
from unbroken.runs.exec_note import STARTED, ExecNote
from unbroken.runs.history import Attempt, History
from unbroken.runs.job_note import BeforeWork
from unbroken.runs.outcome import Outcome

RULE = Allowed("train", segments=3, retries=1, memory_mb=(400, 800))


def line(outcome: Outcome, job: str, **changes: object) -> Attempt:
    made = attempts.before_work(None, 1, BeforeWork.REFUSED, "no such luck", slurm_job=job)
    return replace(made, outcome=outcome, before_work="", progress_to=300.0, unit="steps", **changes)  # type: ignore[arg-type]


def note(outcome: str, store: str = "store") -> ExecNote:
    return ExecNote("net/de", store, outcome, 2)


def end(outcome: str = "", history: tuple[Attempt, ...] = (), ended_by: str = "", store: str = "store") -> RuleEnd:
    return RuleEnd("17_2", note(outcome, store) if outcome else None, history, ended_by)


def paused(times: int, job: str = "17_2") -> tuple[Attempt, ...]:
    return tuple(line(Outcome.PAUSED, job if number == times else f"17_0{number}") for number in range(1, times + 1))


def test_a_pause_is_counted_by_the_history_of_its_run() -> None:
    found = after(RuleState(note(STARTED), 1), end("paused", paused(2)), RULE)

    assert (found.why_stop, found.state.pauses) == ("", 2)


def test_used_up_segments_name_what_to_raise() -> None:
    found = after(RuleState(note("paused"), 2), end("paused", paused(3)), RULE)

    assert found.why_stop == (
        "net/de: its 3 segments are used up, with 300 steps done; to go on, raise `segments` of rule train, "
        "then start snakemake again"
    )


def test_a_pause_that_adds_nothing_is_no_reason_to_go_on_for_ever() -> None:
    first = after(RuleState(note("paused"), 1), end("paused", paused(1)), RULE)
    second = after(first.state, end("paused", paused(1)), RULE)

    assert "has the rule --anew in it?" in first.line
    assert second.why_stop.startswith("rule train failed 2 times: no more segments than before are done")


def test_the_pauses_of_another_run_in_the_same_rule_are_its_own() -> None:
    before = RuleState(note("finished", "fold1"), 2)

    found = after(before, end("paused", paused(1), store="fold2"), RULE)

    assert (found.why_stop, found.line, found.state.pauses) == ("", "", 1)


@pytest.mark.parametrize("outcome", [STARTED, "interrupted", "failed"])
@pytest.mark.parametrize("state", ["", "TIMEOUT", "PREEMPTED", "CANCELLED"])
def test_without_a_pause_the_history_and_the_policy_decide(outcome: str, state: str) -> None:
    found = after(RuleState(), end(outcome, ended_by=state), RULE)

    assert (found.why_stop, found.line) == ("", "")
    assert found.state.note == note(outcome)


@pytest.mark.parametrize(("state", "failures"), [("", 1), ("TIMEOUT", 1), ("PREEMPTED", 0), ("CANCELLED", 0)])
@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ("finished", "the rest of the rule failed although its program was done"),
        ("", "no segment of `unbroken exec`, or of a training, began in it"),
    ],
)
def test_a_rule_that_fails_or_takes_too_long_without_a_segment_has_failed(
    outcome: str, why: str, state: str, failures: int
) -> None:
    first = after(RuleState(), end(outcome, ended_by=state), RULE)
    second = after(first.state, end(outcome, ended_by=state), RULE)

    assert first.state.failures == failures
    assert second.why_stop == (f"rule train failed 2 times: {why}" if failures else "")


def test_what_was_refused_is_not_tried_again_and_says_why() -> None:
    refused = ExecNote("net/de", "store", "refused", 0, "net/de: the command line is another one")

    assert after(RuleState(), RuleEnd("17_2", refused), RULE).why_stop == "net/de: the command line is another one"


def test_a_rule_out_of_memory_gets_what_its_next_attempt_asks_for_and_stops_after_its_retries() -> None:
    killed = replace(end(STARTED), is_out_of_memory=True)

    first = after(RuleState(), killed, RULE)
    second = after(first.state, replace(killed, job_id="17_3"), RULE)

    assert (first.why_stop, first.line) == ("", "rule train ran out of memory (400 MB); tried again with 800 MB")
    assert second.why_stop == ("rule train ran out of memory (800 MB); raise its mem_mb, then start snakemake again")


def test_each_start_of_snakemake_counts_failures_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RuleState(note("paused"), 2, 1, ("17_2",), "one").write(".rules/a")

    found = read_state(".rules/a")

    assert found.of_start("one") == found
    assert found.of_start("two") == RuleState(note("paused"), 2, start="two")


def test_a_rule_is_asked_for_its_memory_at_each_attempt() -> None:
    class Job:
        attempt, restart_times = 1, 2

        @property
        def resources(self) -> dict[str, int]:
            return {"mem_mb": 400 * self.attempt}

    job = Job()

    assert _memory_by_attempt(job) == (400, 800, 1200)
    assert job.attempt == 1


class Wildcards(dict[str, str]):
    """As Snakemake's: a list of values that are also found by name."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.values())


def key(output: str, **wildcards: str) -> str:
    job = SimpleNamespace(
        is_group=lambda: False,
        params={},
        resources={"segments": 3},
        wildcards=Wildcards(wildcards),
        rule=SimpleNamespace(name="train"),
        output=[output],
    )
    found = work_of(job)
    assert found is not None
    return found.key


def test_chains_whose_wildcards_read_the_same_are_apart() -> None:
    keys = {
        key("a_b.c", x="a_b", y="c"),
        key("a.b_c", x="a", y="b_c"),
        key("a/b.c", x="a/b", y="c"),
        key("a.b/c", x="a", y="b/c"),
    }

    assert len(keys) == 4


def test_the_chain_of_a_rule_finds_room_in_the_queue_later_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave_out(key("a", x="a"))

    with left_out() as found:
        assert found == key("a", x="a")


def test_each_pause_has_its_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    segment = work_of(
        SimpleNamespace(
            is_group=lambda: False,
            params={},
            resources={"segments": 3},
            wildcards=Wildcards(),
            rule=SimpleNamespace(name="train"),
            output=["model.pt"],
        )
    )
    assert segment is not None
    history, told, pauses = History(tmp_path / "history.jsonl"), [], RulePauses(segment.key, 3)
    for number in (1, 2):
        history.append(replace(line(Outcome.PAUSED, f"17_{number}"), token=number))
        rule_state.RuleState(note("paused", str(tmp_path)), number).write(segment.key)
        told.append([*pauses.new_lines(), *pauses.new_lines()])

    assert told == [
        ["net/de: segment 1 of 3 paused, 300 steps done"],
        ["net/de: segment 2 of 3 paused, 300 steps done"],
    ]
