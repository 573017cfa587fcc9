"""Run PyTorch trainings that can be stopped after any batch and resume bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from unbroken.program.contract import Kind
from unbroken.training.core.guard import Guard
from unbroken.training.core.loop import Loop
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.core.point import Point
from unbroken.training.core.position import UNITS, Course
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.validation import Validate
from unbroken.training.loggers import Logger
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.content import NO_PARTS, Content, Parts
from unbroken.training.torch.loader import end_workers
from unbroken.training.torch.loaders import Loaders, TrackedLoader
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.samplers import NO_END, EpochSteps
from unbroken.training.torch.schedules import too_short
from unbroken.training.torch.stateful_loader import StatefulLoader, not_resumable
from unbroken.training.torch.writer import TorchWriter

NORMAL, OFTEN = Guard(), Saves()
# How often a scheduler is called is known after one.
CHECKED_EPOCHS = 2


class Training(Loop):
    """Manage the whole state of a training; if there is a checkpoint, it is restored here.

    `state` names the parts of the state: whatever has `state_dict` and `load_state_dict`, a random generator of torch
    or numpy, or a list of such things, say of optimizers.  Of several ranks all make one; `per_rank` names the parts
    that each rank has for itself.  `seed` fixes the order of the data and what is drawn for each
    sample; `best` names the metric whose best value so far is worth a checkpoint, and says whether "max" or "min" is
    best.  `guard` says what of the metrics ends the training early; `validate` is a prediction by which a loaded
    checkpoint is checked.
    With `new_schedule` the learning rate follows the schedulers as the script makes them, from the step of the
    checkpoint on; without it those of the checkpoint, however long they are.  `prepare` is called with this training
    before a checkpoint is loaded: `epoch` and `batch` say where it resumes, so that it can make of the parts what
    the script made of them until there.

    Started by hand, without unbroken's workflow, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it trains from start to end and saves nothing.  `saves` says how often.
    `loggers` get the metrics of each step once (`unbroken.training.loggers`).
    """

    _ranks: Ranks
    _link: TorchWriter | None = None
    _epochs_begun = 0

    def __init__(  # noqa: PLR0913  (a keyword each)
        self,
        state: Parts = NO_PARTS,
        *,
        per_rank: Parts = NO_PARTS,
        seed: int = 0,
        best: tuple[str, str] | None = None,
        guard: Guard = NORMAL,
        validate: Validate | Callable[[], Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
        new_schedule: bool = False,
        prepare: Callable[[Training], None] | None = None,
    ) -> None:
        self._prepare = prepare
        self._content = Content(
            state,
            per_rank,
            notes=lambda: {**self._common_state(), "loaders": self._loaders.state_dict()},
            take_notes=self._take_notes,
            where=self._where,
            leave=lambda message: self._leave(Kind.HOPELESS, message),
            seed=seed,
            validate=validate,
            new_schedule=new_schedule,
            is_prepared=prepare is not None,
            must_be_finite=bool(guard.finite),
        )
        self._ranks = self._content.ranks
        self._log, self._course = MetricsLog(loggers, guard, best), Course(per_step=self._ranks.size)
        self._loaders = Loaders(seed, ranks=self._ranks, position=self._course.position)
        self._content.loaders.append(self._loaders)
        self._link = TorchWriter.of(folder, saves, self._content)
        self._resume()

    def loader(self, dataset: Dataset[Any], batch_size: int | None = 1, **options: Any) -> DataLoader[Any]:
        """Return a DataLoader whose order is a function of the seed and the epoch.

        `options` are those of `Loaders.loader`: shuffle, order, drop_last, collate_fn, and those of DataLoader.  For
        validation: `shuffle=False`.
        """
        return self._loaders.loader(dataset, batch_size, **options)

    def endless(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Return an iterator over a loader, pass after pass, for data that are drawn next to `batches`.

        Draw from it inside of the loop over `batches`.  Its position is in the checkpoint.  `loader` is one of
        `Training.loader`, or a StatefulDataLoader that is a part of the training.
        """
        part = self._part_of(loader)
        return part.endless(self._loaders.check_place) if part else self._loaders.endless(loader)

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Yield the batches of this epoch still to be trained; it may save or leave between any two of them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        source = loader if isinstance(loader, TrackedLoader) else self._part_of(loader)
        if source is None:
            raise not_resumable(loader)
        steps = self._enter(source)
        if self._course.is_epoch_over:
            self._put_back()
            return
        iterator = source.begin_epoch(self.epoch)
        self._put_back()  # not before: the start of a loader is no part of the training
        try:
            for number, batch in enumerate(self._train(iterator, steps.samples, steps.end_after)):
                yield batch
                if number == 0:  # now, not only when it is to be saved
                    self._content.check()
        finally:
            if not loader.persistent_workers:
                end_workers(iterator)

    _steps_at_once = 2520  # what `steps` takes for an epoch: 1 to 10 ranks have equal shares of it

    def steps(self, goal: float | None = None) -> Iterator[int]:
        """Yield the numbers, from 0, of the steps still to be trained, for a script that draws its batches itself.

        `goal` is for starts by hand, as that of `epochs`; in the configuration: `goal_unit: steps`.
        """
        places = self.loader(range(self._steps_at_once), shuffle=False)  # type: ignore[arg-type]
        for _ in self.epochs(goal, UNITS[1]):
            if self._course.unit != UNITS[1]:
                raise ValueError(f"steps(): the goal is in {self._course.unit}, allowed: goal_unit: {UNITS[1]}")
            for _ in self.batches(places):
                yield self.step

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint, with the results in its folder `final/`.

        The results are metrics.csv, metrics.json and `files`, by their names: text, bytes, a Path to copy, or whatever
        `torch.save` can save.
        """
        self._finish(files or {})

    def _restore(self, folder: Path) -> str:
        if self._prepare:
            self._course.restore(torch_state.load(folder, is_mapped=True).get("position", {}))
            self._prepare(self)
            self._prepare = None  # done once, also where this checkpoint is not to be trusted
        return self._content.restore(folder)

    def _aim(self, goal: float | None, unit: str | None) -> None:
        super()._aim(goal, unit)
        self._content.begin_repeating()

    @property
    def _is_repeating(self) -> bool:
        return self._content.has_rest_to_put_back

    def _put_back(self) -> None:
        self._content.put_the_rest_back()
        self._loaders.begin_batches()

    def _begin_epoch(self) -> None:
        self._loaders.begin_epoch()

    def _clean_up(self) -> None:
        self._content.end_workers()

    def _part_of(self, loader: object) -> StatefulLoader | None:
        """Return the part that a StatefulDataLoader is, if it is one."""
        return next((part for part in self._content.stateful.values() if part.loader is loader), None)

    def _enter(self, source: TrackedLoader | StatefulLoader) -> EpochSteps:
        """Check that the loader fits the position in the epoch, and note how long the epoch is."""
        course, position = self._course, self._course.position
        steps = source.enter_epoch(position)
        self._check_once()
        if steps.batches < NO_END:
            course.begin(steps.batches, "the loader has")
            if not len(steps):
                position.batch = steps.batches  # with drop_last, the rest is not enough for all ranks
        elif course.unit == UNITS[0]:
            raise TypeError(
                "batches(): the epochs of an IterableDataset are of unknown length; allowed: a goal in steps"
            )
        elif not position.batch:
            position.batches = None
        self._check_schedules()
        return steps

    def _check_schedules(self) -> None:
        """Compare the schedules' length with the goal at the beginning of this process's first and second epoch."""
        self._epochs_begun += 1
        for name, part in self._content.parts.items() if self._epochs_begun <= CHECKED_EPOCHS else ():
            self._content.say_once(f"schedule of {name}", too_short(name, part, self._course))

    def _save(self, done: float, **more: Any) -> None:
        if self._link:
            self._link.save(Point(progress=self._progress(done), step=self._course.position.step, **more))

    def _take_notes(self, state: Mapping[str, Any]) -> None:
        self._restore_common(state)
        self._loaders.load_state_dict(state["loaders"])
