"""Processes that race for a lease, as forks of one prepared process.  Run as a process of its own:

    lease_races.py stale <folder> <rounds>     eight race for the lease of a dead process; the winner waits for the rest
    lease_races.py churn <folder> <rounds>     six take and give back again and again
    lease_races.py twins <folder> <rounds>     two jobs for the same segment of the same run

Prints a line of JSON: what each process saw, by round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kill_harness import ENGINE
from support.toyrun import toy_job

from unbroken.errors import LeaseError
from unbroken.job.lifecycle import run_segment
from unbroken.store import lease
from unbroken.store.claim import Claim
from unbroken.store.history import History
from unbroken.system import host


def in_forks(count: int, work: Callable[[int], str]) -> list[str]:
    """What `work` returns (or raises) in each of so many processes that start together."""
    start_read, start_write = os.pipe()
    ends = []
    for number in range(count):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(start_write)
            os.read(start_read, 1)  # end of file when all are there
            try:
                said = work(number)
            except LeaseError as error:
                said = "held" if ": held, " in str(error) else repr(error)
            except BaseException as error:  # noqa: BLE001  (told to the test)
                said = repr(error)
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        ends.append(read)
    os.close(start_write)
    os.close(start_read)
    said = [_read_all(end) for end in ends]
    for _ in range(count):
        os.wait()
    return said


def _read_all(descriptor: int) -> str:
    with os.fdopen(descriptor) as file:
        return file.read()


def stale(folder: Path, rounds: int) -> list[list[str]]:
    process = subprocess.Popen(["sleep", "60"])
    dead = lease._claim_next(folder, None, 1, {}, 0).claim  # type: ignore[union-attr]
    dead = lease.replace(dead, pid=process.pid, pid_start=host.process_start(process.pid))
    process.kill()
    process.wait()
    return [_race_for_stale(folder / str(number), dead) for number in range(rounds)]


def _race_for_stale(folder: Path, dead: Claim) -> list[str]:
    folder.mkdir()
    (folder / "000001.json").write_text(dead.text)

    def work(number: int) -> str:
        with lease.take(folder, number, 0) as held:
            held.forget_earlier()
            (folder / f"winner-{number}").touch()
            give_up = time.monotonic() + 30
            while len(list(folder.glob("loser-*"))) < 7 and time.monotonic() < give_up:
                time.sleep(0.002)
            held.confirm()
            return f"won {held.claim.token}"

    def noted(number: int) -> str:
        try:
            return work(number)
        finally:
            (folder / f"loser-{number}").touch()

    return in_forks(8, noted)


def churn(folder: Path, rounds: int) -> list[list[str]]:
    """Whoever holds the run makes a file that must not exist and removes it again."""
    lock = folder.with_name("held")

    def work(number: int) -> str:
        for _ in range(rounds):
            with lease.take(folder, number, 60) as held:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
                held.forget_earlier()
                os.unlink(lock)
        return "done"

    return [in_forks(6, work)]


def twins(folder: Path, rounds: int) -> list[list[str]]:
    return [_twins(folder / str(number)) for number in range(rounds)]


def _twins(base: Path) -> list[str]:
    def work(number: int) -> str:
        record = run_segment(toy_job(base, 1, goal=4), ENGINE)
        return f"{record.kind.value} {record.progress.done:g}"

    said = in_forks(2, work)
    attempts = History(toy_job(base).places.history).attempts()
    return [*said, *(f"{attempt.kind.value} in the history" for attempt in attempts)]


def main() -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (the segments' lines)
    folder, rounds = Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir()
    host.boot_id()
    host.this_host()
    host.pid_namespace()
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.001))
    print(json.dumps({"stale": stale, "churn": churn, "twins": twins}[sys.argv[1]](folder, rounds)))


if __name__ == "__main__":
    main()
