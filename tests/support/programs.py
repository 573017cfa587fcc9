"""Small programs that keep the environment contract, or break it in one way each; the standard library alone."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

SAVE = Path(os.environ["UNBROKEN_SAVE"])
STOP = Path(os.environ["UNBROKEN_STOP"])
RESUME = os.environ["UNBROKEN_RESUME"]
GOAL = float(os.environ["UNBROKEN_GOAL"] or 0) or None


def hand_over(done: float, text: str = "", **more: object) -> None:
    """A checkpoint by the rename of a folder."""
    draft = SAVE / "draft"
    draft.mkdir()
    (draft / "state").write_text(text or f"{done}\n")
    if (large := SAVE / "zeros").exists():
        large.rename(draft / large.name)
    (draft / "progress.json").write_text(json.dumps({"done": done, "goal": GOAL, "unit": "steps", **more}))
    draft.rename(SAVE / f"{done:09g}.ready")


def resumed() -> float:
    return float(Path(RESUME, "state").read_text()) if RESUME else 0.0


def wait_for_ever() -> None:
    while True:
        time.sleep(0.02)


def wait_for_stop() -> None:
    while not STOP.exists():
        time.sleep(0.02)


def obedient() -> int:
    """Saves as soon as it is told, one step further, and leaves."""
    wait_for_stop()
    hand_over(resumed() + 1)
    return 85


def slow_to_save(seconds: str) -> int:
    """Ignores TERM, and takes a while to save once it is told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_for_stop()
    time.sleep(float(seconds))
    return obedient()


def saves_once_before(wrote_seconds: str) -> int:
    """Saves at once, says how long it wrote, and waits for another deadline; then as the obedient one."""
    deadline = Path(os.environ["UNBROKEN_DEADLINE_FILE"])
    told = deadline.read_text()
    hand_over(resumed() + 1, save_seconds=float(wrote_seconds))
    while deadline.read_text() == told and not STOP.exists():
        time.sleep(0.02)
    sooner = float(told) - float(deadline.read_text())
    wait_for_stop()
    hand_over(resumed() + 2, f"{resumed() + 2}\n{sooner:.3f}\n")
    return 85


def one_step() -> int:
    """Goes one step on and leaves by itself."""
    hand_over(resumed() + 1)
    return 0 if resumed() + 1 == GOAL else 85


def deaf_to_the_stop_file() -> int:
    hand_over(resumed() + 1)
    wait_for_ever()
    return 0


def saves_and_stays() -> int:
    """Saves as soon as it is told, and waits for TERM."""
    wait_for_stop()
    hand_over(resumed() + 1)
    wait_for_ever()
    return 0


def deaf_to_term() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return deaf_to_the_stop_file()


def deaf_and_idle() -> int:
    """Ignores everything and never saves."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_for_ever()
    return 0


def crash() -> int:
    return 1


def crash_after_progress() -> int:
    hand_over(resumed() + 1)
    return 1


def zero_too_early() -> int:
    """Says that the goal is reached though it is not."""
    hand_over(resumed() + 1)
    return 0


def zero_without_checkpoint() -> int:
    return 0


def pause_without_checkpoint() -> int:
    return 85


def from_zero() -> int:
    """Forgets to resume."""
    hand_over(1)
    return 85


def stuck() -> int:
    """Says once how far it is, then nothing more, until it is told to stop."""
    Path(os.environ["UNBROKEN_PROGRESS"]).write_text('{"done": 1}')
    wait_for_stop()
    return 85


def silent_but_saving(count: str) -> int:
    """Never writes its progress file, but hands over again and again."""
    for number in range(1, int(count) + 1):
        time.sleep(0.1)
        hand_over(resumed() + number)
    return 85


def large_states() -> int:
    """Hands over again and again what takes a while to digest; no more than two wait."""
    step = resumed()
    while not STOP.exists():
        time.sleep(0.02)
        if len(list(SAVE.glob("*.ready"))) < 2:
            step += 1
            with (SAVE / "zeros").open("wb") as file:
                file.truncate(100_000_000)
            hand_over(step)
    return 85


def two_ways_of_the_same(done: str) -> int:
    """A checkpoint at a given place."""
    hand_over(float(done))
    return 85


def say_nan() -> int:
    """A loss that is not a number any more."""
    hand_over(resumed() + 1, metrics={"loss": float("nan"), "best": 0.5})
    return 85


def loose(code: str) -> int:
    """Files straight in the folder, as the simplest program does it."""
    (SAVE / "state").write_text(f"{resumed() + 1}\n")
    return int(code)


def loose_with_goal(code: str) -> int:
    (SAVE / "state").write_text(f"{resumed() + 1}\n")
    (SAVE / "progress.json").write_text(json.dumps({"done": resumed() + 1, "goal": GOAL}))
    return int(code)


def worker() -> int:
    """Leaves a worker behind that would run for ever."""
    pid = os.fork()
    if pid == 0:
        wait_for_ever()
    Path(os.environ["UNBROKEN_PROGRESS"]).with_name("worker.pid").write_text(str(pid))
    wait_for_stop()
    hand_over(resumed() + 1)
    return 85


def big(megabytes: str) -> int:
    """One checkpoint of a given size, then the end."""
    draft = SAVE / "draft"
    draft.mkdir()
    with (draft / "data").open("wb", buffering=0) as file:
        for _ in range(int(float(megabytes) * 16)):
            file.write(b"x" * 65536)
    (draft / "state").write_text(f"{resumed() + 1}\n")
    (draft / "progress.json").write_text(json.dumps({"done": resumed() + 1, "goal": GOAL}))
    draft.rename(SAVE / "1.ready")
    return 85


def fill_and_hand_over() -> int:
    """Takes all room that is left on the disk, then hands over."""
    Path(os.environ["UNBROKEN_PROGRESS"]).write_text(json.dumps({"done": resumed() + 1, "goal": GOAL}))
    draft = SAVE / "draft"
    draft.mkdir()
    (draft / "state").write_text(f"{resumed() + 1}\n")
    with (draft / "data").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096) == 4096:
            pass
    draft.rename(SAVE / "1.ready")
    wait_for_ever()
    return 85


def say(verdict: str, message: str) -> None:
    Path(os.environ["UNBROKEN_VERDICT"]).write_text(json.dumps({"verdict": verdict, "message": message}))


def reject(*bad: str) -> int:
    """Goes one step on, unless it is given one of the checkpoints that it takes for bad."""
    if RESUME and Path(RESUME, "state").read_text().strip() in bad:
        say("bad_checkpoint", f"a prediction differs by 0.5\nin state {resumed():g}")
        return 1
    return one_step()


def hopeless(code: str) -> int:
    """Hands one step over, then sees that all is lost."""
    hand_over(resumed() + 1)
    say("hopeless", "loss is nan at step 12")
    return int(code)


def reject_too_late() -> int:
    hand_over(resumed() + 1)
    say("bad_checkpoint", "I changed my mind")
    return 1


def malformed_verdict() -> int:
    say("hopless", "a typing mistake")
    return 1


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
