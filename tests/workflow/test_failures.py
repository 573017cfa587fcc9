"""A program that fails: tried again while it advances, then only its own run stops and says so in one line."""

from support.workdir import WorkDir, one_step_segments

from unbroken.store.history import EndKind

# Counts, saves after every step, and crashes behind step 3 while there is no file `mended`; with ONCE it mends itself.
PROGRAM = """
import json, os, sys
from pathlib import Path

save, resume, goal = Path(os.environ["UNBROKEN_SAVE"]), os.environ["UNBROKEN_RESUME"], int(os.environ["UNBROKEN_GOAL"])
step = int(Path(resume, "step").read_text()) if resume else 0
while step < goal:
    if step == 3 and not Path("mended").exists():
        if ONCE:
            Path("mended").touch()
        sys.exit("out of luck")
    step += 1
    draft = save / "draft"
    draft.mkdir()
    (draft / "step").write_text(str(step))
    (draft / "progress.json").write_text(json.dumps({"done": step, "goal": goal, "unit": "epochs"}))
    draft.rename(save / f"{step:06d}.ready")
"""


def crashing(**more: object) -> dict[str, object]:
    settings = {"script": "program.py", "goal": 6}
    return {"engine": "torch", "segments": 2, "segment_minutes": 1, "settings": settings, **more}


def outcomes(work: WorkDir, run: str) -> list[tuple[EndKind, float, float]]:
    return [(attempt.kind, attempt.progress_from, attempt.progress_to) for attempt in work.history(run)]


def test_a_crash_with_progress_is_tried_again_from_the_newest_checkpoint(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace("ONCE", "True"))
    work.configure({"demo": crashing()})

    done = work.snakemake()

    assert done.code == 0
    assert outcomes(work, "demo") == [(EndKind.FAILED, 0, 3), (EndKind.FINISHED, 3, 6)]
    assert work.history("demo")[0].line() == (
        "the program ended with exit code 1: last line: out of luck; kept: 3 of 6 epochs; read logs/demo/001.1.log"
    )


def test_the_log_of_a_crash_stays_when_the_next_attempt_goes_well(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace("ONCE", "True"))
    work.configure({"demo": crashing()})

    work.snakemake()

    logs = work.places("demo").log(1).parent
    assert sorted(path.name for path in logs.iterdir()) == ["001.1.log", "001.2.log", "001.log"]
    assert "out of luck" in (logs / "001.1.log").read_text()
    assert "out of luck" not in (logs / "001.log").read_text()


def test_a_program_that_always_crashes_stops_its_own_run_only(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace("ONCE", "False"))
    work.configure({"bad": crashing(), "good": one_step_segments(segments=3, goal=3)})

    done = work.snakemake()

    assert done.code == 1
    failed = EndKind.FAILED
    # Two from the newest checkpoint, then one from the one before it, which comes to the same.
    assert outcomes(work, "bad") == [(failed, 0, 3), (failed, 3, 3), (failed, 3, 3), (failed, 2, 3)]
    assert work.history("good")[-1].kind is EndKind.FINISHED
    assert done.lines("unbroken: ") == [
        "unbroken: bad: 3 of 6 epochs, stopped in segment 1 of 2: the program ended with exit code 1: last line: out "
        "of luck; kept: 3 of 6 epochs; read logs/bad/001.4.log; fix the cause, then start again"
    ]


def test_a_program_that_only_ever_fails_saves_nothing_and_says_so(work: WorkDir) -> None:
    work.write("program.py", "raise SystemExit(7)\n")
    work.configure({"bad": crashing()})

    done = work.snakemake()

    assert done.code == 1
    assert done.lines("unbroken: ") == [
        "unbroken: bad: 0 of 6, stopped in segment 1 of 2: the program ended with exit code 7; nothing new was saved; "
        "read logs/bad/001.2.log; fix the cause, then start again"
    ]


def test_the_brake_says_why_and_what_to_do_in_one_line(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace("ONCE", "False"))
    work.configure({"bad": crashing()})

    work.snakemake("--retries", "4")

    (line,) = [line for line in work.log("bad", 1).splitlines() if "attempts without progress" in line]
    assert line.partition("segment 1: ")[2] == (
        "stopped: runs.bad: 3 attempts without progress, no further one is made; last: the program ended with exit "
        "code 1: last line: out of luck; kept: 3 of 6 epochs; read logs/bad/001.4.log; fix the cause, then start "
        "again"
    )


def test_a_mended_run_goes_on_from_what_was_kept(work: WorkDir) -> None:
    work.write("program.py", PROGRAM.replace("ONCE", "False"))
    work.configure({"bad": crashing()})
    work.snakemake()
    work.write("mended", "")

    done = work.snakemake()

    assert (done.code, done.lines("unbroken: ")) == (0, [])
    assert outcomes(work, "bad")[-1] == (EndKind.FINISHED, 3, 6)


def test_a_program_that_cannot_be_started_is_named(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=1, goal=1, enter=["no-such-program"])})

    done = work.snakemake()

    assert done.code == 1
    assert len(work.history("demo")) == 2
    (line,) = done.lines("unbroken: ")
    assert line.startswith("unbroken: demo: 0 of 1, stopped in segment 1 of 1: cannot start no-such-program ")
    assert line.endswith(
        ": no-such-program is not a program that can be found here; read logs/demo/001.log; fix the cause, then start "
        "again"
    )
