"""One segment as a process of its own, run as Snakemake runs it; constants of unbroken may be set for the test."""

import importlib
import json
import os
import signal
import sys
from types import SimpleNamespace

from support.toyrun import KEYS, ProgramEngine, toy_run

from unbroken.engines.toy.engine import ToyEngine
from unbroken.errors import UnbrokenError
from unbroken.job.attempt import Assignment, Job, main
from unbroken.job.lifecycle import run_segment


def sleep_at(name: str) -> None:
    """The process is stopped (SIGSTOP) when it first calls that method, and does the call when it is woken up."""
    where, _, method = name.rpartition(".")
    module, _, kind = where.rpartition(".")
    owner = getattr(importlib.import_module(f"unbroken.{module}"), kind)
    called = getattr(owner, method)

    def asleep(*args: object, **more: object) -> object:
        setattr(owner, method, called)
        os.kill(os.getpid(), signal.SIGSTOP)
        return called(*args, **more)

    setattr(owner, method, asleep)


def run_one() -> None:
    what = json.loads(sys.argv[1])
    for name, value in what["patch"].items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(f"unbroken.{module}"), constant, value)

    if what["asleep_at"]:
        sleep_at(what["asleep_at"])

    def segment(job: Job) -> None:
        try:
            engine = ProgramEngine(what["command"]) if what["command"] else ToyEngine()
            record = run_segment(job, engine)
        except UnbrokenError as error:
            print("error", f"{type(error).__name__}: {error}".replace("\n", " "))
            raise
        left = {"kind": record.kind, "done": record.progress.done, "checkpoint": record.checkpoint}
        print("record", json.dumps({**left, "has_worked": record.has_worked}))

    assignment = Assignment(toy_run(**what["changes"]), KEYS)
    snakemake = SimpleNamespace(
        params=SimpleNamespace(assignment=assignment),
        resources={"attempt": what["driver_attempt"]},
        wildcards=SimpleNamespace(segment=str(what["segment"])),
    )
    main(snakemake, segment)


if __name__ == "__main__":
    run_one()
