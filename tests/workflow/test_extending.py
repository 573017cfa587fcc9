"""More segments or a further goal: only what is new is computed."""

from support.workdir import WorkDir, one_step_segments


def progress(work: WorkDir) -> list[tuple[float, float]]:
    """From where to where each attempt went."""
    return [(attempt.progress_from, attempt.progress_to) for attempt in work.history("demo")]


def test_one_segment_more_runs_exactly_one_segment(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=9)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=6, goal=9)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (1, 0)
    assert progress(work) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]


def test_a_run_that_has_used_its_segments_says_what_to_type(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=5)})

    done = work.snakemake()

    assert done.code == 0
    assert done.lines("unbroken: ") == [
        "unbroken: demo: 2 of 5 steps, all 2 segments used; set segments: 5 and start again"
    ]


def test_the_number_it_says_is_enough(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=5)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=5, goal=5)})

    done = work.snakemake()

    assert (done.code, done.lines("unbroken: ")) == (0, [])
    assert work.final("demo") == whole(5)


def test_a_raised_goal_goes_on_from_the_last_checkpoint(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=2)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=4, goal=4)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (2, 0)
    assert progress(work) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert work.final("demo") == whole(4)


def test_a_raised_goal_uses_the_segments_that_only_passed_the_finish_on(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=2)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=5, goal=4)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (3, 0)
    assert progress(work) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert work.final("demo") == whole(4)


def test_a_goal_raised_with_all_segments_used_says_what_to_type(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=2)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=2, goal=6)})

    done = work.snakemake()

    assert done.code == 0
    assert done.lines("unbroken: ") == [
        "unbroken: demo: 2 of 6 steps, all 2 segments used; set segments: 6 and start again"
    ]
    assert len(work.history("demo")) == 2


def test_the_results_of_the_lower_goal_stay_until_the_higher_is_reached(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=2)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=3, goal=4)})

    work.snakemake()

    assert work.final("demo") == whole(2)
    assert work.saved("demo") == 3


def test_a_lowered_goal_of_a_finished_run_changes_nothing(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=3)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=3, goal=2)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code, done.lines("unbroken: ")) == (0, 0, [])
    assert work.final("demo") == whole(3)


def test_a_goal_lowered_to_what_is_done_ends_the_run_without_a_step(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=5)})
    work.snakemake("results/demo/segments/002.json")
    work.configure({"demo": one_step_segments(segments=5, goal=2)})

    done = work.snakemake()

    assert (done.code, done.lines("unbroken: ")) == (0, [])
    assert progress(work)[:2] == [(0, 1), (1, 2)] and work.saved("demo") == 2
    assert work.final("demo") == whole(2)


def test_a_goal_lowered_to_what_is_done_ends_a_run_that_has_used_its_segments(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=5)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=2, goal=2)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code, done.lines("unbroken: ")) == (1, 0, [])
    assert work.saved("demo") == 2
    assert work.final("demo") == whole(2)
    assert work.plan() == 0


def test_fewer_segments_than_were_used_change_nothing(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=5)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=2, goal=5)})

    planned, done = work.plan(), work.snakemake()

    assert (planned, done.code) == (0, 0)
    assert len(work.history("demo")) == 3
