"""What follows the end of a job in the chain of a user's own rule; needs neither Snakemake nor Slurm."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.toy_spec import toy_spec

from snakemake_executor_plugin_unbroken.chain_specs import _memory_by_attempt
from snakemake_executor_plugin_unbroken.segments import work_of
from unbroken.job import rule_state, rule_work
from unbroken.job.policy import Next, NextAction
from unbroken.job.rule_state import RulePauses, RuleState, read_state
from unbroken.slurm.job import EndState
from unbroken.store import attempts
from unbroken.store.exec_note import ExecNote
from unbroken.store.history import Attempt, EndKind, SegmentEnd

PAUSED = EndKind.PAUSED
RULE = toy_spec(keys=None, name="train", last_segment=3, retries=1, memory_mb=(400, 800))


def line(kind: EndKind, job: str, **changes: object) -> Attempt:
    made = attempts.before_work(None, 1, SegmentEnd(kind=kind, message="no such luck"), slurm_job=job)
    return replace(made, progress_to=300.0, unit="steps", **changes)  # type: ignore[arg-type]


def note(kind: EndKind | None, store: str = "store") -> ExecNote:
    return ExecNote("net/de", store, kind, 2)


Ended = tuple[ExecNote | None, SegmentEnd, int]


def end(left: ExecNote | None = None, history: tuple[Attempt, ...] = (), ended_by: EndState | None = None) -> Ended:
    own = next((each for each in reversed(history) if each.slurm_job == "17_2"), None)
    return left, rule_work.end_of(left, own, ended_by), sum(each.kind is PAUSED for each in history)


def after(before: RuleState, ended: Ended) -> tuple[RuleState, NextAction]:
    return rule_work.after(before, *ended, RULE)


def paused(times: int, job: str = "17_2") -> tuple[Attempt, ...]:
    return tuple(line(EndKind.PAUSED, job if number == times else f"17_0{number}") for number in range(1, times + 1))


def test_the_pauses_of_another_run_in_the_same_rule_are_its_own() -> None:
    before = RuleState(note(EndKind.FINISHED, "fold1"), 2)

    state, action = after(before, end(note(PAUSED, "fold2"), paused(1)))

    assert (action, state.pauses) == (NextAction(Next.RESUME), 1)


@pytest.mark.parametrize("kind", [None, EndKind.INTERRUPTED, EndKind.FAILED])
@pytest.mark.parametrize("ended_by", [None, EndState.TIMEOUT, EndState.PREEMPTED, EndState.CANCELLED])
def test_without_a_pause_the_history_and_the_policy_decide(kind: EndKind | None, ended_by: EndState | None) -> None:
    state, action = after(RuleState(), end(note(kind), ended_by=ended_by))

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
    first, _ = after(RuleState(), end(left, ended_by=ended_by))
    _, action = after(first, end(left, ended_by=ended_by))

    assert first.failures == failures
    assert (action.stops, action.why) == (bool(failures), f"rule train failed 2 times: {why}" if failures else "")


def test_each_start_of_snakemake_counts_failures_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RuleState(note(PAUSED), 2, 1, "one").write(".rules/a")

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
