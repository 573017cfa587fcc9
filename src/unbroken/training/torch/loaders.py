"""Make the loaders of a training, each with a seed of its own, and keep the positions in them.

In `Training` a pass over a loader has its order from the place in the script where it begins, so no state is needed to
begin it again.  In a loop of your own the passes are counted, and a restart continues the one that was begun.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from torch.utils.data import DataLoader, Dataset

from unbroken.errors import CheckpointError
from unbroken.training.core.loop import NO_MORE
from unbroken.training.core.position import Position
from unbroken.training.torch.loader import EpochSampler, PlannedLoader, alone, end_workers, make_loader
from unbroken.training.torch.process_group import Ranks, here
from unbroken.training.torch.random_state import own_generators
from unbroken.training.torch.samplers import EpochOrder, Indices, Order, SamplePlan, as_tensor, from_tensor, seed_from
from unbroken.training.torch.state import RandomGenerator


class Zone(Enum):
    """Name the part of the script that runs."""

    SCRIPT = "before epochs"
    EPOCH = "between epochs and batches"
    BATCH = "in the epoch"


class Pass(Iterator[Any]):
    """Iterate over a loader once; `saved` is the number of the pass, and what else `state` returned."""

    def __init__(self, tracked: TrackedLoader, kind: str, saved: Mapping[str, Any]) -> None:
        self.number, self.is_over, self._given = saved.get("number", 0), False, 0
        self._plan, key = tracked.loader.sampler.plan, f"{kind}.{self.number}"
        order = saved.get("order")
        self._indices = tracked.drawn(key) if order is None else from_tensor(order)
        row, start = self._plan.cut(key, self._indices), saved.get("start", 0)
        if saved.get("batches") not in (None, len(row)):
            raise CheckpointError(
                f"the checkpoint was made with {saved['batches']} batches in loader {tracked.name}, and it has "
                f"{len(row)}; allowed: the same data and batch size"
            )
        self._count, self._steps = len(row), self._plan.steps_in(row, start)
        self.iterator = tracked.loader.begin(key, self._steps, start)

    def __next__(self) -> Any:
        batch = next(self.iterator, NO_MORE)
        if batch is NO_MORE:
            self.is_over = True
            raise StopIteration
        self._given += 1
        return batch

    def __len__(self) -> int:
        return len(self.iterator)  # type: ignore[arg-type]

    @property
    def left(self) -> int:
        """Return how many batches are still to come."""
        return len(self._steps) - self._given

    def state(self) -> dict[str, Any]:
        """Return where a restart continues."""
        found = {"number": self.number, "start": self._steps.place_after(self._given), "batches": self._count}
        return found | ({"order": as_tensor(self._indices)} if self._plan.order.is_own else {})


class Endless(Iterator[Any]):
    """Give the batches of a loader, pass after pass, each in an order of its own."""

    def __init__(self, tracked: TrackedLoader, saved: Mapping[str, Any]) -> None:
        self._tracked = tracked
        self.go_to(saved)

    def go_to(self, saved: Mapping[str, Any]) -> None:
        """Continue where a pass was."""
        self.passed = Pass(self._tracked, "endless", saved)

    def __next__(self) -> Any:
        self._tracked.loaders.check_place()
        batch = next(self.passed, NO_MORE)
        if batch is NO_MORE:
            self.go_to({"number": self.passed.number + 1})
            batch = next(self.passed)
        return batch


class TrackedLoader:
    """Track one loader, by the name that a restart gives it again."""

    def __init__(self, name: str, loader: PlannedLoader, loaders: Loaders, saved: Mapping[str, Any]) -> None:
        self.name, self.loader, self.loaders = name, loader, loaders
        self.is_lasting = loaders.zone is Zone.SCRIPT
        self.endless: Endless | None = None
        self._open: list[weakref.ref[Pass]] = []
        self.restore(saved)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, in iterations that begin from here on, and in the endless one."""
        plan = self.loader.sampler.plan
        if saved.get("seed", plan.seed) != plan.seed:
            raise CheckpointError(
                f"the checkpoint was made with another seed for loader {self.name}; allowed: Loaders(seed) as before, "
                "and the loaders in the same order"
            )
        plan.order.restore(self.loaders.position.epoch, saved.get("order"))
        self._saved = saved.get("endless")  # until the script asks for it
        self._next: dict[str, Any] = dict(saved.get("pass") or {"number": 0})  # of a loop of your own
        self._open.clear()
        if self.endless:
            self.endless.go_to(self._saved or {})

    def drawn(self, key: str) -> Indices:
        """Draw the indices of a pass; in a loop of your own all ranks take the first one's."""
        order, ranks = self.loader.sampler.plan.order, self.loaders.ranks
        is_shared = self.loaders.is_own_loop and order.is_own and ranks.size > 1
        return from_tensor(ranks.broadcast(as_tensor(order.draw(key)))) if is_shared else order.draw(key)

    def begin_pass(self) -> Pass:
        if self.loaders.is_own_loop:
            found = Pass(self, "pass", self._next)
            self._next = {"number": found.number + 1}
        else:
            found = Pass(self, "pass", {"number": self.loaders.numbered(self.name)})
        self._open = [each for each in self._open if each() is not None] + [weakref.ref(found)]
        return found

    def begin_endless(self) -> Endless:
        if not self.is_lasting:
            raise TypeError("endless(): the loader was made inside of an epoch; allowed: one made before epochs()")
        if self.endless is None:
            self.endless = Endless(self, self._saved or {})
        return self.endless

    @property
    def _alive(self) -> list[Pass]:
        found = (opened() for opened in self._open)
        return [each for each in found if each is not None and not each.is_over]

    def check_passes(self) -> None:
        """Raise TypeError if a pass is in use that a restart could not continue."""
        is_own_loop, alive = self.loaders.is_own_loop, self._alive
        # A loop of your own continues one.
        if len(alive) > 1 if is_own_loop else any(each.left > 0 for each in alive):
            other, owner = ("another one", "loaders") if is_own_loop else ("batches()", "training")
            raise TypeError(
                f"an iterator over loader {self.name} is in use next to {other}, and a restart would begin it again; "
                f"type {owner}.endless(loader) in its place, or del where you no longer use it"
            )

    def state(self) -> dict[str, Any]:
        at, plan = self.loaders.position, self.loader.sampler.plan
        found: dict[str, Any] = {"endless": self.endless.passed.state() if self.endless else self._saved}
        if self.loaders.is_own_loop:
            found["seed"] = plan.seed
            found["pass"] = next((each.state() for each in self._alive), self._next)
        elif at.batch:
            found["order"] = plan.order.state(at.epoch)
        return {key: value for key, value in found.items() if value is not None}


class Loaders:
    """Make DataLoaders whose order is a function of the seed, and keep the positions in all of them.

    Give it to `Checkpoints(state={"loaders": loaders})`, or put its state into a checkpoint of your own.  After a
    restart, `for batch in loader` continues the pass that was begun, and `endless` its iterator.  Make the loaders in
    the same order each time.
    """

    def __init__(self, seed: int = 0, *, ranks: Ranks | None = None, position: Position | None = None) -> None:
        self.is_own_loop, self.position, self.zone = position is None, position or Position(), Zone.SCRIPT
        self._seed, self.ranks = seed, ranks or here()
        self._made: dict[str, TrackedLoader] = {}
        self._saved: dict[str, Any] = {}  # of the loaders that are not made yet
        self._counts: Counter[str] = Counter()
        self._generators: list[RandomGenerator] = []  # of data sets, used as they are

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
        groups: Sequence[object] | None = None,
        seeded_samples: bool = True,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> DataLoader[Any]:
        """Return a DataLoader whose order is a function of the seed and the epoch; `options` are those of DataLoader.

        With `seeded_samples`, random numbers drawn in the dataset, also from generators of its own, are a function of
        (seed, epoch, index), in this process or in any worker; of (seed, epoch, batch) where the dataset has
        `__getitems__`.  Each loader has a seed of its own.  `order` takes the place of the shuffle: it draws the
        indices of one epoch from the generator that it is given.  With `groups`, the kind of each sample, each batch
        is of one kind.  Several ranks share each epoch; `batch_size` is that of one; with None each sample is a batch
        already.  For validation: `shuffle=False`.
        """
        if not seeded_samples and not options.get("num_workers"):
            self._generators += own_generators(dataset, collate_fn)
        name = self.numbered(is_new=False)
        seed = self._seed if name == "0" else seed_from(self._seed, "loader", name)
        drawn = EpochOrder(len(dataset), seed, shuffle=shuffle, order=order)  # type: ignore[arg-type]
        size = 1 if batch_size is None else batch_size
        plan = SamplePlan(drawn, size, share=self.ranks.share, drop_last=drop_last, groups=groups)
        collate = alone(collate_fn) if batch_size is None else collate_fn
        sampler = EpochSampler(self.position, plan)
        loader = make_loader(
            PlannedLoader, dataset, sampler, options, seeded_samples=seeded_samples, collate_fn=collate
        )
        name = self.numbered()
        self._made[name] = tracked = TrackedLoader(name, loader, self, self._saved.pop(name, {}))
        loader.begin_pass = tracked.begin_pass
        return loader

    def endless(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Return the one endless iterator over a loader: pass after pass, its position is in the state."""
        found = next((each for each in self._made.values() if each.loader is loader), None)
        if found is None:
            raise TypeError(f"endless() was given a {type(loader).__name__}, allowed: a loader of training.loader(...)")
        return found.begin_endless()

    def state_dict(self) -> dict[str, Any]:
        """Return the orders by the user and the positions of iterators, by the names of the loaders."""
        self.check_passes()
        return self._saved | {name: state for name, each in self._made.items() if (state := each.state())}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from what `state_dict` returned."""
        self._saved = dict(state or {})
        for name, each in self._made.items():
            each.restore(self._saved.pop(name, {}))

    def end_workers(self) -> None:
        """End the worker processes of all loaders."""
        for each in self._made.values():
            end_workers(each.loader._iterator)
            end_workers(each.endless and each.endless.passed.iterator)

    # --- for Training ---

    def numbered(self, name: str = "", *, is_new: bool = True) -> str:
        """Return the place in the script, as a restart finds it again, and how often it was asked for there before."""
        at = self.position
        places = {Zone.SCRIPT: "", Zone.EPOCH: f"{at.epoch}.", Zone.BATCH: f"{at.epoch}.{at.batch}."}
        key = f"{name}/{places[self.zone]}"
        self._counts[key] += is_new
        return f"{places[self.zone]}{self._counts[key] - is_new}"

    def begin_epoch(self) -> None:
        """Note that the script gets the number of an epoch."""
        self.zone = Zone.EPOCH
        self._counts.clear()
        self._made = {name: each for name, each in self._made.items() if each.is_lasting}

    def begin_batches(self) -> None:
        """Note that the first batch of the epoch comes."""
        if self.zone is Zone.EPOCH:
            self.zone = Zone.BATCH

    def draw_order(self, loader: object) -> None:
        """Draw a user's order where its epoch begins, not where a length was asked; all ranks take the first one's."""
        if self.position.batch or not isinstance(loader, PlannedLoader) or not loader.sampler.plan.order.is_own:
            return
        order, epoch = loader.sampler.plan.order, self.position.epoch
        order.forget()
        order.of(epoch)
        if self.ranks.size > 1:
            order.restore(epoch, self.ranks.broadcast(order.state(epoch)))

    def check_place(self) -> None:
        """Raise TypeError where no batch of an endless iterator may be drawn."""
        if not self.is_own_loop and self.zone is not Zone.BATCH:
            raise TypeError(
                "endless(): a batch was drawn before the epoch's first batch, and a restart would draw another one; "
                "allowed: inside of the loop over batches()"
            )

    def check_passes(self) -> None:
        """Raise TypeError if a pass over a loader is in use that a restart could not continue."""
        for each in self._made.values():
            each.check_passes()

    def check_generators(self, saved: Sequence[object]) -> None:
        """Raise TypeError if a data set's own generator is used as it is, and is not among those that are saved."""
        for generator in self._generators:
            if not any(generator is each for each in saved):
                raise TypeError(
                    "loader(seeded_samples=False): the data set has a random generator of its own "
                    f"({type(generator).__name__}), which is in no checkpoint; type seeded_samples=True, or give a "
                    "generator to state={'generator': ...} too"
                )
