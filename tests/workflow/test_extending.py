"""More segments or a further goal: only what is new is computed."""

from dataclasses import dataclass

import pytest
from support.workdir import WorkDir, one_step_segments


@dataclass(frozen=True)
class Change:
    """Segments and goal of a run, first and then; how many segments are planned, how far it comes, which is its result.

    Each segment makes one step.
    """

    first: tuple[int, int]
    then: tuple[int, int]
    planned: int
    done: int
    result: int = 0  # none
    said: str = ""
    asked: tuple[str, ...] = ()  # at first


USED = "unbroken: demo: {} of {} steps, all {} segments used; set segments: {} and start again"
CHANGES = {
    "one segment more": Change((5, 9), (6, 9), 1, 6, said=USED.format(6, 9, 6, 9)),
    "as many segments as it said": Change((2, 5), (5, 5), 3, 5, result=5),
    "fewer segments than were used": Change((3, 5), (2, 5), 0, 3, said=USED.format(3, 5, 2, 5)),
    "a raised goal": Change((2, 2), (4, 4), 2, 4, result=4),
    "a raised goal, by segments that only passed the finish on": Change((5, 2), (5, 4), 3, 4, result=4),
    "a raised goal with all segments used": Change((2, 2), (2, 6), 0, 2, result=2, said=USED.format(2, 6, 2, 6)),
    "a raised goal that is not reached yet": Change((2, 2), (3, 4), 1, 3, result=2, said=USED.format(3, 4, 3, 4)),
    "a lowered goal of a finished run": Change((3, 3), (3, 2), 0, 3, result=3),
    "a goal lowered to what is done": Change((5, 5), (5, 2), 3, 2, result=2, asked=("results/demo/segments/002.json",)),
    "a goal lowered to what is done by all segments": Change((2, 5), (2, 2), 1, 2, result=2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_is_new_is_computed(work: WorkDir, whole, name: str) -> None:
    change = CHANGES[name]
    work.configure({"demo": one_step_segments(*change.first)})
    work.snakemake(*change.asked)
    work.configure({"demo": one_step_segments(*change.then)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (change.planned, 0), done.text
    assert done.lines("unbroken: ") == [change.said] * bool(change.said)
    steps = [(attempt.progress_from, attempt.progress_to) for attempt in work.history("demo")]
    assert [step for step in steps if step[0] < step[1]] == [(step, step + 1) for step in range(change.done)]
    assert work.saved("demo") == change.done
    assert work.places("demo").final.exists() == bool(change.result)
    assert not change.result or work.final("demo") == whole(change.result)
    assert work.plan() == 0


def test_a_run_that_has_used_its_segments_says_what_to_type(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=5)})

    done = work.snakemake()

    assert (done.code, done.lines("unbroken: ")) == (0, [USED.format(2, 5, 2, 5)])
