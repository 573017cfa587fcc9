"""Runs with copies: each segment makes one step and one piece of the result, in a few milliseconds."""

from __future__ import annotations

from pathlib import Path

from support.toyrun import ProgramEngine, run_program, toy_job, toy_run

from unbroken.copies.replica import Replica
from unbroken.engines.base import Engine
from unbroken.job.attempt import Alarm, Job, SegmentLog
from unbroken.job.copier import Copier
from unbroken.store import lease
from unbroken.store.checkpoint import verified_parts
from unbroken.store.checkpoints import Store
from unbroken.store.record import Record
from unbroken.store.run import RunSpec
from unbroken.store.select import ancestors
from unbroken.system.log import lines_to

GOAL = 6
# Refuses to go on from anything but what it saved; hands over an empty folder and a program too.
PROGRAM = r"""
n=0
[ -z "$UNBROKEN_RESUME" ] || read n < "$UNBROKEN_RESUME/state" || exit 4
n=$((n + 1))
cd "$UNBROKEN_SAVE" || exit 5
mkdir draft draft/parts draft/empty
echo "$n" > draft/state
head -c ${BIG:-100} /dev/zero > draft/big
echo true > draft/tool
chmod +x draft/tool
echo "piece $n" > "draft/parts/piece_$n"
echo "{\"done\": $n, \"goal\": $UNBROKEN_GOAL}" > draft/progress.json
mv draft "$n.ready"
[ $n -lt "$UNBROKEN_GOAL" ] || exit 0
exit 85
"""
STEP = ["sh", "-c", PROGRAM]


def big_step(size_bytes: int) -> list[str]:
    """The same with so large a file."""
    return ["sh", "-c", f"BIG={size_bytes}\n{PROGRAM}"]


def step(base: Path, folder: Path | str, segment: int, command: list[str] = STEP, **copies: object) -> Record:
    """One segment with its copies in `folder`."""
    named = {"folder": str(folder), **copies}
    return run_program(base, command, segment, goal=GOAL, copies=named)


def copied_run(folder: Path | str, **copies: object) -> RunSpec:
    """The run as the config describes it."""
    return toy_run(goal=GOAL, copies={"folder": str(folder), **copies})


def job(base: Path, segment: int = 1) -> Job:
    return toy_job(base, segment, goal=GOAL)


def log(base: Path, segment: int = 1) -> list[str]:
    """What a segment said of its copies."""
    lines = job(base).places.log(segment).read_text().splitlines()
    return [line.partition(": copies: ")[2] for line in lines if ": copies: " in line]


def result(base: Path) -> list[str]:
    """The whole result: every piece in order, each proved, by the chain of the parents."""
    store = Store(job(base).places.checkpoints)
    line = ancestors(store, store.readable()[-1])
    return [path.read_text() for checkpoint in line for path in verified_parts(checkpoint)]


def whole_result(steps: int = GOAL) -> list[str]:
    """The same of a run in one piece."""
    return [f"piece {number}\n" for number in range(1, steps + 1)]


def copy_now(base: Path, folder: Path, **copies: object) -> None:
    """Copy what is there, without a segment's work, and wait for the end of it."""
    copy_of(toy_job(base, 1, goal=GOAL, copies={"folder": str(folder), **copies}), ProgramEngine(STEP))


def copy_of(there: Job, engine: Engine) -> None:
    """Do the same for a job of any engine."""
    assert there.run.copies is not None
    with (
        lines_to(SegmentLog(there).write),
        lease.take(there.places.lease, 1, 60.0) as held,
        Copier(there, there.run.copies, held, Alarm(), engine),
    ):
        pass


def copies(folder: Path) -> Replica:
    """The replica of the run."""
    return Replica(folder / "demo")
