import inspect
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.toyrun import toy_run

from unbroken.plan.plan import Plan
from unbroken.plan.snakemake_speed import asked_often, telling_pattern

NAMES = st.lists(st.text("ab.1", min_size=1, max_size=5), unique=True, max_size=12)


# No clock: a machine may stand still for a moment.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(NAMES, st.data())
def test_a_pattern_matches_every_name_of_its_own_and_none_of_the_others(names, data) -> None:
    mine = set(data.draw(st.lists(st.sampled_from(names)) if names else st.just([])))
    others = [name for name in names if name not in mine]

    pattern = telling_pattern(mine, others)

    assert {name for name in names if re.fullmatch(pattern, name)} == mine


def test_names_that_begin_differently_make_a_pattern_that_does_not_grow_with_them() -> None:
    trains = [f"train_{number}" for number in range(1000)]
    counts = [f"count_{number}" for number in range(1000)]

    assert telling_pattern(trains, counts) == "t[^/]*"


def test_a_pattern_for_no_name_matches_nothing() -> None:
    assert re.fullmatch(telling_pattern([], ["a"]), "a") is None


def test_a_function_that_is_asked_often_does_what_it_did() -> None:
    @asked_often
    def double(wildcards, attempt=2):
        return wildcards * attempt

    assert (double(3), list(inspect.signature(double).parameters)) == (6, ["wildcards", "attempt"])


def test_an_answer_that_all_runs_share_is_given_once_and_another_is_asked_for_each() -> None:
    plan = Plan((toy_run("a", threads=2, mem_mb=500), toy_run("b", threads=2, mem_mb=700)))

    def mem_mb(wildcards):
        return plan.mem_mb(wildcards.run, wildcards.segment)

    assert plan.shared(lambda wildcards: plan.run(wildcards.run).threads) == 2
    assert plan.shared(mem_mb) is mem_mb
