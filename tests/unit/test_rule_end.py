"""What follows the end of a job in the chain of a user's own rule; needs neither Snakemake nor Slurm."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.toy_spec import toy_spec

from snakemake_executor_plugin_unbroken.chain_specs import _memory_by_attempt
from snakemake_executor_plugin_unbroken.segments import work_of
from unbroken.job import rule_state, rule_work
from unbroken.job.left_out import leave_out, left_out
from unbroken.job.rule_state import RulePauses, RuleState, read_state
from unbroken.job.spec import JobSpec
from unbroken.runs import attempts
from unbroken.runs.exec_note import ExecNote
from unbroken.runs.history import Attempt
from unbroken.runs.policy import Next, NextAction
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.job import EndState

PAUSED = EndKind.PAUSED
RULE = toy_spec(keys=None, name="train", last_segment=3, retries=1, memory_mb=(400, 800))


def line(kind: EndKind, job: str, **changes: object) -> Attempt:
    made = attempts.before_work(None, 1, SegmentEnd(kind=kind, message="no such luck"), slurm_job=job)
    return replace(made, progress_to=300.0, unit="steps", **changes)  # type: ignore[arg-type]


def note(kind: EndKind | None, store: str = "store") -> ExecNote:
    return ExecNote("net/de", store, kind, 2)


Ended = tuple[ExecNote | None, SegmentEnd, int, str]


def end(
    left: ExecNote | None = None,
    history: tuple[Attempt, ...] = (),
    ended_by: EndState | None = None,
    job: str = "17_2",
    is_out_of_memory: bool = False,
) -> Ended:
    own = next((each for each in reversed(history) if each.slurm_job == job), None)
    made = rule_work.end_of(left, own, ended_by, is_out_of_memory=is_out_of_memory)
    return left, made, sum(each.kind is PAUSED for each in history), job


def after(before: RuleState, ended: Ended, spec: JobSpec) -> tuple[RuleState, NextAction]:
    left, made, pauses, job = ended
    killed = (*before.killed_jobs, *([job] if made.ran_out_of_memory else []))
    return rule_work.after(replace(before, killed_jobs=killed), left, made, pauses, spec)


def paused(times: int, job: str = "17_2") -> tuple[Attempt, ...]:
    return tuple(line(EndKind.PAUSED, job if number == times else f"17_0{number}") for number in range(1, times + 1))


def test_a_pause_is_counted_by_the_history_of_its_run() -> None:
    state, action = after(RuleState(note(None), 1), end(note(PAUSED), paused(2)), RULE)

    assert (action, state.pauses) == (NextAction(Next.RESUME), 2)


def test_used_up_segments_name_what_to_raise() -> None:
    _, action = after(RuleState(note(PAUSED), 2), end(note(PAUSED), paused(3)), RULE)

    assert action == NextAction(
        Next.STOP,
        "net/de: its 3 segments are used up, with 300 steps done; to go on, raise `segments` of rule train, "
        "then start snakemake again",
    )


def test_a_pause_that_adds_nothing_is_no_reason_to_go_on_for_ever() -> None:
    state, first = after(RuleState(note(PAUSED), 1), end(note(PAUSED), paused(1)), RULE)
    _, second = after(state, end(note(PAUSED), paused(1)), RULE)

    assert first.kind is Next.RETRY and "has the rule --anew in it?" in first.why
    assert second.stops and second.why.startswith("rule train failed 2 times: no more segments than before are done")


def test_the_pauses_of_another_run_in_the_same_rule_are_its_own() -> None:
    before = RuleState(note(EndKind.FINISHED, "fold1"), 2)

    state, action = after(before, end(note(PAUSED, "fold2"), paused(1)), RULE)

    assert (action, state.pauses) == (NextAction(Next.RESUME), 1)


@pytest.mark.parametrize("kind", [None, EndKind.INTERRUPTED, EndKind.FAILED])
@pytest.mark.parametrize("ended_by", [None, EndState.TIMEOUT, EndState.PREEMPTED, EndState.CANCELLED])
def test_without_a_pause_the_history_and_the_policy_decide(kind: EndKind | None, ended_by: EndState | None) -> None:
    state, action = after(RuleState(), end(note(kind), ended_by=ended_by), RULE)

    assert (action.stops, action.why, state.failures) == (False, "", 0)
    assert state.note == note(kind)


@pytest.mark.parametrize(
    ("ended_by", "failures"), [(None, 1), (EndState.TIMEOUT, 1), (EndState.PREEMPTED, 0), (EndState.CANCELLED, 0)]
)
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (EndKind.FINISHED, "the rest of the rule failed although its program was done"),
        (None, "no segment of `unbroken exec`, or of a training, began in it"),
    ],
)
def test_a_rule_that_fails_or_takes_too_long_without_a_segment_has_failed(
    kind: EndKind | None, why: str, ended_by: EndState | None, failures: int
) -> None:
    left = note(kind) if kind else None
    first, _ = after(RuleState(), end(left, ended_by=ended_by), RULE)
    _, action = after(first, end(left, ended_by=ended_by), RULE)

    assert first.failures == failures
    assert (action.stops, action.why) == (bool(failures), f"rule train failed 2 times: {why}" if failures else "")


def test_what_was_refused_is_not_tried_again_and_says_why() -> None:
    refused = ExecNote("net/de", "store", EndKind.REFUSED, 0, "net/de: the command line is another one")

    _, action = after(RuleState(), end(refused), RULE)

    assert action == NextAction(Next.STOP, "net/de: the command line is another one")


def test_a_rule_out_of_memory_gets_what_its_next_attempt_asks_for_and_stops_after_its_retries() -> None:
    state, first = after(RuleState(), end(note(None), is_out_of_memory=True), RULE)
    _, second = after(state, end(note(None), job="17_3", is_out_of_memory=True), RULE)

    assert first == NextAction(Next.MORE_MEMORY, "rule train ran out of memory (400 MB); tried again with 800 MB")
    assert second == NextAction(
        Next.STOP, "rule train ran out of memory (800 MB); raise its mem_mb, then start snakemake again"
    )


def test_each_start_of_snakemake_counts_failures_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RuleState(note(PAUSED), 2, 1, ("17_2",), "one").write(".rules/a")

    found = read_state(".rules/a")

    assert found.of_start("one") == found
    assert found.of_start("two") == RuleState(note(PAUSED), 2, start="two")


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

    assert left_out() == [key("a", x="a")]


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
    told, pauses = [], RulePauses(segment.key, 3)
    for number in (1, 2):
        rule_state.RuleState(note(PAUSED, str(tmp_path)), number).write(segment.key)
        told.append([*pauses.new_lines(), *pauses.new_lines()])

    assert told == [["net/de: segment 1 of 3 paused"], ["net/de: segment 2 of 3 paused"]]
