"""Collect what a checkpoint holds of a training: parts, position, metrics, random numbers and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unbroken.training.core.position import Course
from unbroken.training.core.run_log import Book
from unbroken.training.core.validation import Validate
from unbroken.training.torch import random_state, rank_checkpoint, sharded_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.planned_loaders import PlannedLoaders
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.put_back import Repeated, put_back
from unbroken.training.torch.samplers import as_tensor, seed_from
from unbroken.training.torch.schedules import Replayed
from unbroken.training.torch.state import RandomGenerator, Stateful
from unbroken.training.torch.stateful_loader import StatefulLoader, is_stateful_loader
from unbroken.training.torch.switches import Switches
from unbroken.training.torch.unsaved import Unsaved
from unbroken.training.torch.validation import TorchValidation

FORMAT = 2
SWITCHES = "switches"


class Content:
    """Hold everything that defines a training, on this rank."""

    def __init__(
        self,
        seed: int,
        parts: Mapping[str, Stateful | RandomGenerator],
        book: Book,
        validate: Validate | Callable[[], Any] | None,
        ranks: Ranks,
        *,
        new_schedule: bool = False,
        is_prepared: bool = False,
    ) -> None:
        self._seed, self._ranks = seed, ranks
        self._has_new_schedule = new_schedule
        self._generators = {name: part for name, part in parts.items() if isinstance(part, RandomGenerator)}
        others = {name: part for name, part in parts.items() if not isinstance(part, RandomGenerator)}
        stateful = {name: part for name, part in others.items() if is_stateful_loader(part)}
        self.loaders = {name: StatefulLoader(name, part, seed, ranks.size) for name, part in stateful.items()}
        self.parts = {name: self.loaders.get(name) or sharded_state.own_part(part) for name, part in others.items()}
        self.course, self._book = Course(per_step=ranks.size), book
        self.planned = PlannedLoaders(seed, self.course.position)
        self.trust = TorchValidation(validate, self.parts, self._generators)
        self.gradients = Gradients(self.parts)
        self.switches = Switches(self.parts, self.gradients.parameters)
        self._unsaved, self._said = Unsaved(self.parts, self.gradients, is_prepared=is_prepared), set[str]()
        self._origin: Path | None = None
        self._saved_switches: Mapping[str, Any] = {}
        self._repeated: Repeated | None = None  # while a restart repeats the beginning of an epoch
        self._random: Mapping[str, Any] | None = None  # what still has to be put back
        # Several ranks would all drop out the same.  Not before the first batch: until then a script draws what all
        # of them must have in common, and each segment again, such as the split of its data.
        self._first_random = random_state.reseeded(self._seed_of_rank(0), {}) if ranks.size > 1 else None

    def state(self) -> dict[str, Any]:
        """Return all of it in a form that can be saved."""
        parts = {name: torch_state.state_of(part) for name, part in self.parts.items()}
        state: dict[str, Any] = {
            "format": FORMAT,
            "seed": self._seed,
            "position": vars(self.course.position),
            "watch": self._book.watch.state(),
            "trust": self.trust.state(),
            "metrics": {"names": self._book.metrics.names, **_tensors(self._book.metrics.arrays())},
            "random": random_state.collect(self._generators),
            "loaders": self.planned.state(),
            rank_checkpoint.GRADIENTS: self.gradients.state(),  # after the parts, whose hooks bring FSDP2 in order
            SWITCHES: self.switches.state(),
            "parts": {name: torch_state.canonical(part, name) for name, part in parts.items()},
        }
        return {key: torch_state.canonical(value, key) for key, value in state.items()}

    def restore(self, folder: Path) -> str:
        """Restore what a checkpoint holds; return why it is not to be trusted, "" if it is.

        Random numbers and gradients follow later, by `put_the_rest_back`.
        """
        state, source = rank_checkpoint.read(folder, self._ranks), str(folder)
        torch_state.check_origin(state, FORMAT, self._seed, source)
        seed = self._seed_of_rank(state["position"]["step"])
        random = state["random"] or random_state.reseeded(seed, self._generators)
        given = [*self.parts, *self._generators]
        torch_state.check_names(given, [*state["parts"], *random["generators"]], source)
        replayed = Replayed(self.parts, state["parts"]) if self._has_new_schedule else None
        self._saved_switches = state.get(SWITCHES, {})
        self.switches.fit_groups(self._saved_switches, source)
        gradients = state[rank_checkpoint.GRADIENTS]
        states = {**state["parts"], rank_checkpoint.GRADIENTS: gradients["tensors"]}
        likes = {**self.parts, rank_checkpoint.GRADIENTS: self.gradients.parameters()}
        parts = sharded_state.put_in(states, likes, folder / sharded_state.SHARDS, self._ranks)
        self.gradients.restore({**gradients, "tensors": parts.pop(rank_checkpoint.GRADIENTS)}, source)
        put_back(self.parts, parts, source)
        if replayed:
            replayed.put_back()
        self.course.restore(state["position"])
        self.planned.restore(state.get("loaders"))
        self._book.watch.restore(state["watch"])
        metrics = {key: value if key == "names" else value.tolist() for key, value in state["metrics"].items()}
        self._book.metrics.restore(**metrics)
        self.switches.put_back(self._saved_switches)
        self._random, self._first_random, self._origin = random, None, folder
        return self.trust.validation_error(state["trust"])

    def unsaved(self) -> list[str]:
        """Return lines about what no restart can restore, each once."""
        new = [line for line in self._unsaved.lines() if line not in self._said]
        self._said.update(new)
        return new

    def check_own(self, generators: Sequence[object]) -> None:
        """Raise TypeError if a data set's own generator is used as it is, and is no part of the training."""
        kept = {id(each) for each in self._generators.values()}
        for generator in generators:
            if id(generator) not in kept:
                raise TypeError(
                    "loader(seeded_samples=False): the data set has a random generator of its own "
                    f"({type(generator).__name__}), which is in no checkpoint; type seeded_samples=True, or give a "
                    "torch.Generator or numpy.random.Generator to Training(state={'generator': ...}) too"
                )

    def check_loaders(self) -> None:
        """Raise TypeError if a loader is used in a way that no restart can continue."""
        self.planned.check_passes()
        for loader in self.loaders.values():
            loader.check_used()

    @property
    def has_rest_to_put_back(self) -> bool:
        """Return True while a restart repeats what ran before the position from which it resumes."""
        return self._random is not None

    def begin_repeating(self) -> None:
        """Announce that the script now repeats what it did before the position from which the training resumes."""
        if self._random is not None:
            others = {name: part for name, part in self.parts.items() if not isinstance(part, StatefulLoader)}
            self._repeated = Repeated(others)

    def put_the_rest_back(self) -> None:
        """Restore what the script's own beginning may change: parts, random generators and gradients."""
        if self._first_random is not None:
            random_state.restore_all(self._first_random, {})
            self._first_random = None
        if self._random is not None:
            if self._repeated and self._repeated.put_back() and self._origin:
                self._load_models(self._origin)
            if said := self.switches.put_back(self._saved_switches):
                self._ranks.say(said)
            random_state.restore_all(self._random, self._generators)
            self.gradients.put_back()
            self._random = self._repeated = self._origin = None

    def _load_models(self, folder: Path) -> None:
        """Give the models the weights of the checkpoint again, which the script has changed since."""
        models = torch_state.only(self.parts, torch.nn.Module)
        state = rank_checkpoint.read(folder, self._ranks)["parts"]
        states = {name: state[name] for name in models}
        put_back(models, sharded_state.put_in(states, models, folder / sharded_state.SHARDS, self._ranks), str(folder))

    def _seed_of_rank(self, step: int) -> int:
        return seed_from(self._seed, "rank", self._ranks.rank, step)


def _tensors(arrays: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return arrays of numbers in a form that is saved fast and read back safely."""
    return {name: as_tensor(array) for name, array in arrays.items()}
