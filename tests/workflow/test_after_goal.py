"""The segments behind a finish: no job, no line and no log for each, and their records all the same."""

from support.workdir import WorkDir, one_step_segments

from unbroken.store.history import EndKind


def jobs(text: str) -> int:
    """Those of segments, as Snakemake tells each."""
    return text.count("rule toy_segment:")


def test_hundreds_of_segments_behind_a_finish_cost_no_job(work: WorkDir) -> None:
    work.configure({"a": one_step_segments(segments=300, goal=3)})

    done = work.snakemake()

    records = work.records("a")
    assert done.code == 0, done.text
    assert jobs(done.text) == 3
    assert [path.name for path in sorted((work.root / "logs" / "a").glob("???.log"))] == [
        "001.log",
        "002.log",
        "003.log",
    ]
    assert [record.kind for record in records] == [EndKind.PAUSED] * 2 + [EndKind.FINISHED] * 298
    assert [record.segment for record in records] == list(range(1, 301))
    assert [record.has_worked for record in records].count(True) == 3
    assert len({record.checkpoint for record in records[2:]}) == 1
    assert "301 of 301 steps (100%) done" in done.text
    assert work.plan() == 0


def test_another_run_works_on(work: WorkDir, whole) -> None:
    work.configure({"a": one_step_segments(segments=50, goal=1), "b": one_step_segments(segments=4, goal=4)})

    done = work.snakemake("--cores", "2")

    assert done.code == 0, done.text
    assert jobs(done.text) == 5
    assert len(work.records("a")) == 50
    assert work.final("b") == whole(4)


def test_a_rule_that_asks_for_a_record_behind_the_finish_gets_it(work: WorkDir) -> None:
    work.configure({"a": one_step_segments(segments=9, goal=2)})

    done = work.snakemake("results/a/segments/005.json")

    assert done.code == 0, done.text
    assert jobs(done.text) == 2
    assert [record.segment for record in work.records("a")] == [1, 2, 3, 4, 5]


def test_where_the_records_are_touched_none_is_made(work: WorkDir) -> None:
    work.configure({"a": one_step_segments(segments=5, goal=2)})
    work.snakemake("results/a/segments/002.json")

    done = work.snakemake("--touch")

    assert len(work.records("a")) == 2
    assert done.code == 0, done.text


def test_a_goal_that_is_raised_uses_the_segments_that_were_left_over(work: WorkDir, whole) -> None:
    work.configure({"a": one_step_segments(segments=40, goal=2)})
    work.snakemake()
    work.configure({"a": one_step_segments(segments=40, goal=4)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (38, 0)
    assert jobs(done.text) == 2
    assert work.final("a") == whole(4)
