"""Rehearse a run: work it whole, whole again, and in pieces with kills; compare, and give the verdict."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.rehearsal.compare import Difference
from unbroken.rehearsal.piece import Piece, Way
from unbroken.rehearsal.results import Results, blamed_of, listed, nothing_to_blame, reason_of
from unbroken.rehearsal.stage import Stage, alone
from unbroken.rehearsal.whole import Whole, with_goal
from unbroken.rehearsal.wrong_restore import make_wrong
from unbroken.store.history import EndKind
from unbroken.store.rehearsal import FOLDER, Rehearsal, Verdict
from unbroken.store.run import IdentityKeys, RunSpec, identity_of
from unbroken.system.clock import utc_now

logger = logging.getLogger(__name__)

# So much of the work is done in the first piece, and in the second; the smaller share where a piece was done before it
# could be killed.
SHARES = (0.25, 0.1)
# Of the progress that a run made in the time given, so much is the goal of a shorter one.
SHORTER = 0.6
# So many differences are noted.
MOST_FINDINGS = 100
_ENDS = {Way.WHOLE: EndKind.FINISHED, Way.STOP: EndKind.PAUSED, Way.END: EndKind.FINISHED}


class Unjudged(Exception):
    """Report that there is nothing to compare; `verdict` says why in one word, the text in a line."""

    def __init__(self, verdict: Verdict, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


class DoneBefore(Unjudged):
    """Report that a piece came to its end before it could be ended."""


@dataclass
class Rehearser:
    """Rehearse a run once; `minutes` is what one run, and the wait for one save, may take."""

    run: RunSpec
    keys: IdentityKeys
    engine: Engine
    base: Path
    minutes: float
    read_only: Collection[str] = ()  # paths in the folder that the program only reads
    _origins: list[tuple[Way, float]] = field(default_factory=list)
    _known: Whole | None = None
    _loss: str = ""  # which files the program wrote, and no result has

    def __post_init__(self) -> None:
        # Segments that are ended by us and not by their time.
        self._short = replace(
            self.run, segment_minutes=max(6 * self.minutes, 2.0), attempts_without_progress=99,
            keep=max(self.run.keep, 3), least_minutes=None, copies=None,
        )  # fmt: skip
        self._root = self.base / FOLDER / self.run.name
        self._stage = Stage(self.run, self.keys, self.engine, self.base, self._root, self.read_only)
        self._results = Results(self._stage)

    def rehearse(self) -> Rehearsal:
        """Return the verdict; keep what the program left next to it where something differs.

        Raise ConfigError if the run is being rehearsed already, or the folder is too large to copy.
        """
        identity = identity_of(self.run, self.keys, self.base).digest
        with alone(self.run.name, self.base):
            shutil.rmtree(self._root, ignore_errors=True)
            try:
                verdict, reason, findings = self._judged()
            except Unjudged as why:
                verdict, reason, findings = why.verdict, str(why), []
            finally:
                self._stage.end()
                shutil.rmtree(self._root / "stage", ignore_errors=True)
            if verdict is Verdict.IDENTICAL:
                shutil.rmtree(self._root, ignore_errors=True)
            done = Rehearsal(
                self.run.name, verdict, reason, utc_now(), self._short.goal, tuple(findings[:MOST_FINDINGS]),
                self._known.progress_line(origin for _, origin in self._origins) if self._known else "",
                identity,
            )  # fmt: skip
            done.write(self.base)
            return done

    def _judged(self) -> tuple[Verdict, str, list[str]]:
        self._whole()
        self._whole_again()
        itself = self._results.differences("again")
        if itself:
            logger.info(f"differs from itself, of two whole runs: {listed(each.text() for each in itself)}")
        try:
            self._pieces(SHARES[0])
        except DoneBefore as why:
            logger.info(f"{why}; once more, with shorter pieces")
            self._pieces(SHARES[1])
        found = self._results.differences("pieces")
        if blamed := blamed_of(found, itself):
            reason = reason_of(blamed, self._origins, itself)
            return Verdict.DIFFERS, reason, [self._loss] * bool(self._loss) + [each.text() for each in blamed]
        verdict, reason, told = nothing_to_blame(itself, self._results)
        if self._loss:
            verdict, reason = Verdict.LOSES_OUTPUT, self._loss
        elif verdict is Verdict.IDENTICAL and (doubt := self._doubt(itself)):
            verdict, reason = Verdict.NOT_PROVEN, doubt
        return verdict, reason, told

    # --- the whole run, twice ---

    def _whole(self) -> None:
        """Execute the run without interruption, to a smaller goal if it takes too long; learn what pieces need."""
        self._stage.begin("whole")
        piece = self._worked(Way.WHOLE, self.minutes * 60)
        if piece.is_out_of_time:
            self._shorten(piece.live() or piece.done())
            self._stage.begin("whole")
            piece = self._worked(Way.WHOLE, 2 * self.minutes * 60)
        self._confirm_whole(piece)
        self._known = known = Whole.of(piece, self.engine)
        self._results.keep("whole")
        logger.info(f"whole: {piece.seconds:.0f} s; start {known.start_seconds:.1f} s, save {known.save_seconds:.1f} s")

    def _whole_again(self) -> None:
        self._stage.begin("again")
        self._confirm_whole(self._worked(Way.WHOLE, 2 * self.minutes * 60))
        self._results.keep("again")
        if lost := self._results.lost():
            self._loss = (
                f"{listed(lost)}: written by the program, and not in final/; name what the result must have in "
                f"runs.{self.run.name}.settings, or drop it there with discard: [GLOB]"
            )

    def _confirm_whole(self, piece: Piece) -> None:
        if piece.is_out_of_time:
            raise self._not_tested(f"it is not done within {self.minutes:g} minutes")
        if not piece.is_met or piece.kind is not EndKind.FINISHED:
            raise Unjudged(Verdict.FAILS, f"the whole run, without any stop: {piece.reason}")

    def _shorten(self, done: float) -> None:
        """Choose a goal that is reached sooner, by how far the run came in the time that it had."""
        goal, short = self.run.goal, int(done * SHORTER)
        if "goal" not in self.run.settings:
            raise self._not_tested(f"it is not done within {self.minutes:g} minutes and has no goal to make smaller")
        if short < 1:
            raise self._not_tested(f"it comes to {done:.3g} within {self.minutes:g} minutes")
        what = "it" if goal is None else f"{goal:.10g}"
        logger.info(f"{what} takes longer than {self.minutes:g} minutes: rehearsed to {short} (--goal)")
        self._short = with_goal(self._short, short)

    # --- the pieces ---

    def _pieces(self, share: float) -> None:
        self._stage.begin("pieces")
        self._origins.clear()
        before: Way | None = None
        for way in (Way.STOP, Way.KILL, Way.KILL_SAVE, Way.END):
            if before:
                self._stage.move_on()
            piece = self._worked(way, self.minutes * 60 * (2 if way is Way.END else 1), share)
            if before:
                self._note_origin(before, piece)
            self._confirm_met(piece, f"after {before.value}" if before else way.value)
            if way is not Way.END:
                logger.info(piece.line())
            before = way
        self._results.keep("pieces")

    def _note_origin(self, before: Way, piece: Piece) -> None:
        """Note where the piece resumed that came after one which ended so."""
        self._origins.append((before, piece.origin))
        if piece.is_behind:
            raise Unjudged(
                Verdict.FAILS,
                f"after {before.value}: it was to resume from {piece.origin:.10g}, and said {piece.first:.10g} soon "
                "after: it starts from the beginning (is the resume ignored?)",
            )
        if piece.origin <= 0:
            raise self._not_tested(f"{before.value}: nothing was saved before")

    def _confirm_met(self, piece: Piece, when: str) -> None:
        """Raise why a piece could not be ended in its way, or how it ended by itself otherwise than it should."""
        way = piece.way.value
        if piece.is_met and _ENDS.get(piece.way) in (None, piece.kind):
            return
        if piece.is_out_of_time:
            what = "it does not leave" if piece.way is Way.STOP else f"no save within {self.minutes:g} minutes"
            raise self._not_tested(f"{way}: {what}; read {self._root / 'logs'}")
        if piece.kind is EndKind.FINISHED:
            text = f"{way}: it was done before; type --goal with a larger one, or --minutes"
            raise DoneBefore(Verdict.NOT_TESTED, text)
        if not piece.checkpoints():
            raise self._not_tested(f"{way}: it saved nothing ({piece.reason})")
        raise Unjudged(Verdict.FAILS, f"{when}: {piece.reason}")

    def _not_tested(self, text: str) -> Unjudged:
        return Unjudged(Verdict.NOT_TESTED, f"{text}; type --minutes {3 * self.minutes:g}")

    # --- the control ---

    def _doubt(self, itself: list[Difference]) -> str:
        """Execute one more piece with a wrong restore; return why the comparison proves nothing, empty if it is found.

        A program that computes all again from the beginning, or whose results do not depend on its state, would else
        look like one that resumes.
        """
        made = make_wrong(self._stage.places)
        if made is None:
            return "all checkpoints hold the same, so nothing shows whether one is put back"
        checkpoint, wrong = made
        self._stage.move_on()
        piece = self._worked(Way.CONTROL, 2 * self.minutes * 60)
        is_finished = not piece.is_met or piece.kind is EndKind.FINISHED
        if piece.origin != checkpoint.passport.progress.done or not is_finished:
            return f"the control did not begin with {wrong}: {piece.reason}"
        if found := self._found_in(piece, itself):
            logger.info(f"control: with {wrong} it was found in {piece.seconds:.0f} s: {found}")
            return ""
        return f"with {wrong} it left the same results: they do not depend on what is put back"

    def _found_in(self, piece: Piece, itself: list[Difference]) -> str:
        if piece.is_behind:
            return f"it said {piece.first:.10g} soon after the start from {piece.origin:.10g}"
        if not piece.is_met:
            return "it came to no end" if piece.is_out_of_time else piece.reason
        self._results.keep("control")
        blamed = blamed_of(self._results.differences("control"), itself)
        return blamed[0].text() if blamed else ""

    # --- one piece ---

    def _worked(self, way: Way, enough_seconds: float, share: float = 0.0) -> Piece:
        piece = Piece(self._stage, way, self._short, enough_seconds)
        if way is not Way.WHOLE and self._known:
            self._known.set_end(piece, self.engine, share)
        piece.work()
        return piece
