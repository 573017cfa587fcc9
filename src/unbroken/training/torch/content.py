"""Collect what a checkpoint holds of a training: parts, random numbers, gradients, and what the training adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from unbroken.training.core.session import together
from unbroken.training.core.validation import Validate, Validation
from unbroken.training.torch import random_state, rank_checkpoint
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.loader import end_workers
from unbroken.training.torch.loaders import Loaders
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.put_back import MODES, Repeated, Switches, put_back
from unbroken.training.torch.samplers import seed_from
from unbroken.training.torch.schedules import Replayed
from unbroken.training.torch.state import Part, RandomGenerator, local, only, places
from unbroken.training.torch.stateful_loader import StatefulLoader, is_stateful_loader
from unbroken.training.torch.unsaved import Unsaved, make_persistent

SWITCHES = "switches"

Parts: TypeAlias = Mapping[str, Part | Sequence[Part]]
Weights: TypeAlias = Mapping[str, Mapping[str, torch.Tensor]]  # of each part, by name
NO_PARTS: Parts = MappingProxyType({})


def checked(state: Parts, per_rank: Parts) -> dict[str, Part]:
    """Return all parts by their names; raise TypeError for one that cannot be saved."""
    parts = torch_state.one_by_one(together(state, per_rank))
    for name, part in torch_state.only(parts, torch.nn.Module).items():
        if any(isinstance(module, FullyShardedDataParallel) for module in part.modules()):
            raise TypeError(
                f"Training(state={{{name!r}: ...}}) holds a FullyShardedDataParallel (FSDP1), whose optimizer has "
                "another state on each rank under the same names; allowed: FSDP2; type fully_shard(model) "
                "(torch.distributed.fsdp)"
            )
    return parts


class Content:
    """Hold everything that defines a training, on this rank; each of the ranks has the parts `per_rank` for itself.

    `notes` returns what the training adds to a checkpoint, and `take_notes` restores it.  `where` says where the
    training is, and `leave` ends it with a message.  Raise TypeError for a part that cannot be saved.
    """

    def __init__(  # noqa: PLR0913  (a keyword each)
        self,
        state: Parts,
        per_rank: Parts,
        *,
        notes: Callable[[], dict[str, Any]],
        take_notes: Callable[[Mapping[str, Any]], object],
        where: Callable[[], str],
        leave: Callable[[str], NoReturn],
        seed: int = 0,
        validate: Validate | Callable[[], Any] | None = None,
        new_schedule: bool = False,
        is_prepared: bool = False,
        must_be_finite: bool = True,
        ranks: Ranks | None = None,
    ) -> None:
        own, self.given, self._seed = torch_state.one_by_one(per_rank), checked(state, per_rank), seed
        self.ranks = ranks = ranks or Ranks.here()  # not before the parts are checked: they talk to each other
        self._notes, self._take_notes, self.where, self.leave = notes, take_notes, where, leave
        self._has_new_schedule, self._must_be_finite = new_schedule, must_be_finite
        for line in make_persistent(self.given, own, ranks.size):
            ranks.say(line)
        self._generators = {name: part for name, part in self.given.items() if isinstance(part, RandomGenerator)}
        others = {name: part for name, part in self.given.items() if not isinstance(part, RandomGenerator)}
        stateful = {name: part for name, part in others.items() if is_stateful_loader(part)}
        self.stateful = {name: StatefulLoader(name, part, seed, ranks.size) for name, part in stateful.items()}
        self.parts = {name: self.stateful.get(name) or torch_state.own_part(part) for name, part in others.items()}
        self.own = {*own, *self.stateful} & self.parts.keys()
        # Those of `Training` are added by it; those of a loop of the user's own are a part.
        self.loaders = [*torch_state.only(others, Loaders).values()]
        self.trust = Validation(validate, lambda predict: predicted(predict, self.parts, self._generators))
        self.gradients = Gradients(self.parts)
        self.switches = Switches(self.parts)
        self._unsaved, self._said = Unsaved(self.parts, self.gradients, is_prepared=is_prepared), set[str]()
        self._repeated: Repeated | None = None  # while a restart repeats the beginning of an epoch
        self._rest: dict[str, Any] | None = None  # of the checkpoint that was restored, still to be put back
        # Several ranks would all drop out the same.  Not before the first batch: until then a script draws what all
        # of them must have in common, and each segment again, such as the split of its data.
        self._first_seed = self._seed_of_rank(0) if ranks.size > 1 else None

    def pieces(self) -> rank_checkpoint.Pieces:
        """Return what this rank writes of it, by the names of files; give up if there is what must not be saved."""
        self.check()
        return rank_checkpoint.pieces_of(self.state(), self.own, self.ranks)

    def state(self) -> dict[str, Any]:
        """Return all of it; raise CheckpointError for what cannot be saved."""
        parts = {name: torch_state.state_of(part) for name, part in self.parts.items()}
        state: dict[str, Any] = {
            "seed": self._seed,
            **self._notes(),
            "trust": self.trust.state(),
            "random": random_state.collect(self._generators),
            rank_checkpoint.GRADIENTS: self.gradients.state(),  # after the parts, whose hooks bring FSDP2 in order
            SWITCHES: self.switches.state(),
            "parts": {name: torch_state.canonical(part, name) for name, part in parts.items()},
        }
        if self._must_be_finite and (non_finite := self.trust.non_finite_prediction(state["trust"])):
            self.give_up(non_finite_weight(self.weights()) or non_finite)
        return state

    def give_up(self, reason: str) -> NoReturn:
        """End the training, whose state must not be saved."""
        self.leave(f"{reason}, {self.where()}")

    def weights(self) -> Weights:
        """Return the weights that must be finite."""
        return weights_of(self.parts) if self._must_be_finite else {}

    def check(self) -> None:
        """Look for what cannot be saved, and name what no restart can restore.

        Raise TypeError for a loader that is used in a way that no restart can continue; give up for other things.
        """
        for loaders in self.loaders:
            loaders.check_passes()
        for loader in self.stateful.values():
            loader.check_used()
        if unshared := self.gradients.unshared():
            self.give_up(unshared)
        for line in self._unsaved.lines():
            self.say_once(line, line)

    def restore(self, folder: Path) -> str:
        """Restore what a checkpoint holds; return why it is not to be trusted, "" if it is.

        Random numbers and gradients follow later, by `put_the_rest_back`.
        """
        state, source = rank_checkpoint.read(folder, self.ranks, self._seed), str(folder)
        seed, random, switches = self._seed_of_rank(state["position"]["step"]), state["random"], state[SWITCHES]
        generators = random["generators"] if random else self._generators
        torch_state.check_names([*self.parts, *self._generators], [*state["parts"], *generators], source)
        replayed = Replayed(self.parts, state["parts"]) if self._has_new_schedule else None
        self.switches.fit_groups(switches, source)
        gradients = state[rank_checkpoint.GRADIENTS]
        states = {**state["parts"], rank_checkpoint.GRADIENTS: gradients["tensors"]}
        likes = {**self.parts, rank_checkpoint.GRADIENTS: torch_state.parameters_in(self.parts)}
        parts = rank_checkpoint.put_in(states, likes, folder, self.ranks)
        gradients = {**gradients, "tensors": parts.pop(rank_checkpoint.GRADIENTS)}
        self.gradients.check(gradients, source)
        put_back(self.parts, parts, source)
        if replayed:
            replayed.put_back()
        self._take_notes(state)
        self.switches.put_back(switches)
        self._first_seed = None
        self._rest = {"folder": folder, "seed": seed, "random": random, "switches": switches, "gradients": gradients}
        return self.trust.validation_error(state["trust"])

    def say_once(self, key: str, line: str) -> None:
        """Write a line, unless it is empty, or there was one of that key."""
        if line and key not in self._said:
            self._said.add(key)
            self.ranks.say(line)

    def end_workers(self) -> None:
        """End the worker processes of all loaders, which would outlive this process or keep it alive."""
        for loaders in self.loaders:
            loaders.end_workers()
        for each in self.stateful.values():
            end_workers(each.loader._iterator)

    @property
    def has_rest_to_put_back(self) -> bool:
        """Return True while a restart repeats what ran before the position from which it resumes."""
        return self._rest is not None

    def begin_repeating(self) -> None:
        """Announce that the script now repeats what it did before the position from which the training resumes."""
        if self._rest:
            others = {name: part for name, part in self.parts.items() if not isinstance(part, StatefulLoader | Loaders)}
            self._repeated = Repeated(others)

    def put_the_rest_back(self) -> None:
        """Restore what the script's own beginning may change: parts, random generators and gradients."""
        if self._first_seed is not None:
            random_state.seed_everything(self._first_seed)
            self._first_seed = None
        if rest := self._rest:
            if self._repeated and self._repeated.put_back():
                self._load_models(rest["folder"])
            if said := self.switches.put_back(rest["switches"]):
                self.ranks.say(said)
            if rest["random"]:
                random_state.restore_all(rest["random"], self._generators)
            else:
                random_state.reseed(rest["seed"], self._generators)
            self.gradients.put_back(rest["gradients"])
            self._rest = self._repeated = None

    def _load_models(self, folder: Path) -> None:
        """Give the models the weights of the checkpoint again, which the script has changed since."""
        models = torch_state.only(self.parts, torch.nn.Module)
        state = rank_checkpoint.read(folder, self.ranks, self._seed)["parts"]
        states = {name: state[name] for name in models}
        put_back(models, rank_checkpoint.put_in(states, models, folder, self.ranks), str(folder))

    def _seed_of_rank(self, step: int) -> int:
        return seed_from(self._seed, "rank", self.ranks.rank, step)


class Omitted:
    """Save what frameworks omit from a checkpoint: random numbers, accumulated gradients, frozen layers and modes.

    Of a sharded model each rank saves its own shards of the gradients.
    """

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._parts, self._gradients = parts, Gradients(parts)
        self._switches = Switches(torch_state.only(parts, torch.nn.Module), MODES)

    def state(self) -> dict[str, Any]:
        """Return it in a form that can be saved."""
        gradients = self._gradients.state()
        gradients["tensors"] = {name: torch_state.local(each) for name, each in gradients["tensors"].items()}
        state = {"random": random_state.collect({}), "gradients": gradients, SWITCHES: self._switches.state()}
        return {name: torch_state.canonical(value, name) for name, value in state.items()}

    def put_back(self, state: Mapping[str, Any], source: str) -> None:
        """Restore it where the training resumes."""
        parameters, saved = torch_state.parameters_in(self._parts), state["gradients"]
        tensors = {name: _like(parameters.get(name), each) for name, each in saved["tensors"].items()}
        self._gradients.check(saved, source)
        self._gradients.put_back({**saved, "tensors": tensors})
        self._switches.put_back(state[SWITCHES])
        random_state.restore_all(state["random"], {})


def _like(parameter: torch.Tensor | None, local: torch.Tensor) -> torch.Tensor:
    """Return the gradient of which this rank has saved its local part."""
    if not isinstance(parameter, DTensor):
        return local
    mesh, shape, stride = parameter.device_mesh, parameter.shape, parameter.stride()
    return DTensor.from_local(local.to(parameter.device), mesh, parameter.placements, shape=shape, stride=stride)


# --- what a checkpoint is checked by ---


def predicted(
    predict: Callable[[], Any], parts: Mapping[str, object], generators: Mapping[str, RandomGenerator]
) -> torch.Tensor:
    """Return every number in a prediction, made in evaluation mode; it leaves modules and generators as they were."""
    modules = [module for model in only(parts, torch.nn.Module).values() for module in model.modules()]
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with random_state.all_kept(generators), torch.no_grad():
            found = [each for _, each in places(predict()) if isinstance(each, torch.Tensor | int | float)]
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
    return torch.cat([torch.empty(0, dtype=torch.float64), *map(_as_numbers, found)])


def weights_of(parts: Mapping[str, object]) -> Weights:
    """Return the weights of each model, as references that follow later changes."""
    models = only(parts, torch.nn.Module).items()
    return {name: {key: value.detach() for key, value in model.named_parameters()} for name, model in models}


def _as_numbers(value: Any) -> torch.Tensor:
    """Return a tensor of a prediction as float64 on the CPU."""
    value = torch.as_tensor(value)
    real = torch.view_as_real(value) if value.is_complex() else value
    return real.detach().to(device="cpu", dtype=torch.float64).flatten()


def non_finite_weight(weights: Weights) -> str:
    """Name the first of this rank's weights that hold NaN or infinity; return "" if all are finite."""
    for name, spread in weights.items():
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        own = {key: local(value) for key, value in spread.items()}
        asked = {key: torch.isfinite(_sum(value)) for key, value in own.items()}
        doubted = [key for key, is_finite in asked.items() if not is_finite]
        bad = next((key for key in doubted if not torch.isfinite(own[key]).all()), None)
        if bad is not None:
            return f"the weights {name}.{bad} hold NaN or infinity"
    return ""


def _sum(value: torch.Tensor) -> torch.Tensor:
    """Return the sum, which is not finite if one number is not; this takes a ninth of the time of testing each."""
    return value.sum(dtype=torch.float32 if value.dtype in (torch.float16, torch.bfloat16) else None)
