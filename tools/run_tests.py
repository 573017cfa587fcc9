"""Runs one stage of tests: `tools/run_tests.py STAGE [--limit-seconds N] -- PYTEST-ARGUMENTS`.

A test that fails is run once more, alone. If it passes then, the stage is green and says so, with both texts; the cause
belongs into docs/flaky.md. There is no second chance for a promise (tests/support/promises.py), a time-out, a crashed
worker, an error of collection, nor where more than two tests failed.

    UNBROKEN_SECOND_CHANCE=0     no second chance at all
    UNBROKEN_TESTS_DEADLINE=     seconds since 1970 at which the stage ends; what did not run is named, and red
    UNBROKEN_TESTS_BEGIN_UNTIL=  seconds since 1970 after which no test begins; those are named, and not red
    UNBROKEN_TESTS_FIRST_FILE=N  begin with the Nth file of tests, so that it is not always the same ones
    UNBROKEN_KEEP_TIMES=1        write the stage's seconds into tests/times.json
    UNBROKEN_COVERAGE=FILE       measure the coverage of the tests and of what they start, into FILE.* (make coverage)
    UNBROKEN_TEST_SECONDS=FILE   append the seconds of each test to FILE, the slowest first
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import stage_times

REPORTED = Path(__file__).with_name("stage_report.py")
AT_MOST = 2
# Fixtures stop clusters when pytest is interrupted.
GENTLE_SECONDS = 60
COLLECTING_SECONDS = 300
LIMIT_REACHED = 124
INTERRUPTED = 130
# A stage that a test starts has its own.
OURS = (
    "UNBROKEN_SECOND_CHANCE",
    "UNBROKEN_TESTS_DEADLINE",
    "UNBROKEN_TESTS_BEGIN_UNTIL",
    "UNBROKEN_TESTS_FIRST_FILE",
    "UNBROKEN_KEEP_TIMES",
    "UNBROKEN_TEST_SECONDS",
)


@dataclass
class Trial:
    """How one test went: seconds of all phases, texts and kinds of its failures, what it printed."""

    has_ended: bool = False
    was_left_out: bool = False
    seconds: float = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """What one run of pytest came to."""

    code: int = 0
    limit_reached: bool = False
    has_collected: bool = False
    tests: dict[str, Trial] = field(default_factory=dict)
    not_collected: list[str] = field(default_factory=list)

    def failed(self) -> list[str]:
        """Ids of the tests that failed in any phase."""
        return [test for test, went in self.tests.items() if went.failures]

    def not_run(self) -> list[str]:
        """Ids of those that were collected and did not come to their end."""
        return [test for test, went in self.tests.items() if not went.has_ended and not went.was_left_out]

    def left_out(self) -> list[str]:
        """Ids of those that would have begun too late."""
        return [test for test, went in self.tests.items() if went.was_left_out]


class Stage:
    """A stage's arguments and its end."""

    def __init__(self, name: str, arguments: list[str], deadline: float | None) -> None:
        self.name = name
        self._arguments = arguments
        self._deadline = deadline

    def run(self) -> int:
        """The stage's exit code: 0, pytest's own, or 124 where the limit ended it."""
        first = self._pytest([*self._arguments, *_part()])
        _keep_seconds(first)
        if left_out := first.left_out():
            print(_names("no time was left to begin these", left_out))
        if first.limit_reached:
            return self._did_not_run(first)
        if first.code == 0 and (left := first.not_run()):
            print(_names("collected and not run", left))
            return 1
        if first.code != 1 or not first.failed():
            return first.code
        if reason := _why_no_second_chance(first):
            self._say(f"no second chance: {reason}")
            return first.code
        return self._second_chance(first)

    def _second_chance(self, first: Outcome) -> int:
        passed = []
        for test in first.failed():
            self._say(f"once more, alone: {test}")
            alone, output = self._alone(test)
            if alone.code != 0:
                print(output, flush=True)
                self._say(f"failed twice: {test}")
                return LIMIT_REACHED if alone.limit_reached else 1
            passed.append(_both(test, first.tests[test], alone.tests[test]))
        print("\n".join(["failed once, passed alone:", *passed]), flush=True)
        return 0

    def _alone(self, test: str) -> tuple[Outcome, str]:
        with tempfile.TemporaryFile("w+") as output:
            outcome = self._pytest([*self._arguments, "-n0", f"--only-test={test}"], output.fileno())
            output.seek(0)
            return outcome, output.read()

    def _did_not_run(self, first: Outcome) -> int:
        if not first.has_collected:
            arguments = [*self._arguments, "-n0", "--collect-only", "-qq"]
            first = _run_pytest(arguments, COLLECTING_SECONDS, subprocess.DEVNULL)
        print(_names("the time was up; did not run, or not to the end", first.not_run()))
        if failed := first.failed():
            print(_names("failed before that", failed))
        return LIMIT_REACHED

    def _pytest(self, arguments: list[str], output: int | None = None) -> Outcome:
        if self._deadline is None:
            return _run_pytest(arguments, None, output)
        left = self._deadline - time.time()
        return _run_pytest(arguments, left, output) if left > 0 else Outcome(LIMIT_REACHED, limit_reached=True)

    def _say(self, words: str) -> None:
        print(f"== {self.name:<14} {words}", flush=True)


def main(arguments: list[str]) -> int:
    """Run the stage, say in one line how it went; its exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        usage="run_tests.py STAGE [--limit-seconds N] [--times FILE] [-- PYTEST-ARGUMENTS]"
    )
    parser.add_argument("stage")
    parser.add_argument("--limit-seconds", type=float)
    parser.add_argument("--times", type=Path, default=stage_times.KEPT)
    chosen = parser.parse_args(arguments[:at])
    begin = time.monotonic()
    # A shell lets what it starts in the background ignore it, and pytest would too: clusters would stay at the limit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        code = Stage(chosen.stage, arguments[at + 1 :], _deadline(chosen.limit_seconds)).run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    seconds = round(time.monotonic() - begin)
    print(f"== {chosen.stage:<14} {f'FAILED ({code})' if code else 'ok':<12} {seconds:5d} s", flush=True)
    stage_times.tell(chosen.stage, seconds, code, chosen.times)
    return code


def _deadline(limit_seconds: float | None) -> float | None:
    ends = [float(os.environ["UNBROKEN_TESTS_DEADLINE"])] if os.environ.get("UNBROKEN_TESTS_DEADLINE") else []
    ends += [] if limit_seconds is None else [time.time() + limit_seconds]
    return min(ends, default=None)


def _part() -> list[str]:
    until, first = (os.environ.get(f"UNBROKEN_TESTS_{name}") for name in ("BEGIN_UNTIL", "FIRST_FILE"))
    return [*([f"--begin-until={until}"] if until else []), *([f"--first-file={first}"] if first else [])]


def _keep_seconds(outcome: Outcome) -> None:
    """For whoever looks where the time goes."""
    if not (file := os.environ.get("UNBROKEN_TEST_SECONDS")):
        return
    went = sorted(outcome.tests.items(), key=lambda pair: pair[1].seconds, reverse=True)
    with open(file, "a") as table:
        table.writelines(f"{trial.seconds:.2f}\t{test}\n" for test, trial in went)


def _why_no_second_chance(first: Outcome) -> str | None:
    if os.environ.get("UNBROKEN_SECOND_CHANCE") == "0":
        return "UNBROKEN_SECOND_CHANCE=0"
    if first.not_collected:
        return f"{first.not_collected[0]} could not be collected"
    for test in first.failed():
        for kind, _ in first.tests[test].failures:
            if kind != "failure":
                return f"{test}: {kind}"
    if len(first.failed()) > AT_MOST:
        return f"{len(first.failed())} tests failed, more than {AT_MOST}"
    return f"{len(left)} tests did not run" if (left := first.not_run()) else None


def _both(test: str, first: Trial, alone: Trial) -> str:
    """A block for somebody who looks for the cause: what it said when it failed, and when it passed."""
    failed = "\n".join([*(text for _, text in first.failures), *first.printed])
    passed = "\n".join(["passed", *alone.printed])
    lines = [f"  {test}", "    first:", _indented(failed), f"    alone, {alone.seconds:.1f} s:", _indented(passed)]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"      | {line}" for line in text.splitlines())


def _names(title: str, tests: list[str]) -> str:
    return "\n".join([f"{title} ({len(tests)}):", *(f"  {test}" for test in tests)])


def _run_pytest(arguments: list[str], limit_seconds: float | None, output: int | None = None) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="stage-") as folder:
        report = Path(folder) / "report"
        command = [
            sys.executable,
            *_measured(),
            str(REPORTED),
            "-p",
            "stage_report",
            f"--stage-report={report}",
            *arguments,
        ]
        environment = {name: value for name, value in os.environ.items() if name not in OURS}
        # A group of its own: at the limit it is ended whole.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output and subprocess.STDOUT, process_group=0
        )
        outcome = Outcome()
        try:
            process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            outcome.limit_reached = True
            _end(process)
        except KeyboardInterrupt:
            _end(process)
            raise
        outcome.code = process.returncode
        if report.exists():
            _read(report, outcome)
        return outcome


def _measured() -> list[str]:
    if not os.environ.get("UNBROKEN_COVERAGE"):
        return []
    return ["-m", "coverage", "run", f"--rcfile={REPORTED.parents[1] / 'pyproject.toml'}"]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask, then insist; in the end nothing of the group is left."""
    try:
        for number, seconds in ((signal.SIGINT, GENTLE_SECONDS), (signal.SIGTERM, 10)):
            _signal_group(process, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _read(report: Path, outcome: Outcome) -> None:
    for line in report.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            break  # killed while it wrote
        if event["event"] == "collected":
            outcome.has_collected = True
            outcome.tests = {test: Trial() for test in event["ids"]} | outcome.tests
        elif event["event"] == "collection error":
            outcome.not_collected.append(event["id"])
        elif event["event"] == "left out":
            outcome.tests.setdefault(event["id"], Trial()).was_left_out = True
        else:
            _add_phase(outcome.tests.setdefault(event["id"], Trial()), event)


def _add_phase(trial: Trial, event: dict) -> None:
    trial.has_ended = event["is_last"]
    trial.seconds += event["seconds"]
    if event["outcome"] == "failed":
        trial.failures.append((event["kind"], event["text"]))
    # The sections of a later phase hold those of the earlier ones.
    trial.printed = [f"{title}:\n{text}" for title, text in event["printed"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
