"""The course of a rehearsal: the run whole, whole again, then in pieces; the verdict."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.engines.files.outputs import OutputSpace, output_size, read_outputs
from unbroken.rehearsal.control import CONTROL, Control
from unbroken.rehearsal.folder_copy import LARGE_BYTES, FolderCopy, size_of
from unbroken.rehearsal.judgement import blamed_of, loss_line, nothing_to_blame, reason_of, stored_lines
from unbroken.rehearsal.measures import Measures, measures_of
from unbroken.rehearsal.outputs import discarded_globs, is_dropped, lost_outputs
from unbroken.rehearsal.piece import MOST_MISSES, Ended, Piece, Way, reason_of_end
from unbroken.rehearsal.progress_read import ProgressRead
from unbroken.rehearsal.results import Results, listed
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.short_goal import rounded_down, with_goal
from unbroken.rehearsal.stage import BESIDE, Stage
from unbroken.runs.history import Attempt
from unbroken.runs.identity import IdentityKeys, content_files, identity_of
from unbroken.runs.progress import amount
from unbroken.runs.rehearsal import FOLDER, Rehearsal, Verdict, alone
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.system.clock import utc_now

# Of the whole's work, so much is done when the time of the first piece is up; the second where a later one was done
# before it could be killed.
FIRST_SHARES = (0.25, 0.1)
# So many saves are in the whole's length, so that pieces have some to go on from.
SAVES = 20
LEAST_SAVE_SECONDS = 0.05
# Of the progress that a run made in the time given, so much is the goal of a shorter one.
SHORTER = 0.6
MORE_MINUTES = 3
# How the piece before one was ended.
BEFORE = {Way.KILL: Way.STOP, Way.KILL_SAVE: Way.KILL, Way.END: Way.KILL_SAVE}


class NotTested(Exception):
    """Why there is no verdict, and what to type."""


class DoneBefore(NotTested):
    """A piece came to its end before it could be ended."""


class DoesNotGoOn(Exception):
    """A piece ended otherwise than it should."""


@dataclass
class Course:
    """One rehearsal of a run; `minutes` is what one run, and the wait for one save, may take."""

    run: Run
    keys: IdentityKeys
    engine: Engine
    base: Path
    minutes: float
    tell: Callable[[str], None]
    read_only: Collection[str] = ()  # paths in the folder that the program only reads
    origins: list[tuple[Way, float]] = field(default_factory=list)  # how a piece ended, and where the next began
    measures: Measures = field(default_factory=Measures)
    progress_read: ProgressRead = field(default_factory=ProgressRead)

    def play(self) -> Rehearsal:
        """The verdict; what the program left is beside it where something differs.

        ConfigError if the run is being rehearsed already.
        """
        with alone(self.run.name, self.base):
            return self._rehearsed()

    def _rehearsed(self) -> Rehearsal:
        identity = identity_of(self.run, self.keys, self.base).digest
        shared = {*self.read_only, *self._inputs()}
        FolderCopy(self.base, shared).confirm_small(self.run.name)
        self.root = self.base / FOLDER / self.run.name
        if self.root.exists():
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True)
        self.stage = Stage(self.run, self.keys, self.engine, self.base, self.root / "stage", self.tell, shared=shared)
        self.stage.root.mkdir()
        self._saves = SaveWatch(self.engine.save_files(self.run), run=self.run.name)
        self.results = Results(self.root, self.run, self.engine)
        findings: list[str] = []
        try:
            verdict, reason, findings = self._judged()
        except NotTested as why:
            verdict, reason = Verdict.NOT_TESTED, str(why)
        except DoesNotGoOn as why:
            verdict, reason = Verdict.FAILS, str(why)
        finally:
            if (self.stage.root / "logs").exists():
                shutil.rmtree(self.root / "logs", ignore_errors=True)
                os.rename(self.stage.root / "logs", self.root / "logs")
            shutil.rmtree(self.stage.root, ignore_errors=True)
        if verdict is Verdict.IDENTICAL:
            shutil.rmtree(self.root, ignore_errors=True)
        done = Rehearsal(
            self.run.name, verdict, reason, identity, utc_now(), self.short.goal if self.short else None,
            tuple(findings), *self.measures.rounded(), self.progress_read.line(),
        )  # fmt: skip
        done.write(self.base)
        return done

    def _inputs(self) -> Iterator[str]:
        """What the config names that no program writes to: environments, and files of the identity.

        Small ones are copied: a script that is a link finds what lies beside the user's own.
        """
        files = (name for _, name in content_files(self.run, self.keys))
        named = [name for name in files if size_of(self.base / name) > LARGE_BYTES]
        named += filter(None, [self.run.venv, self.run.conda, self.run.container])
        return (os.path.normpath(name) for name in named)

    # --- the whole, twice ---

    short: Run | None = None
    _lost: Sequence[str] = ()  # what the program wrote, and no result has
    _says_progress = False

    def _judged(self) -> tuple[Verdict, str, list[str]]:
        self.short = self._with_room(self.run)
        self._whole("whole")
        self._whole("again")
        itself = self.results.differences("whole", "again")
        if itself:
            self.tell(f"differs from itself, of two whole runs: {listed(each.text() for each in itself)}")
        self._pieces()
        found = self.results.differences("whole", "pieces")
        blamed, stored = blamed_of(found, itself), stored_lines(found)
        if blamed:
            states = self.results.state_differences("whole", "pieces")
            reason = reason_of(blamed, states, self.origins, itself)
            lost = [loss_line(self.run.name, self._lost)] if self._lost else []
            return Verdict.DIFFERS, reason, [*(each.text() for each in blamed), *lost]
        excepted = self.results.excepted("whole", "pieces")
        verdict, reason, told = nothing_to_blame(itself, excepted, discarded_globs(self.run))
        if self._lost:
            verdict, reason = Verdict.LOSES_OUTPUT, loss_line(self.run.name, self._lost)
        elif verdict is Verdict.IDENTICAL:
            left = self.stage.root / CONTROL
            doubt = Control(left, self.stage, self.results, self._played, self._seconds).doubt(itself)
            verdict, reason = (Verdict.NOT_PROVEN, doubt) if doubt else (verdict, reason)
        return verdict, reason, [*stored, *told]

    def _whole(self, name: str) -> None:
        """An uninterrupted run, its results kept under this name; the first to a shorter goal if it takes too long."""
        is_first = name == "whole"
        ended, piece = self._played(Way.WHOLE, None, self._limit() if is_first else 2 * self._limit())
        if ended.is_out_of_time and is_first:
            self._shorten(piece)
            ended, piece = self._played(Way.WHOLE, None, 2 * self._limit())
        attempts = piece.attempts()
        if ended.is_out_of_time:
            raise NotTested(f"it is not done within {self.minutes:g} minutes; type --minutes {self._more()}")
        if not ended.is_met or not attempts or ended.kind is not EndKind.FINISHED:
            kept = self.stage.carry(piece.folder)
            shutil.rmtree(kept)
            raise DoesNotGoOn(f"the whole run, without any stop: {reason_of_end(ended, attempts)}")
        if is_first:
            self.measures = measures_of(attempts[-1], Store(piece.places.checkpoints).readable())
            self._seconds, self._began_work = ended.seconds, piece.began_work_seconds
            self._says_progress, self._reached = piece.first is not None, piece.done()
            self.tell(f"whole: {ended.seconds:.0f} s")
            self._tell_output(piece)
            if self.stage.links:
                self.tell(f"not copied, so the pieces have your own: {listed(self.stage.links)}")
        carried = self.results.keep(self.stage, piece, name)
        if is_first:
            self._lost = lost_outputs(
                piece.outputs.left, self.results.kept(name, carried), self._saves, discarded_globs(self.run)
            )
            self._tell_dropped(piece.outputs.left)
        shutil.rmtree(carried)

    def _tell_output(self, piece: Piece) -> None:
        newest = Store(piece.places.checkpoints).readable()[-1]
        if line := OutputSpace(*output_size(read_outputs(newest))).words():
            self.tell(line)

    def _tell_dropped(self, left: Collection[str]) -> None:
        globs = discarded_globs(self.run)
        if globs:
            names = listed(sorted(name for name in left if is_dropped(name, globs))) or "nothing in this run"
            self.tell(f"dropped, as settings.discard says ({', '.join(globs)}): {names}")

    def _shorten(self, piece: Piece) -> None:
        """A goal that is reached sooner, by how far the run came in the time that it had."""
        run, live = piece.run, piece.live() or piece.done()
        if "goal" not in run.settings:
            raise NotTested(
                f"it is not done within {self.minutes:g} minutes and has no goal that could be smaller; rehearse a "
                f"smaller one, or type --minutes {self._more()}"
            )
        shorter = rounded_down(live * SHORTER)
        if shorter < 1:
            raise NotTested(
                f"it comes to {live:.3g}{_of(run.goal)} within {self.minutes:g} minutes; type --minutes {self._more()}"
            )
        self.short = with_goal(self._with_room(run), shorter)
        what = "it" if run.goal is None else f"{run.goal:.10g}"
        self.tell(f"{what} takes longer than {self.minutes:g} minutes: rehearsed to {shorter:.10g} (--goal)")

    # --- the pieces ---

    def _pieces(self) -> None:
        self._share = FIRST_SHARES[0]
        try:
            self._once_in_pieces(MOST_MISSES)
            return
        except DoneBefore as why:
            self.tell(f"{why}; once more, with a shorter first piece")
        self._share = FIRST_SHARES[1]
        self.origins.clear()
        shutil.rmtree(self.stage.root / BESIDE, ignore_errors=True)
        # It is done sooner than the whole was, on a machine that others use too: the first save is not to be missed.
        self._once_in_pieces(0)

    def _once_in_pieces(self, may_miss: int) -> None:
        self._saves.misses = MOST_MISSES - may_miss
        carried = self._ended(Way.STOP, None)
        if not self._saves.is_as_declared and len(Store(carried / "checkpoints").readable()) == 1:
            self._saves.files = replace(self._saves.files, at_end=True)
        carried = self._ended(Way.KILL, carried)
        carried = self._ended(Way.KILL_SAVE, carried)
        ended, piece = self._played(Way.END, carried, 2 * self._limit())
        attempts = piece.attempts()
        self._note_origin(Way.KILL_SAVE, piece, attempts)
        if not ended.is_met or ended.kind is not EndKind.FINISHED:
            self.stage.carry(piece.folder)
            raise DoesNotGoOn(f"after {Way.KILL_SAVE.value}: {reason_of_end(ended, attempts)}")
        checkpoints = Store(piece.places.checkpoints).readable()
        self.measures = self.measures.with_pieces(attempts, checkpoints)
        os.rename(self.results.keep(self.stage, piece, "pieces"), self.stage.root / CONTROL)

    def _ended(self, way: Way, carried: Path | None) -> Path:
        """A piece that ended so; what it left of the run."""
        ended, piece = self._played(way, carried, self._limit())
        before = BEFORE.get(way)
        attempts = piece.attempts()
        if way is Way.STOP and ended.kind is not EndKind.PAUSED:
            ended = replace(ended, is_met=False)
        took, saved = attempts[-1].stop_seconds if attempts else None, piece.done()
        carried = self.stage.carry(piece.folder)
        if before:
            self._note_origin(before, piece, attempts)
        if not ended.is_met:
            self._refuse(way, ended, attempts, before)
        if way is Way.STOP:
            self.tell(f"{way.value}: saved at {amount(saved)}" + (f", in {took:.1f} s" if took is not None else ""))
        else:
            met = f" of {Path(ended.met_file).name}" if ended.met_file else ""
            late = " (right after it: it is too quick to be cut)" if met and not ended.is_cut else ""
            self.tell(f"{way.value}{met} after {ended.seconds:.1f} s{late}")
        return carried

    def _refuse(self, way: Way, ended: Ended, attempts: list[Attempt], before: Way | None) -> None:
        """NotTested if it could not be ended so, DoesNotGoOn if it ended by itself otherwise than it should."""
        if ended.is_out_of_time:
            raise NotTested(
                f"{way.value}: no save within {self.minutes:g} minutes; type --minutes {self._more()}"
                if way is not Way.STOP
                else f"{way.value}: it does not leave; read the logs in {self.root / 'logs'}"
            )
        if ended.kind is EndKind.FINISHED:
            raise DoneBefore(f"{way.value}: it was done before; type --goal with a larger one, or --minutes")
        if not ended.has_saved and not self.origins:
            raise NotTested(
                f"{way.value}: it saved nothing; type --minutes {self._more()}; {reason_of_end(ended, attempts)}"
            )
        after = f"after {before.value}: " if before else f"{way.value}: "
        raise DoesNotGoOn(after + reason_of_end(ended, attempts))

    def _note_origin(self, way: Way, piece: Piece, attempts: list[Attempt]) -> None:
        """Where the piece went on that came after one which ended so; NotTested if that was at the very beginning."""
        worked = [attempt for attempt in attempts if not attempt.kind.is_before_work]
        origin = piece.origin if piece.origin is not None else (worked[-1].progress_from if worked else 0.0)
        self.origins.append((way, origin))
        if piece.first is not None and piece.first[1] < origin:
            raise DoesNotGoOn(
                f"after {way.value}: it was to go on from {origin:.10g}, and said {piece.first[1]:.10g} soon after: it "
                "begins anew (is the resume ignored?)"
            )
        if origin <= 0:
            raise NotTested(f"{way.value}: nothing was saved before; type --minutes {self._more()}")

    # --- one piece ---

    def _played(self, way: Way, carried: Path | None, enough_seconds: float) -> tuple[Ended, Piece]:
        run = self.short or self.run
        if way is Way.STOP:
            run = replace(run, segment_minutes=self._first_minutes())
        if way not in (Way.WHOLE,):
            run = replace(run, save_minutes=self._save_minutes(run))
        folder = self.stage.new_folder(carried, run, is_last=way is Way.END)
        saves = self._saves
        piece = Piece(self.stage, folder, way, run, enough_seconds, saves, self._says_progress)
        if way in (Way.KILL, Way.KILL_SAVE):
            piece.quiet_seconds = self._quiet_seconds()
        if way is Way.STOP and self._is_told_by_progress():
            piece.stop_at = self._share * self._reached
        done = [each.segment for each in piece.attempts() if each.kind.settles]
        if way is Way.CONTROL:  # it has no history
            done = [each.passport.segment for each in Store(piece.places.checkpoints).readable()]
        piece.segment = 1 + max(done, default=0)
        ended = piece.play()
        left = piece.places.checkpoints
        checkpoints = Store(left).readable() if left.is_dir() else []
        self._saves.learn(name for each in checkpoints for name in each.passport.files)
        self.progress_read.note(self.engine, self.run, checkpoints)
        return ended, piece

    def _with_room(self, run: Run) -> Run:
        """Segments that end by us and not by their time."""
        return replace(
            run, segment_minutes=max(6 * self.minutes, 2.0), attempts_without_progress=99, keep=max(run.keep, 3),
            least_minutes=None, copies=None,
        )  # fmt: skip

    def _is_told_by_progress(self) -> bool:
        return self._says_progress and self.engine.hears_a_wish(self.run)

    def _first_minutes(self) -> float:
        """Until the first piece is told to stop it has done some share of the work, and the margin comes after that.

        Where its progress says when, the time is twice as long.
        """
        start = self._began_work
        if start is None:
            start = self.measures.before_seconds + (self.measures.start_seconds or 0.0)
        share = self._share * (2 if self._is_told_by_progress() else 1)
        seconds = start + share * max(self._seconds - start, 0.1)
        margin = self.run.first_margin_seconds or min(60.0, max(1.0, seconds / 9))
        return (seconds + margin) / 60

    def _quiet_seconds(self) -> float:
        start = self.measures.before_seconds + (self.measures.start_seconds or 0.0)
        return start + FIRST_SHARES[0] * max(self._seconds - start, 0.1)

    def _save_minutes(self, run: Run) -> float:
        wanted = max(self._seconds / SAVES, 5 * (self.measures.save_seconds or 0.0), LEAST_SAVE_SECONDS)
        return min(run.save_minutes, wanted / 60)

    def _limit(self) -> float:
        return self.minutes * 60

    def _more(self) -> str:
        return f"{self.minutes * MORE_MINUTES:g}"


def _of(goal: float | None) -> str:
    return "" if goal is None else f" of {goal:.10g}"
