"""A driver that is told to leave: what was done is saved, nobody stays behind, the same segment goes on."""

import os
import signal
import sys

from support.workdir import ROOT, WorkDir, one_long_segment, until

from unbroken.store.history import EndKind

COUNTER = ROOT / "tests" / "support" / "counter.py"


def test_a_ctrl_c_saves_and_the_same_segment_goes_on_at_the_next_start(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=250)})
    driver = work.start()
    until(lambda: work.saved("demo") >= 40)
    driver.interrupt()

    interrupted = driver.wait()
    until(lambda: not work.processes())
    done = work.snakemake()

    first, second = work.history("demo")
    assert interrupted.code == 1
    assert interrupted.lines("unbroken: ") == [
        f"unbroken: demo: stopped by Ctrl-C; saved at {first.progress_to} of 250 steps; start again and it goes on"
    ]
    assert (first.kind, first.segment) == (EndKind.INTERRUPTED, 1)
    assert (second.kind, second.segment, second.progress_from) == (EndKind.FINISHED, 1, first.progress_to)
    assert done.code == 0
    assert work.final("demo") == whole(250)


def test_an_interrupt_of_the_driver_alone_reaches_its_segments(work: WorkDir) -> None:
    work.configure({name: one_long_segment(goal=100_000, segment_minutes=60) for name in ("first", "second")})
    driver = work.start("--cores", "2")
    until(lambda: work.saved("first") >= 20 and work.saved("second") >= 20)

    driver.process.send_signal(signal.SIGINT)

    assert driver.wait().code == 1
    for name in ("first", "second"):
        (attempt,) = work.history(name)
        assert attempt.kind is EndKind.INTERRUPTED
        assert attempt.message.startswith(f"stopped by Ctrl-C; saved at {attempt.progress_to} of ")


def test_of_a_program_that_does_not_leave_a_second_ctrl_c_says_what_a_third_would_lose(work: WorkDir) -> None:
    program = [sys.executable, "-I", "-S", str(COUNTER), "--goal", "{goal}", "--steps", "193", "--save-every", "193"]
    settings = {
        "start": [*program, "--waits-for", str(work.root / "never")],
        "files": ["state.txt"],
        "saved_by": "rename",
        "progress_file": "state.txt",
        "progress_pattern": r"^step (\d+)$",
        "goal": 300,
    }
    run = {"engine": "command", "segments": 3, "segment_minutes": 600, "save_minutes": 0.001, "settings": settings}
    work.configure({"demo": run})
    driver = work.start()
    until(lambda: work.saved("demo") == 193)

    driver.interrupt()
    until(lambda: "stopping the program" in driver.text)
    driver.interrupt()
    until(lambda: "demo: still saving; its newest checkpoint has 193 of 300 steps, " in driver.text)
    driver.interrupt()

    assert driver.wait().code == 1
    until(lambda: not work.processes())
    assert work.saved("demo") == 193


def test_a_ctrl_c_leaves_no_process_behind(work: WorkDir) -> None:
    work.configure({name: one_long_segment(goal=10_000) for name in ("first", "second")})
    driver = work.start("--cores", "2")
    until(lambda: work.saved("first") >= 20 and work.saved("second") >= 20)

    driver.interrupt()

    driver.wait()
    until(lambda: not work.processes())
    for name in ("first", "second"):
        assert [attempt.kind for attempt in work.history(name)] == [EndKind.INTERRUPTED]


def test_a_closed_terminal_saves_and_the_same_segment_goes_on_at_the_next_start(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=150)})
    driver = work.start()
    until(lambda: work.saved("demo") >= 40)
    driver.interrupt(signal.SIGHUP)
    until(lambda: not work.processes())
    driver.wait()

    done = work.snakemake()

    first, second = work.history("demo")
    assert (first.kind, second.progress_from) == (EndKind.INTERRUPTED, first.progress_to)
    assert done.code == 0
    assert work.final("demo") == whole(150)


def test_under_nohup_a_closed_terminal_stops_nothing(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=150)})
    driver = work.start(before=["nohup"])
    until(lambda: work.saved("demo") >= 40)
    driver.interrupt(signal.SIGHUP)

    done = driver.wait()

    assert done.code == 0
    assert [attempt.kind for attempt in work.history("demo")] == [EndKind.FINISHED]
    assert work.final("demo") == whole(150)


def test_a_ctrl_c_ends_a_driver_that_waits_for_another_one(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=500)})
    first = work.start()
    until(lambda: work.saved("demo") >= 20)
    (program,) = work.processes("unbroken.engines.toy.program")
    os.kill(program, signal.SIGSTOP)  # it must not end before the second driver has begun to wait
    second = work.start()
    until(lambda: "waiting: the run is held" in second.text)

    second.interrupt()

    assert second.wait().code == 1
    assert "stopped by a signal (SIGINT) while waiting" in second.text
    os.kill(program, signal.SIGCONT)
    assert first.wait().code == 0
    assert work.final("demo") == whole(500)


def test_a_ctrl_c_loses_no_step_that_was_counted(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=10_000) | {"settings": {"goal": 10_000, "step_seconds": 0.01}}})
    driver = work.start()
    until(
        lambda: (
            work.processes("unbroken.engines.toy.program")
            and (work.places("demo").work / "000001/progress.json").exists()
        )
    )

    driver.interrupt()

    driver.wait()
    until(lambda: not work.processes())
    assert work.saved("demo") == work.history("demo")[0].progress_to > 0


def test_a_driver_that_gets_term_waits_for_its_segment_and_ends(work: WorkDir, whole) -> None:
    # Long enough that the signal comes in the first segment, and a goal that this one does not reach.
    work.configure({"demo": one_long_segment(goal=1000, segments=9, segment_minutes=0.1)})
    driver = work.start()
    until(lambda: work.saved("demo") >= 20)
    driver.process.send_signal(signal.SIGTERM)

    told = driver.wait()

    (attempt,) = work.history("demo")
    assert told.code == 1
    assert told.lines("unbroken: ") == [
        f"unbroken: demo: {attempt.progress_to} of 1000 steps after segment 1 of 9; start again to go on"
    ]
    assert not work.processes()
    assert attempt.kind is EndKind.PAUSED
    work.configure({"demo": one_long_segment(goal=1000, segments=9) | {"settings": {"goal": 1000, "step_seconds": 0}}})
    assert work.snakemake().code == 0
    assert work.final("demo") == whole(1000)
