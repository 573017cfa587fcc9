"""What Snakemake is given for many jobs: short patterns for the names of runs, and values instead of functions."""

import re
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unbroken.plan.plan import telling_pattern
from unbroken.plan.resources import shared

RULES = st.dictionaries(st.text("ab.1", min_size=1, max_size=5), st.sampled_from(["toy", "torch"]), max_size=12)


# No clock: a machine may stand still for a moment.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RULES)
def test_a_pattern_matches_every_name_of_its_rule_and_none_of_the_others(rules) -> None:
    pattern = telling_pattern(rules, "toy")

    assert {name for name in rules if re.fullmatch(pattern, name)} == {n for n, rule in rules.items() if rule == "toy"}


def test_names_that_begin_differently_make_a_pattern_that_does_not_grow_with_them() -> None:
    trains = {f"train_{number}": "torch" for number in range(1000)}
    counts = {f"count_{number}": "toy" for number in range(1000)}

    assert telling_pattern(trains | counts, "torch") == "t[^/]*"


def test_a_pattern_for_no_name_matches_nothing() -> None:
    assert re.fullmatch(telling_pattern({"a": "toy"}, "torch"), "a") is None


def test_a_value_that_all_runs_share_is_given_once_and_another_is_asked_for_each() -> None:
    ask = shared({"a": 500, "b": None})

    assert shared({"a": 2, "b": 2}) == 2
    assert [ask(SimpleNamespace(run=run)) for run in ("a", "b")] == [500, None]
