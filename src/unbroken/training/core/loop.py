"""Run what every training does between two steps: log, save, leave when it must; standard library alone."""

from __future__ import annotations

import json
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

from unbroken.program.contract import EXIT_PAUSED, Kind
from unbroken.store.progress import Metric, Progress
from unbroken.training.core.environment import end_as_failed
from unbroken.training.core.metrics_log import DATA, STEP, MetricsLog
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes, RankRequest
from unbroken.training.core.save_schedule import Phase, StopRequest
from unbroken.training.core.session import Connection

NO_MORE = object()
LOADING = "before epochs or fit type: if training.imported: "


class Loop:
    """Share the part of `Training` that does not depend on the framework; `_link` is None if nothing is saved."""

    _course: Course
    _log: MetricsLog
    _ranks: Processes
    _link: Connection | None
    _is_save_asked = False
    _stop: StopRequest | None = None
    # What to type so that a script loads what was imported.
    _loading = (
        "saved = torch.load(training.imported, weights_only=True), and give what it holds to load_state_dict of model, "
        "optimizer and scheduler"
    )

    @property
    def epoch(self) -> int:
        """Return the number of the epoch, from 0."""
        return self._course.position.epoch

    @property
    def batch(self) -> int:
        """Return how many batches of the epoch are finished: in the loop the number of this one, as of `enumerate`.

        A restart in the middle of an epoch continues to count.  Each of several ranks counts its own.
        """
        return self._course.position.step - self._course.position.epoch_step

    @property
    def is_last_batch(self) -> bool:
        """Return True while the last batch of the epoch is trained, whatever number of ranks began the epoch.

        Raise ValueError if the length of the epoch is unknown, as with an IterableDataset.
        """
        at = self._course.position
        if at.batches is None:
            raise ValueError("is_last_batch: the length of this epoch is unknown; allowed: a data set with a length")
        return self._course.is_in_batch and self._course.end_of_step == at.batches

    @property
    def step(self) -> int:
        """Return how many steps of all epochs are finished."""
        return self._course.position.step

    def log(self, **values: float) -> None:
        """Note metrics of this step, a number each, for the progress and for final/metrics.csv."""
        if self._is_repeating:
            return  # a restart repeats the beginning of an epoch, which was noted when it first ran
        numbers = {name: float(value) for name, value in values.items()}
        if wrong := self._log.add(self.epoch, self.step + self._course.is_in_batch, numbers):
            self._give_up(Kind.HOPELESS, wrong)

    def mean(self, name: str) -> float:
        """Return the mean of what this epoch's batches logged under the name, those before a restart among them."""
        return self._log.metrics.mean(name, self.epoch)

    @property
    def is_best(self) -> bool:
        """Return True if the `best` metric that was logged last was better than all before."""
        return self._log.watch.was_best

    @property
    def resumed(self) -> bool:
        """Return True if a checkpoint was restored."""
        return self._link is not None and self._link.resumed

    def save(self) -> None:
        """Ask for a checkpoint after this step; one rank is enough.  If a save is on its way, it comes after that."""
        self._is_save_asked = not self._is_repeating

    @property
    def stop_requested(self) -> bool:
        """Return True if the training saves and leaves after this step: in an evaluation, say, to end it early.

        All ranks get the same answer, and have to ask equally often; of several, the one to the question before.
        """
        if self._link is None:
            return False
        self._stop = self._stop or StopRequest(self._link.pace, self._ranks)
        return self._stop.requested

    @property
    def imported(self) -> Path | None:
        """Return your own file or folder that `unbroken import` took; None once the run has a newer checkpoint.

        Before `epochs`: `if training.imported:`, and under it the lines with which your script loads it.
        """
        return self._link.imported if self._link else None

    def timer(self, name: str) -> AbstractContextManager[None]:
        """Add the time of a `with` block to the times in live/timing.jsonl; on a GPU, wait for it inside."""
        return self._log.timers.timed(name)

    def epochs(self, goal: float | None = None, unit: str | None = None) -> Iterator[int]:
        """Yield the numbers, from 0, of the epochs still to be trained; the first may be one that was begun already.

        `goal` in `unit` ("epochs" or "steps") is for starts by hand: what the configuration says comes first.
        """
        course = self._course
        self._aim(goal, unit)
        if course.position.batch == 0 or course.is_over:
            self._put_back()
        if self._link:
            self._link.pace.begin_step()
        while not course.is_over:
            course.position.is_closed = False
            self._begin_epoch()
            yield course.position.epoch
            course.close_epoch()
            if not course.is_over:  # at the goal there is nothing to wait for but finish()
                self._tick(Phase.END, Phase.START)

    # --- what frameworks differ in ---

    @abstractmethod
    def _restore(self, folder: Path) -> str:
        """Take over what a checkpoint holds; return why it is not to be trusted, empty if it is."""

    @property
    @abstractmethod
    def _is_repeating(self) -> bool:
        """Return True while a restart repeats what ran before the place that it resumes from."""

    @abstractmethod
    def _put_back(self) -> None:
        """End the repeating: what it has changed is again as it was in the checkpoint."""

    @abstractmethod
    def _save(self, done: float, *, is_best: bool, **more: Any) -> None:
        """Save; after one that `is_last` the process leaves, and after one with `results` the training is over."""

    def _begin_epoch(self) -> None:
        """Prepare for an epoch, before the script knows of it."""

    def _clean_up(self) -> None:
        """End what would outlive this process, or keep it alive."""

    def _figures(self) -> dict[str, Metric]:
        """Return what to show with the progress: the latest metrics, the pace, and how long the training will take."""
        latest, seconds = self._log.metrics.latest, self._log.timers.pace
        if not seconds:
            return dict(latest)
        steps = self._course.steps_left()
        left: dict[str, Metric] = {"left_seconds": round(steps * seconds, 1)} if steps else {}
        return {**latest, "pace": f"{1 / seconds:.3g} steps/s", **left}

    # --- what they share ---

    def _resume(self) -> None:
        """Resume from the newest checkpoint that can be trusted, if there is one; open the log."""
        if link := self._link:
            link.give_up = lambda message: self._leave(Kind.HOPELESS, message)
            if error := link.resume(self._restore):
                self._give_up(Kind.BAD_CHECKPOINT, error)
            if note := link.import_note:
                self._course.restore({"epoch": note.epoch, "step": note.step, "epoch_step": note.step})
            link.pace.when_saved = self._log.published
        self._log.open(self._ranks, self.step, link.contract.live if link else None)

    def _common_state(self) -> dict[str, Any]:
        """Return what a checkpoint holds in all frameworks, in JSON's terms."""
        return {"position": {**vars(self._course.position)}, **self._log.state()}

    def _restore_common(self, state: Mapping[str, Any]) -> None:
        """Take over what `_common_state` returned."""
        self._course.restore(state["position"])
        self._log.restore(state)

    def _aim(self, goal: float | None, unit: str | None) -> None:
        if self._link and (unread := self._link.unread_import(LOADING + self._loading)):
            self._give_up(Kind.HOPELESS, unread)
        self._course.aim(self._link.contract if self._link else None, goal, unit)

    def _train(
        self,
        stream: Iterator[Any],
        samples: Callable[[int, int], int] = lambda start, end: 0,
        end_after: Callable[[int], int] | None = None,
    ) -> Iterator[Any]:
        """Yield the batches of this epoch that are still to be trained; save or leave between any two of them.

        A place is how many batches of the epoch are finished there: `samples` says how many samples there are from one
        to another, and `end_after` which one follows a step, if that is more than one further.
        """
        course, timers = self._course, self._log.timers
        phase, is_over = Phase.START, course.is_epoch_over
        while not is_over:
            with timers.timed(DATA):
                batch = next(stream, NO_MORE)
            if batch is NO_MORE:
                course.find_end()
                return
            before = course.position.batch
            course.is_in_batch, course.next_batch = True, end_after(before) if end_after else None
            with timers.timed(STEP):
                yield batch
            course.count_batch()
            timers.samples += samples(before, course.position.batch)
            self._tick(phase, Phase.END if course.is_epoch_over else Phase.BATCH)
            phase, is_over = Phase.BATCH, course.is_epoch_over

    def _finish(self, files: Mapping[str, object]) -> None:
        """Hand over the last checkpoint, with the files and the metrics as results."""
        self._course.count_batch()
        log = self._log
        log.finish(self.step)
        log.note_times(self.step)
        if self._link:
            said = {
                "epochs": self.epoch,
                "steps": self.step,
                "best": log.watch.best_value,
                "metrics": log.metrics.latest,
            }
            tables = {"metrics.csv": log.metrics.to_csv(), "metrics.json": json.dumps(said, indent=2) + "\n"}
            self._save(self._course.done, is_best=log.watch.is_new_best, results={**files, **tables})

    def _check_once(self) -> None:
        if self._course.position.batch and not self._is_repeating:
            raise RuntimeError("batches() was called twice in an epoch: a position in it would mean two places")

    def _tick(self, ended: Phase, following: Phase) -> None:
        """Save between two steps if it is time to, and leave if it must."""
        link = self._link
        if link is None:
            return
        link.pace.end_step(ended)
        if self._is_repeating:
            link.poll()
        else:
            link.note_step()
        if self._ranks.is_first and link.report(lambda: self._progress(self._course.reported)):
            self._log.show()
        # Between epochs all wait for each other: there a request is granted at once.
        wish = self._ranks.agreed(lambda: self._wish(link, following), at_once=following is not Phase.BATCH)
        if wish.stop:
            link.place.note("stop_asked")
        if wish.is_to_save:
            self._save(self._course.reported, is_best=wish.best, is_last=wish.stop)
            self._is_save_asked = False
            self._log.watch.is_new_best = self._log.watch.is_new_best and not wish.best
            self._log.note_times(self.step)
        if wish.stop:
            self._log.close()
            self._clean_up()
            self._ranks.leave()
            sys.exit(EXIT_PAUSED)
        self._ranks.ask(lambda: self._wish(link, following))
        link.pace.begin_step()

    def _wish(self, link: Connection, following: Phase) -> RankRequest:
        is_asked = self._is_save_asked and not link.pace.is_saving and link.place.has_room
        if not self._ranks.is_first:  # it knows neither the metrics nor the room
            return RankRequest(stop=link.pace.must_stop(following), due=is_asked)
        watch = self._log.watch
        is_new_best = watch.is_new_best and watch.is_sound
        if is_new_best and self._ranks.size == 1:
            link.wait_for_room(following)
        is_due = is_asked or (watch.is_sound and link.is_save_due(self.step))
        return RankRequest(link.pace.must_stop(following), is_new_best, is_due)

    def _progress(self, done: float) -> Progress:
        goal = self._course.goal if math.isfinite(self._course.goal) else None
        return Progress(done, goal, self._course.unit, self._figures())

    def _give_up(self, kind: Kind, message: str) -> NoReturn:
        """End this process without saving."""
        self._leave(kind, f"{message}, {self._where()}")

    def _where(self) -> str:
        return f"at step {self.step + self._course.is_in_batch} in epoch {self.epoch}"

    def _leave(self, kind: Kind, message: str) -> NoReturn:
        self._log.close()
        end_as_failed(kind, message, self._link.place if self._link else None, self._clean_up)
