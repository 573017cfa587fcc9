"""What changes the result is refused before anything is queued; what changes only the running starts nothing again."""

import os
from pathlib import Path

import pytest
from support.workdir import WorkDir, one_step_segments

# A program of the user's own: the toy, told its goal by the environment alone.
PROGRAM = """
import os, sys
from unbroken.engines.toy.program import main
sys.argv += ["--goal", os.environ["UNBROKEN_GOAL"]]
sys.exit(main())
"""


def trained(segments: int, goal: int, **more: object) -> dict[str, object]:
    """A run of PROGRAM, one step a segment."""
    settings = {"script": "program.py", "args": ["--step-seconds", 0], "inputs": ["data.txt"], "goal": goal}
    return one_step_segments(segments, goal, **more) | {"engine": "torch", "settings": settings}


@pytest.fixture
def begun(work: WorkDir) -> WorkDir:
    """A run that has used two of its three segments."""
    work.write("program.py", PROGRAM)
    work.write("data.txt", "1 2 3\n")
    work.configure({"demo": trained(segments=2, goal=3)})
    assert work.snakemake().code == 0
    work.configure({"demo": trained(segments=3, goal=3)})
    return work


def test_comments_in_our_own_files_start_nothing_again(work: WorkDir) -> None:
    clone = work.copy_workflow()
    work.configure({"demo": one_step_segments(segments=2, goal=9)})
    work.snakemake()
    for name in ("scripts/segment.py", "workflow/rules/segments.smk", "workflow/rules/common.smk"):
        with (clone / name).open("a") as file:
            file.write("\n# a remark\n")

    assert work.plan() == 0


def test_settings_of_the_running_start_nothing_again(work: WorkDir) -> None:
    changed = {"keep": 7, "threads": 2, "mem_mb": 99, "place": "gpu", "gpus": 1, "note": "other", "save_minutes": 1}
    work.configure({"demo": one_step_segments(segments=1, goal=9)})
    work.snakemake()
    work.configure({"demo": one_step_segments(segments=1, goal=9, **changed) | {"segment_minutes": 5}})

    assert work.plan() == 0


def test_an_input_that_is_touched_starts_nothing_again(begun: WorkDir) -> None:
    for name in ("program.py", "data.txt"):
        os.utime(begun.root / name)

    planned, done = begun.plan(), begun.snakemake()

    assert (planned, done.code) == (1, 0)
    assert [attempt.progress_from for attempt in begun.history("demo")] == [0, 1, 2]


def test_a_changed_input_is_refused_in_one_line_before_anything_is_queued(begun: WorkDir) -> None:
    begun.write("data.txt", "1 2 4\n")
    checkpoint = begun.records("demo")[-1].checkpoint

    done = begun.snakemake()

    (line,) = done.lines("unbroken: ")
    assert done.code == 1
    assert line.startswith(
        f"unbroken: runs.demo: not the computation that checkpoint {checkpoint} belongs to: "
        "data.txt (settings.inputs) was changed; allowed: the same, or a new run name; type: unbroken accept demo "
        "(go on from the old checkpoints with the change), or unbroken restart demo (set the old results aside and "
        "begin anew)"
    )
    assert "Traceback" not in done.text
    assert "Building DAG" not in done.text
    assert len(begun.history("demo")) == 2


def test_a_thread_count_that_shapes_the_result_is_refused(begun: WorkDir) -> None:
    begun.configure({"demo": trained(segments=3, goal=3, threads=2)})
    checkpoint = begun.records("demo")[-1].checkpoint

    done = begun.snakemake("-n")

    (line,) = done.lines("unbroken: ")
    assert done.code == 1
    assert line.startswith(
        f"unbroken: runs.demo: not the computation that checkpoint {checkpoint} belongs to: threads was 1, is 2; "
    )


def test_one_changed_run_is_named_and_no_other_one_is_touched(work: WorkDir) -> None:
    work.configure({name: one_step_segments(segments=1, goal=9) for name in ("first", "second")})
    work.snakemake()
    runs = {name: one_step_segments(segments=2, goal=9) for name in ("first", "second")}
    runs["second"]["settings"]["seed"] = 5
    work.configure(runs)

    done = work.snakemake()

    assert done.code == 1
    assert [line.split(":")[1] for line in done.lines("unbroken: ")] == [" runs.second"]
    assert len(work.history("first")) == 1


def test_an_accepted_change_goes_on_from_the_old_checkpoint(begun: WorkDir) -> None:
    begun.write("data.txt", "1 2 4\n")

    accepted, done = begun.unbroken("accept", "demo"), begun.snakemake()

    assert accepted.code == 0
    assert accepted.text.startswith("demo: accepted: data.txt (settings.inputs) was changed; it goes on from ")
    assert accepted.text.endswith(f"; it goes on from {begun.history('demo')[1].to_checkpoint} with: unbroken run\n")
    assert done.code == 0
    assert [attempt.progress_to for attempt in begun.history("demo")] == [1, 2, 3]


def test_an_accepted_change_can_be_taken_back(begun: WorkDir) -> None:
    begun.write("data.txt", "1 2 4\n")
    begun.unbroken("accept", "demo")
    begun.write("data.txt", "1 2 3\n")

    done = begun.snakemake()

    assert done.code == 0
    assert [attempt.progress_to for attempt in begun.history("demo")] == [1, 2, 3]


def test_a_restarted_run_begins_anew_and_its_old_results_stay(begun: WorkDir) -> None:
    begun.write("data.txt", "1 2 4\n")
    before = begun.records("demo")[-1].checkpoint

    restarted, done = begun.unbroken("restart", "demo"), begun.snakemake()

    (aside,) = (begun.root / "results" / ".restarted").iterdir()
    assert restarted.text == (
        f"demo: everything so far is now in {aside.relative_to(begun.root)}; it begins anew with: unbroken run\n"
    )
    assert (aside / "checkpoints" / before / "state.json").is_file()
    assert (restarted.code, done.code) == (0, 0)
    assert [attempt.progress_to for attempt in begun.history("demo")] == [1, 2, 3]


def test_an_input_that_is_gone_is_named(begun: WorkDir) -> None:
    Path(begun.root / "data.txt").unlink()

    done = begun.snakemake()

    (line,) = done.lines("unbroken: ")
    assert done.code == 1
    assert line.startswith("unbroken: runs.demo.settings.inputs: found 'data.txt', but there is no such file; ")
