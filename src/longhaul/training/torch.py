"""PyTorch trainings that can be stopped after any batch and go on bit for bit."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from longhaul.contract import EXIT_PAUSED
from longhaul.errors import CheckpointError
from longhaul.progress import Progress
from longhaul.training import torch_state
from longhaul.training.contract import one_process_only, read_contract
from longhaul.training.course import UNITS, Course
from longhaul.training.metrics import Metrics
from longhaul.training.pace import Phase
from longhaul.training.torch_data import EpochSampler, Order, end_workers, make_loader, seed_everything
from longhaul.training.torch_link import Link
from longhaul.training.torch_save import save_verified
from longhaul.training.torch_state import RandomGenerator, Stateful

__all__ = ["Training", "save_verified", "seed_everything"]

FORMAT = 1


class Training:
    """Everything that a training is, under longhaul's care; if there is a checkpoint, it is restored here.

    Each keyword is a part of the state: whatever has `state_dict` and `load_state_dict`, or a random generator of
    torch or numpy.  `seed` fixes the order of the data and what is drawn for each sample; `best` names the metric
    whose best value so far is worth a checkpoint, and says whether "max" or "min" is best.

    Started by hand, without longhaul, the same script trains from start to end and saves nothing.
    """

    def __init__(
        self, *, seed: int = 0, best: tuple[str, str] | None = None, **parts: Stateful | RandomGenerator
    ) -> None:
        _check(best, parts)
        self._seed, self._best = seed, best
        self._generators = {name: part for name, part in parts.items() if isinstance(part, RandomGenerator)}
        self._parts = {name: part for name, part in parts.items() if not isinstance(part, RandomGenerator)}
        self._course, self._metrics = Course(), Metrics()
        self._best_value: float | None = None
        self._is_new_best = False
        self._random: Mapping[str, Any] | None = None  # what still has to be put back
        self._loaders: list[DataLoader[Any]] = []
        self._link: Link | None = None
        contract = read_contract()
        if contract is None:
            print("longhaul: started by hand, so nothing is saved", flush=True)
            return
        one_process_only()
        # Made at once, because what cannot be saved is better known now than after the first hour.
        state_bytes = torch_state.tensor_bytes(self._state())
        self._link = Link(contract, state_bytes)
        if contract.resume:
            self._resume(torch_state.load(contract.resume), str(contract.resume))

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
        seeded_samples: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> DataLoader[Any]:
        """A DataLoader whose order is a function of the seed and the epoch; `options` are those of DataLoader.

        With `seeded_samples`, random numbers drawn in the dataset are a function of (seed, epoch, index), in this
        process or in any worker.  `order` takes the place of the shuffle: it draws the indices of one epoch from the
        generator that it is given.  For validation: `shuffle=False`.
        """
        size = len(dataset)  # type: ignore[arg-type]
        if order is None:
            order = partial(_shuffled, size) if shuffle else partial(_as_they_are, size)
        sampler = EpochSampler(self._course.position, self._seed, batch_size, order, drop_last)
        seed = self._seed if seeded_samples else None
        loader = make_loader(dataset, sampler, seed, collate_fn, self._link is not None, options)
        self._loaders.append(loader)
        return loader

    def epochs(self, goal: float | None = None, unit: str | None = None) -> Iterator[int]:
        """The numbers, from 0, of the epochs still to be trained; the first may be one that was begun already.

        `goal` in `unit` ("epochs" or "steps") is for starts by hand: what the configuration says comes first.
        """
        course = self._course
        self._set_goal(goal, unit)
        if course.position.batch == 0 or course.is_over:
            self._put_random_back()
        if self._link:
            self._link.pace.begin_step()
        while not course.is_over:
            course.position.is_closed = False
            yield course.position.epoch
            course.close_epoch()
            if not course.is_over:  # at the goal there is nothing to wait for but finish()
                self._tick(Phase.END, Phase.START)

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """The batches of this epoch that are still to be trained; may save or leave between any two of them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        course = self._course
        sampler = self._enter(loader)
        is_over = course.is_epoch_over
        if is_over:
            self._put_random_back()
            return
        with sampler.starting_at(course.position.batch):
            iterator = iter(loader)
        self._put_random_back()  # not before: the start of a loader belongs to this process, not to the training
        phase = Phase.START
        try:
            while not is_over:
                batch = next(iterator)
                course.is_in_batch = True
                yield batch
                course.land()
                is_over = course.is_epoch_over
                self._tick(phase, Phase.END if is_over else Phase.BATCH)
                phase = Phase.BATCH
        finally:
            if not loader.persistent_workers:
                end_workers(iterator)

    def log(self, **values: float) -> None:
        """Notes metrics of this step, a number each, for the progress and for final/metrics.csv."""
        if self._random is not None:
            return  # a restart repeats the beginning of an epoch, which was noted when it first ran
        numbers = {name: float(value) for name, value in values.items()}
        self._metrics.add(self._course.position.epoch, self._course.position.step + self._course.is_in_batch, numbers)
        if self._best and self._best[0] in numbers and self._is_better(numbers[self._best[0]]):
            self._best_value = numbers[self._best[0]]
            self._is_new_best = True

    def mean(self, name: str) -> float:
        """The mean of what this epoch's batches logged under the name, those before a restart among them."""
        return self._metrics.mean(name, self._course.position.epoch)

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hands over the last checkpoint, with what the user came for in its folder `final/`.

        That is metrics.csv, metrics.json and `files`, by their names: text, bytes, a Path to copy, or whatever
        `torch.save` can save.
        """
        self._course.land()
        if self._link is None:
            return
        results = {**(files or {}), "metrics.csv": self._metrics.to_csv(), "metrics.json": self._summary()}
        self._link.save(self._state(), self._progress(self._course.done), self._is_new_best, results)

    def _set_goal(self, goal: float | None, unit: str | None) -> None:
        contract = self._link.contract if self._link else None
        course = self._course
        course.unit = (contract and contract.goal_unit) or unit or UNITS[0]
        chosen = contract.goal if contract and contract.goal is not None else goal
        if chosen is None or course.unit not in UNITS:
            raise ValueError(f"epochs(): goal {chosen} in {course.unit!r}, allowed: a number, in {' or '.join(UNITS)}")
        course.goal = chosen

    def _enter(self, loader: DataLoader[Any]) -> EpochSampler:
        """Checks that the loader fits the position in the epoch, and notes how long the epoch is."""
        position, sampler = self._course.position, loader.sampler
        if not isinstance(sampler, EpochSampler):
            raise TypeError("batches() needs a loader made by Training.loader: no other can begin in the middle")
        if position.batch and self._random is None:
            raise RuntimeError("batches() was called twice in an epoch: a position in it would mean two places")
        if position.batch and position.batches != len(loader):
            raise CheckpointError(
                f"the checkpoint is from the middle of an epoch of {position.batches} batches, and the loader has "
                f"{len(loader)}; allowed: the same data and batch size"
            )
        position.batches = len(loader)
        return sampler

    def _tick(self, ended: Phase, following: Phase) -> None:
        """Between two steps: saves if it is time to, and leaves if it must."""
        link = self._link
        if link is None:
            return
        link.pace.end_step(ended)
        if link.reporter.is_due:
            link.reporter.report(self._progress(self._course.reported))
        if self._is_new_best:
            link.wait_for_room(following)
        must_stop = link.pace.must_stop(following)
        if must_stop or self._is_new_best or link.is_save_due:
            link.save(self._state(), self._progress(self._course.reported), self._is_new_best)
            self._is_new_best = False
        if must_stop:
            for loader in self._loaders:
                end_workers(loader._iterator)
            sys.exit(EXIT_PAUSED)
        link.pace.begin_step()

    def _is_better(self, value: float) -> bool:
        if self._best_value is None or self._best is None:
            return not math.isnan(value)
        return value > self._best_value if self._best[1] == "max" else value < self._best_value

    def _progress(self, done: float) -> Progress:
        goal = self._course.goal if math.isfinite(self._course.goal) else None
        return Progress(done, goal, self._course.unit, self._metrics.latest)

    def _summary(self) -> str:
        at = self._course.position
        data = {"epochs": at.epoch, "steps": at.step, "best": self._best_value, "metrics": self._metrics.latest}
        return json.dumps(data, indent=2) + "\n"

    def _state(self) -> dict[str, Any]:
        parts = torch_state.collect(self._parts)
        state = {
            "format": FORMAT,
            "seed": self._seed,
            "position": vars(self._course.position),
            "best": self._best_value,
            "metrics": {"names": self._metrics.names, **torch_state.tensors(self._metrics.arrays())},
            "random": torch_state.collect_random(self._generators),
            "parts": {name: torch_state.canonical(part, name) for name, part in parts.items()},
        }
        return {key: torch_state.canonical(value, key) for key, value in state.items()}

    def _resume(self, state: Mapping[str, Any], source: str) -> None:
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{source}: state format {state.get('format')!r}, allowed here: {FORMAT}")
        if state["seed"] != self._seed:
            raise CheckpointError(f"{source}: made with seed={state['seed']}, and Training(...) is given {self._seed}")
        given = [*self._parts, *self._generators]
        torch_state.check_names(given, [*state["parts"], *state["random"]["generators"]], source)
        torch_state.put_back(self._parts, state["parts"], source)
        vars(self._course.position).update(state["position"])
        self._best_value = state["best"]
        metrics = {key: value if key == "names" else value.tolist() for key, value in state["metrics"].items()}
        self._metrics.restore(**metrics)
        self._random = state["random"]

    def _put_random_back(self) -> None:
        if self._random is not None:
            torch_state.restore_random(self._random, self._generators)
            self._random = None


def _check(best: tuple[str, str] | None, parts: Mapping[str, object]) -> None:
    if best is not None and best[1] not in ("max", "min"):
        raise ValueError(f"Training(best={best!r}), allowed: (name of a metric, 'max' or 'min')")
    for name, part in parts.items():
        if not isinstance(part, (Stateful, RandomGenerator)):
            raise TypeError(
                f"Training({name}=...) is a {type(part).__name__}, allowed: what has state_dict and load_state_dict, "
                "or a torch.Generator or numpy.random.Generator"
            )


def _shuffled(size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(size, generator=generator)


def _as_they_are(size: int, generator: torch.Generator) -> range:
    return range(size)
