"""Kills at real system calls, and their order in a publish, seen and done by strace."""

import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from protocol.kill_harness import PROGRAM, trace
from support.toyrun import checkpoints, hidden, history, start_segment, toy_job

from unbroken.store.select import verify

GOAL = 3
COMMAND = ["sh", "-c", PROGRAM]
SETTINGS = {"goal": GOAL, "keep": 1}
# What the kernel calls it on one machine or another.
CALLS = {
    "rename": "rename,renameat,renameat2",
    "fsync": "fsync",
    "link": "link,linkat",
    "symlink": "symlink,symlinkat",
    "mkdir": "mkdir,mkdirat",
    "unlink": "unlink,unlinkat,rmdir",
}
FROM_PUBLISH = 4  # of the many fsyncs every fourth is enough

pytestmark = [pytest.mark.process, pytest.mark.needs("strace")]


def traced(base: Path, calls: str, *more: str) -> tuple[int, list[str]]:
    """How a segment's own process ended, and its system calls, without its program's."""
    base.mkdir(exist_ok=True)
    output = base / "calls"
    prefix = ["strace", "-qq", "-y", "-e", "signal=none", "-o", str(output), "-e", f"trace={calls}", *more]
    ended = start_segment(base, 1, command=COMMAND, prefix=prefix, **SETTINGS).end()
    return ended.code, output.read_text().splitlines()


def go_on(base: Path) -> str:
    """Runs the rest without strace; the final result."""
    outcome, segment = "", 0
    while outcome != "finished":
        segment += 1
        ended = start_segment(base, segment, command=COMMAND, **SETTINGS).end()
        assert ended.code == 0, ended.screen
        outcome = str(ended.record["kind"])
    return (base / "results/demo/final/trace").read_text()


@pytest.mark.parametrize("name", CALLS)
def test_a_segment_killed_at_a_system_call_goes_on_to_the_same_end(tmp_path: Path, name: str) -> None:
    calls = CALLS[name]
    counted = Counter(line.split("(")[0] for line in traced(tmp_path / "counted", calls)[1])
    step = FROM_PUBLISH if counted.total() > 12 else 1
    for call, number in [(call, at) for call, count in counted.items() for at in range(1, count + 1, step)]:
        base = tmp_path / f"{call}{number}"
        code, _ = traced(base, calls, "-e", f"inject={call}:signal=SIGKILL:when={number}")
        job = toy_job(base)
        assert code == -signal.SIGKILL
        assert all(verify(checkpoint.folder, "demo") for checkpoint in checkpoints(job))

        assert go_on(base) == trace(GOAL)
        assert [name for name in hidden(job.places.root) if not name.startswith("lease/")] == []
        assert not (job.places.checkpoints / ".quarantine").exists()
        assert history(job)[-1].kind.value == "finished"

    assert counted.total() >= 2


def test_a_checkpoint_is_flushed_file_by_file_then_passport_then_folder_then_shown_then_its_place_flushed(
    tmp_path: Path,
) -> None:
    _, lines = traced(tmp_path, "fsync,rename,renameat,renameat2")

    # Out of the program's reach is what it handed over, and beside it what it said of that.
    seen = [short(line) for line in lines if '"001.ready"' not in line and "told-" not in line]
    shown = next(at for at, call in enumerate(seen) if call.startswith("rename 001.ready"))
    start = next(at for at, call in enumerate(seen) if "001.ready" in call)
    assert seen[start : shown + 2] == [
        "fsync 001.ready/final/trace",
        "fsync 001.ready/final",
        "fsync 001.ready/state",
        "fsync 001.ready",
        "fsync 001.ready/manifest.json",
        "fsync 001.ready",
        "rename 001.ready",
        "fsync checkpoints",
    ]


def short(line: str) -> str:
    """`fsync 001.ready/state` of a line of strace's."""
    call = re.sub(r"at2?$", "", line.split("(")[0])
    path = re.search(r"/taken-(001\.ready[^>\",]*)", line) or re.search(r"/demo/([^>\"]*)>", line)
    return f"{call} {path.group(1) if path else line}"
