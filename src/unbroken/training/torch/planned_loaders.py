"""Track the loaders of a training: their seeds, the passes that the script makes itself, and endless iterators.

The order of a pass is a function of the place in the script where it begins, so no state is needed to begin it again.
An endless iterator has a position, which is a part of the training's state.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from torch.utils.data import DataLoader

from unbroken.errors import CheckpointError
from unbroken.training.core.loop import NO_MORE
from unbroken.training.core.position import Position
from unbroken.training.torch.loader import PlannedLoader, end_workers
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.samplers import as_tensor, from_tensor, seed_from


class Zone(Enum):
    """Name the part of the script that runs."""

    SCRIPT = "before epochs"
    EPOCH = "between epochs and batches"
    BATCH = "in the epoch"


class Pass(Iterator[Any]):
    """Iterate over a loader once; a restart does not continue it."""

    def __init__(self, batches: Iterator[Any], steps: int) -> None:
        self._batches, self.left = batches, steps

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.left -= 1
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]


class Endless(Iterator[Any]):
    """Give the batches of a loader, pass after pass, each in an order of its own."""

    def __init__(self, loader: PlannedLoader, tracked: TrackedLoader, saved: Mapping[str, Any]) -> None:
        self._loader, self._tracked = loader, tracked
        self._begin(**saved)

    def __next__(self) -> Any:
        self._tracked.loaders.check_place()
        batch = next(self.batches, NO_MORE)
        if batch is NO_MORE:
            self._begin(self._number + 1)
            batch = next(self.batches)
        self._given += 1
        return batch

    def state(self) -> dict[str, Any]:
        """Return where a restart continues."""
        found = {"number": self._number, "start": self._steps.place_after(self._given), "batches": self._count}
        is_own = self._loader.sampler.plan.order.is_own
        return found | ({"order": as_tensor(self._indices)} if is_own else {})

    def _begin(self, number: int = 0, start: int = 0, batches: int | None = None, order: Any = None) -> None:
        plan, key = self._loader.sampler.plan, f"endless.{number}"
        self._indices = plan.order.draw(key) if order is None else from_tensor(order)
        row = plan.cut(key, self._indices)
        if batches not in (None, len(row)):
            raise CheckpointError(
                f"the checkpoint was made with {batches} batches in loader {self._tracked.name}, and it has "
                f"{len(row)}; allowed: the same data and batch size"
            )
        self._number, self._given, self._count = number, 0, len(row)
        self._steps = plan.steps_in(row, start)
        self.batches = self._loader.begin(key, self._steps, start)


class TrackedLoader:
    """Track one loader, by the name that a restart gives it again."""

    def __init__(self, name: str, loader: PlannedLoader, loaders: PlannedLoaders, saved: Mapping[str, Any]) -> None:
        self.name, self.loader, self.loaders = name, loader, loaders
        self.is_lasting = loaders.zone is Zone.SCRIPT
        self.endless: Endless | None = None
        self._saved = saved.get("endless")  # until the script asks for it
        self._open: list[weakref.ref[Pass]] = []

    def begin_pass(self) -> Pass:
        plan, key = self.loader.sampler.plan, f"pass.{self.loaders.numbered(self.name)}"
        steps = plan.steps_in(plan.cut(key, plan.order.draw(key)), 0)
        found = Pass(self.loader.begin(key, steps, 0), len(steps))
        self._open = [each for each in self._open if each() is not None] + [weakref.ref(found)]
        return found

    def begin_endless(self) -> Endless:
        if not self.is_lasting:
            raise TypeError("endless(): the loader was made inside of an epoch; allowed: one made before epochs()")
        if self.endless is None:
            self.endless = Endless(self.loader, self, self._saved or {})
        return self.endless

    def check_passes(self) -> None:
        """Raise TypeError if a pass is in use that a restart could not continue."""
        if any((each := opened()) is not None and each.left > 0 for opened in self._open):
            raise TypeError(
                f"an iterator over loader {self.name} is in use next to batches(), and a restart would begin it again; "
                "type training.endless(loader) in its place, or del where you no longer use it"
            )

    def state(self) -> dict[str, Any]:
        at = self.loaders.position
        order = self.loader.sampler.plan.order.state(at.epoch) if at.batch else None
        endless = self.endless.state() if self.endless else self._saved
        return {key: value for key, value in (("order", order), ("endless", endless)) if value is not None}


class PlannedLoaders:
    """Hold all loaders of `Training.loader`, each with a seed of its own."""

    def __init__(self, seed: int, position: Position) -> None:
        self.position, self.zone, self._seed = position, Zone.SCRIPT, seed
        self._made: dict[str, TrackedLoader] = {}
        self._saved: dict[str, Any] = {}  # of the loaders that are not made yet
        self._counts: Counter[str] = Counter()

    def numbered(self, name: str = "", *, is_new: bool = True) -> str:
        """Return the place in the script, as a restart finds it again, and how often it was asked for there before."""
        at = self.position
        places = {Zone.SCRIPT: "", Zone.EPOCH: f"{at.epoch}.", Zone.BATCH: f"{at.epoch}.{at.batch}."}
        key = f"{name}/{places[self.zone]}"
        self._counts[key] += is_new
        return f"{places[self.zone]}{self._counts[key] - is_new}"

    def new_seed(self) -> int:
        """Return the seed of the loader that is made next; that of the first is the training's."""
        name = self.numbered(is_new=False)
        return self._seed if name == "0" else seed_from(self._seed, "loader", name)

    def add(self, loader: PlannedLoader) -> None:
        name = self.numbered()
        saved = self._saved.pop(name, {})
        loader.sampler.plan.order.restore(self.position.epoch, saved.get("order"))
        self._made[name] = tracked = TrackedLoader(name, loader, self, saved)
        loader.begin_pass = tracked.begin_pass

    def endless(self, loader: DataLoader[Any]) -> Endless:
        """Return the endless iterator over a loader, of which there is one."""
        found = next((each for each in self._made.values() if each.loader is loader), None)
        if found is None:
            raise TypeError(f"endless() was given a {type(loader).__name__}, allowed: a loader of training.loader(...)")
        return found.begin_endless()

    def check_place(self) -> None:
        """Raise TypeError where no batch of an endless iterator may be drawn."""
        if self.zone is not Zone.BATCH:
            raise TypeError(
                "endless(): a batch was drawn before the epoch's first batch, and a restart would draw another one; "
                "allowed: inside of the loop over batches()"
            )

    def begin_epoch(self) -> None:
        """Note that the script gets the number of an epoch."""
        self.zone = Zone.EPOCH
        self._counts.clear()
        self._made = {name: each for name, each in self._made.items() if each.is_lasting}

    def begin_batches(self) -> None:
        """Note that the first batch of the epoch comes."""
        if self.zone is Zone.EPOCH:
            self.zone = Zone.BATCH

    def draw_order(self, loader: object, ranks: Ranks) -> None:
        """Draw a user's order where its epoch begins, not where a length was asked; all ranks take the first one's."""
        if self.position.batch or not isinstance(loader, PlannedLoader) or not loader.sampler.plan.order.is_own:
            return
        order, epoch = loader.sampler.plan.order, self.position.epoch
        order.forget()
        order.of(epoch)
        if ranks.size > 1:
            order.restore(epoch, ranks.broadcast(order.state(epoch)))

    def check_passes(self) -> None:
        """Raise TypeError if a pass over a loader is in use that a restart could not continue."""
        for each in self._made.values():
            each.check_passes()

    def end_workers(self) -> None:
        """End the worker processes of all loaders."""
        for each in self._made.values():
            end_workers(each.loader._iterator)
            end_workers(each.endless and each.endless.batches)

    def state(self) -> dict[str, Any]:
        """Return the orders by the user and the positions of endless iterators, by the names of the loaders."""
        return self._saved | {name: state for name, each in self._made.items() if (state := each.state())}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continue from what `state` returned."""
        self._saved = dict(state or {})
