"""What an attempt comes to, by what is in the store.  The whole way with real programs is in test_segment_ends.py."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.making import PASSPORT
from support.toyrun import toy_job, toy_run

from unbroken.job.classify import describe_exit, explained, judge
from unbroken.job.settled import is_finished
from unbroken.program.leaving import StopReason
from unbroken.store.attempts import has_newer
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import EndCause, EndKind, SegmentEnd
from unbroken.store.progress import FileDigest, Progress
from unbroken.store.times import NO_TIMES


def checkpoint(done: float, goal: float | None = 100, is_finished: bool | None = None) -> Checkpoint:
    progress = Progress(done, goal)
    claim = progress.is_finished if is_finished is None else is_finished
    return Checkpoint(Path("x"), replace(PASSPORT, progress=progress, is_finished=claim))


@dataclass
class Attempt:
    """As much of a Work as a judgement looks at."""

    base: Path
    last: Checkpoint | None
    origin: Checkpoint | None
    exit_code: int | None = 85
    stop_reason: StopReason | None = None
    left_seconds_at_stop: float = 30.0
    given_seconds: float = 120.0
    goal: int = 100
    stall_minutes: float | None = None
    error: str = ""
    least_minutes: float | None = None
    segment_minutes: float = 1.0
    had_seconds: float = 0.0
    worked_seconds: float = 0.0
    is_out_of_memory: bool = False
    killed_after_seconds: float | None = None
    unsaid: str = ""
    moments: object = field(default_factory=lambda: SimpleNamespace(so_far=NO_TIMES))
    task: object = field(init=False)
    exit_means: int | None = field(init=False)

    def why_nothing_newer(self, task: object) -> str:
        """What its engine knows of it."""
        assert task is self
        return self.unsaid

    def explained(self, kind: EndKind) -> tuple[str, EndCause | None]:
        self.task = self.engine = self
        self.job = toy_job(self.base)
        found = explained(SegmentEnd(kind=kind, message="it ended"), self)  # type: ignore[arg-type]
        assert found.kind is kind
        return found.message, found.cause

    def judged(self) -> tuple[EndKind, str]:
        found = self.end()
        assert (found.cause is EndCause.PARTIAL) is ("goes on in the next job" in found.message)
        return found.kind, found.line()

    def end(self) -> SegmentEnd:
        self.task = self.engine = self
        self.exit_means = self.exit_code
        self.publisher = self
        minutes = {"segment_minutes": self.segment_minutes, "least_minutes": self.least_minutes}
        self.job = toy_job(self.base, goal=self.goal, stall_minutes=self.stall_minutes, **minutes)
        return judge(self)  # type: ignore[arg-type]


CASES = [
    # last, origin, exit code, why it was stopped -> outcome, words
    (20, 10, 85, None, EndKind.PAUSED, "paused at 20 of 100 steps; the program ended with exit code 85"),
    (20, None, 85, StopReason.DEADLINE, EndKind.PAUSED, "paused at 20 of 100 steps"),
    (100, 10, 0, None, EndKind.FINISHED, "goal reached: 100 of 100 steps"),
    (100, 10, -9, StopReason.DEADLINE, EndKind.FINISHED, "goal reached"),
    (20, 10, 0, None, EndKind.FAILED, "exit code 0 (goal reached) but its last checkpoint says 20 of 100 steps"),
    (None, None, 0, None, EndKind.FAILED, "the program ended with exit code 0 (goal reached) but left no checkpoint; "),
    (10, 10, 85, None, EndKind.FAILED, "ended with exit code 85 and left no newer checkpoint; read "),
    (None, None, 85, None, EndKind.FAILED, "ended with exit code 85 and left no newer checkpoint; read "),
    (20, 10, 1, None, EndKind.FAILED, "the program ended with exit code 1; kept: 20 of 100 steps; read "),
    (10, 10, 1, None, EndKind.FAILED, "the program ended with exit code 1; nothing new was saved; read "),
    (10, 10, -11, None, EndKind.FAILED, "the program was ended by SIGSEGV; nothing new was saved"),
    (20, 10, -9, StopReason.DEADLINE, EndKind.PAUSED, "the program was ended by SIGKILL"),
    (10, 10, -15, StopReason.DEADLINE, EndKind.FAILED, "was ended by SIGTERM and left no newer checkpoint"),
    (20, 10, 85, StopReason.WARNED, EndKind.PAUSED, "paused at 20"),
    (20, 10, 85, StopReason.TAKEN_AWAY, EndKind.INTERRUPTED, "preempted or canceled; saved at 20 of 100 steps"),
    (None, None, 85, StopReason.TAKEN_AWAY, EndKind.INTERRUPTED, "preempted or canceled; nothing to save yet"),
    (20, 10, 85, StopReason.STALLED, EndKind.FAILED, "no progress in 3 minutes (stall_minutes); read "),
]


@pytest.mark.parametrize(("last", "origin", "code", "reason", "outcome", "words"), CASES)
def test_the_store_decides_and_not_the_exit_code(
    tmp_path: Path, last: float, origin: float, code: int, reason: StopReason, outcome: EndKind, words: str
) -> None:
    found = [None if done is None else checkpoint(done) for done in (last, origin)]

    judged, message = Attempt(tmp_path, *found, code, reason, stall_minutes=3).judged()

    assert judged is outcome
    assert words in message


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (1, None, "the program ended with exit code 1: KeyError: 'a' in b.py, line 2; kept: 20 of 100 steps; read "),
        (
            85,
            None,
            "the program ended with exit code 85 and left no newer checkpoint; KeyError: 'a' in b.py, line 2; read ",
        ),
        (1, StopReason.DEADLINE, "paused at 20 of 100 steps; the program ended with exit code 1"),
    ],
)
def test_what_the_program_said_of_its_failure_is_in_the_line(
    tmp_path: Path, code: int, reason: StopReason | None, words: str
) -> None:
    origin = checkpoint(20 if code == 85 else 10)
    attempt = Attempt(tmp_path, checkpoint(20), origin, code, reason, error="KeyError: 'a' in b.py, line 2")

    assert attempt.judged()[1].startswith(words)


def test_every_failure_names_the_log_to_read(tmp_path: Path) -> None:
    for last, origin, code, reason, outcome, _ in CASES:
        if outcome is EndKind.FAILED:
            found = [None if done is None else checkpoint(done) for done in (last, origin)]
            message = Attempt(tmp_path, *found, code, reason, stall_minutes=3).judged()[1]
            assert message.endswith(f"; read {tmp_path / 'logs/demo/001.log'}")


def test_a_term_in_the_last_tenth_of_a_segment_is_its_limit_and_no_preemption(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, checkpoint(20), checkpoint(10), 85, StopReason.TAKEN_AWAY, left_seconds_at_stop=5)

    assert attempt.judged()[0] is EndKind.PAUSED

    attempt.left_seconds_at_stop = 11.9
    assert attempt.judged()[0] is EndKind.PAUSED
    attempt.left_seconds_at_stop = 12.1  # of 120
    assert attempt.judged()[0] is EndKind.INTERRUPTED


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("outcome", "kept_bytes", "free", "words"),
    [
        (EndKind.FAILED, None, MIB - 1, "the disk is full, 1,048,575 bytes free, at least 1 missing"),
        (EndKind.INTERRUPTED, None, MIB, "the disk is full, 1,048,576 bytes free, at least 0 missing"),
        (EndKind.FAILED, None, MIB + 1, ""),
        (EndKind.FAILED, 7 * MIB, 7 * MIB, "the disk is full, 7,340,032 bytes free, at least 0 missing"),
        (EndKind.FAILED, 7 * MIB, 3 * MIB, "the disk is full, 3,145,728 bytes free, at least 4,194,304 missing"),
        (EndKind.FAILED, 7 * MIB, 7 * MIB + 1, ""),
        (EndKind.PAUSED, 7 * MIB, 0, ""),
        (EndKind.FINISHED, None, 0, ""),
    ],
)
def test_a_disk_without_room_for_a_checkpoint_like_the_last_is_told_with_the_bytes(
    tmp_path: Path,
    outcome: EndKind,
    kept_bytes: int | None,
    free: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = toy_job(tmp_path).places.root
    monkeypatch.setattr("unbroken.job.classify.disk.free_bytes", lambda path: free if path == root else -1)
    last = None
    if kept_bytes is not None:
        files = {"state": FileDigest(kept_bytes - 1, "0"), "more": FileDigest(1, "0")}
        last = Checkpoint(Path("x"), replace(PASSPORT, files=files))

    message, cause = Attempt(tmp_path, last, None).explained(outcome)

    assert message == (f"it ended; {root}: {words}" if words else "it ended")
    assert cause is (EndCause.STORAGE if words else None)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (EndKind.FAILED, "it ended; it wrote no file; killed: out of memory; the next attempt asks for 1.5 times"),
        (EndKind.INTERRUPTED, "it ended; killed: out of memory; the next attempt asks for 1.5 times"),
        (EndKind.PAUSED, "it ended"),
    ],
)
def test_an_attempt_that_failed_is_told_with_what_the_engine_and_the_kernel_know(
    tmp_path: Path, outcome: EndKind, words: str
) -> None:
    attempt = Attempt(tmp_path, None, None, unsaid="it wrote no file", is_out_of_memory=True)

    message, cause = attempt.explained(outcome)

    assert message == (f"{words} as much (memory_growth)" if "memory" in words else words)
    assert cause is None


@pytest.mark.parametrize(
    ("error", "cause"),
    [("OSError: No space left on device", EndCause.STORAGE), ("ValueError: no space", None), ("", None)],
)
def test_a_disk_is_blamed_by_the_programs_own_words_alone(tmp_path: Path, error: str, cause: EndCause | None) -> None:
    """Not by ours: a log may be called anything."""
    base = tmp_path / "No space left on device"
    base.mkdir()
    attempt = Attempt(base, None, None, 1, error=error, unsaid="Input/output error")

    found = explained(attempt.end(), attempt)  # type: ignore[arg-type]

    assert found.cause is cause and str(base) in found.line()


# A run with segments of eight hours that takes jobs of one hour and more: this one had two hours, 110 minutes of work.
LESS = {"segment_minutes": 480, "least_minutes": 60, "given_seconds": 7200, "worked_seconds": 6600}


@pytest.mark.parametrize(
    ("changes", "minutes"),
    [
        ({}, "110"),
        ({"had_seconds": 3600}, "170"),
        ({"had_seconds": 432 * 60 - 6601}, "432"),
        ({"had_seconds": 432 * 60 - 6600}, ""),  # nine tenths of a segment are one
        ({"given_seconds": 432 * 60 - 1, "worked_seconds": 432 * 60 - 1}, "432"),
        ({"given_seconds": 432 * 60, "worked_seconds": 432 * 60 - 2}, ""),  # the job had the time of a segment
        ({"worked_seconds": 3600}, "60"),
        ({"worked_seconds": 3599}, ""),  # it left much too early
        ({"stop_reason": StopReason.WARNED}, ""),
        ({"stop_reason": StopReason.DEADLINE}, "110"),
        ({"least_minutes": None}, ""),
    ],
)
def test_a_job_that_got_less_time_is_a_part_of_a_segment(
    tmp_path: Path, changes: dict[str, object], minutes: str
) -> None:
    outcome, message = Attempt(tmp_path, checkpoint(20), checkpoint(10), **{**LESS, **changes}).judged()  # type: ignore[arg-type]

    assert outcome is (EndKind.INTERRUPTED if minutes else EndKind.PAUSED)
    assert (f"this segment has had {minutes} of 480 minutes and goes on in the next job" in message) is bool(minutes)


def test_a_job_that_was_killed_while_stopping_is_no_short_job(tmp_path: Path) -> None:
    """Both may be true; that one makes the next attempt stop earlier."""
    attempt = Attempt(tmp_path, checkpoint(20), checkpoint(10), **LESS, killed_after_seconds=3.0004)  # type: ignore[arg-type]
    end = attempt.end()

    found = explained(end, attempt)  # type: ignore[arg-type]

    assert (end.cause, found.cause) == (EndCause.PARTIAL, EndCause.KILLED_STOPPING)
    assert (found.kind, found.killed_after_seconds) == (EndKind.INTERRUPTED, 3.0)


@pytest.mark.parametrize(
    ("done", "reached", "goal", "claim"),
    [
        (100, 100, 100, True),
        (100, 100, 50, True),  # lowered
        (100, 100, 150, False),  # raised
        (120, 100, 110, True),  # raised, but it had gone further
        (50, 100, 40, False),  # the program has not said so itself
        (100, 100, None, True),
        (7, None, 100, True),  # a program without goals said that it is done
    ],
)
def test_a_raised_goal_reopens_and_a_lowered_one_does_not(
    done: float, reached: float, goal: float, claim: bool
) -> None:
    said = reached is None or done >= reached

    assert is_finished(checkpoint(done, reached, said), toy_run(goal=goal)) is claim


def test_a_program_that_reached_the_goal_before_it_was_raised_is_not_judged_to_have_finished(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, checkpoint(100, 100), checkpoint(10), 85, goal=150)

    assert attempt.judged()[0] is EndKind.PAUSED


def test_a_checkpoint_at_the_same_place_is_no_step_forward() -> None:
    assert [has_newer(checkpoint(done), checkpoint(10)) for done in (9, 10, 11)] == [False, False, True]
    assert has_newer(checkpoint(0), None)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (-9, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
        (None, "was not started"),
    ],
)
def test_exit_codes_are_told_in_words(code: int | None, text: str) -> None:
    assert describe_exit(code) == text
