"""What Snakemake is given for many jobs: short patterns for the names of runs, and values instead of functions."""

import re
from types import SimpleNamespace

from support.toyrun import toy_run

from unbroken.plan.plan import Plan
from unbroken.plan.slurm_jobs import shared


def test_a_pattern_matches_the_runs_of_its_engine_and_no_others() -> None:
    one, none = Plan((toy_run("a.1"), toy_run("b"))), Plan(())
    two = Plan((toy_run("a.1"), toy_run("a_1", engine="torch"), toy_run("b")))

    assert (one.pattern("toy"), two.pattern("toy")) == ("[^/]+", r"a\.1|b")
    for plan, engine in ((one, "torch"), (two, "outside"), (none, "toy")):
        assert re.fullmatch(plan.pattern(engine), "a") is None


def test_a_value_that_all_runs_share_is_given_once_and_another_is_asked_for_each() -> None:
    ask = shared({"a": 500, "b": None})

    assert shared({"a": 2, "b": 2}) == 2
    assert [ask(SimpleNamespace(run=run)) for run in ("a", "b")] == [500, None]
