"""What Snakemake is given for many jobs: short patterns for the names of runs."""

import re

from support.toyrun import toy_run

from unbroken.plan.plan import Plan


def test_a_pattern_matches_the_runs_of_its_engine_and_no_others() -> None:
    one, none = Plan((toy_run("a.1"), toy_run("b"))), Plan(())
    two = Plan((toy_run("a.1"), toy_run("a_1", engine="torch"), toy_run("b")))

    assert (one.pattern("toy"), two.pattern("toy")) == ("[^/]+", r"a\.1|b")
    for plan, engine in ((one, "torch"), (two, "outside"), (none, "toy")):
        assert re.fullmatch(plan.pattern(engine), "a") is None
