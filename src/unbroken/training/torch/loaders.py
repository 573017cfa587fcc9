"""Make the loaders of a training, each with a seed of its own, and keep the positions in them.

In `Training` a pass over a loader has its order from the place in the script where it begins, so no state is needed to
begin it again.  In a loop of your own the passes are counted, and a restart continues the one that was begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any
from weakref import WeakSet

from torch.utils.data import DataLoader, Dataset

from unbroken.errors import CheckpointError
from unbroken.training.core.loop import NO_MORE
from unbroken.training.core.position import Position
from unbroken.training.torch.loader import ResumableLoader, end_workers
from unbroken.training.torch.process_group import Ranks, here
from unbroken.training.torch.samplers import EpochKey, EpochSteps, Indices, Order, seed_from


class Zone(Enum):
    """Name the part of the script that runs."""

    SCRIPT = "before epochs"
    EPOCH = "between epochs and batches"
    BATCH = "in the epoch"


class Pass(Iterator[Any]):
    """Iterate over a loader once; `saved` is the number of the pass, and what else `state` returned."""

    def __init__(self, loader: TrackedLoader, kind: str, saved: Mapping[str, Any]) -> None:
        self.number, self._given = saved.get("number", 0), 0
        self._loader, key, order = loader, f"{kind}.{self.number}", saved.get("order")
        self._indices = loader.draw(key) if order is None else order.clone()
        self._steps = loader.sampler.steps(self._indices, saved.get("start", 0))
        if saved.get("batches") not in (None, self._steps.batches):
            raise CheckpointError(
                f"the checkpoint was made with {saved['batches']} batches in loader {loader.name}, and it has "
                f"{self._steps.batches}; allowed: the same data and batch size"
            )
        self.iterator = loader.begin(key, self._indices, self._steps)

    def __next__(self) -> Any:
        batch = next(self.iterator, NO_MORE)
        if batch is NO_MORE:
            self._loader.in_use.discard(self)
            raise StopIteration
        self._given += 1
        return batch

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def left(self) -> int:
        """Return how many batches are still to come."""
        return len(self._steps) - self._given

    def state(self) -> dict[str, Any]:
        """Return where a restart continues."""
        steps = self._steps
        found = {"number": self.number, "start": steps.place_after(self._given), "batches": steps.batches}
        return found | ({"order": self._indices} if self._loader.sampler.is_own else {})


class TrackedLoader(ResumableLoader):
    """Load data of `Loaders`, and track the passes over them, by the name that a restart gives this loader again."""

    def track(self, name: str, loaders: Loaders, saved: Mapping[str, Any]) -> None:
        """Begin, where a loader of that name has left off."""
        self.name, self._loaders, self.is_lasting = name, loaders, loaders.zone is Zone.SCRIPT
        self.sampler.position = loaders.position
        self.share_with(loaders.ranks.rank, loaders.ranks.size)
        self._endless: Any = None  # the pass from which `_draws` draws
        self._draws: Iterator[Any] | None = None
        self.in_use: WeakSet[Pass] = WeakSet()
        self._next: dict[str, Any] = {}  # in a loop of your own: where the next pass begins
        self.load_state_dict(saved)

    def __iter__(self) -> Any:
        if self._loaders.is_own_loop:
            found = Pass(self, "pass", self._next)
            self._next = {"number": found.number + 1}
        else:
            found = Pass(self, "pass", {"number": self._loaders.numbered(self.name)})
        self.in_use.add(found)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of the passes, and the user's order of a begun epoch."""
        at = self._loaders.position
        found: dict[str, Any] = {"endless": self._endless.state() if self._endless else self._saved}
        if self._loaders.is_own_loop:
            found["seed"] = self.sampler.seed
            found["pass"] = next((each.state() for each in self.in_use), self._next)
        elif at.batch:
            found["order"] = self.sampler.state(at.epoch)
        return {key: value for key, value in found.items() if value is not None}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned, in passes that begin from here on, and in the endless one."""
        if state_dict.get("seed", self.sampler.seed) != self.sampler.seed:
            raise CheckpointError(
                f"the checkpoint was made with another seed for loader {self.name}; allowed: Loaders(seed) as before, "
                "and the loaders in the same order"
            )
        self.sampler.restore(self._loaders.position.epoch, state_dict.get("order"))
        self._saved = state_dict.get("endless")  # until the script asks for it
        self._next = dict(state_dict.get("pass") or {"number": 0})
        self.in_use.clear()
        if self._endless:
            self._endless = Pass(self, "endless", self._saved or {})

    def draw(self, key: EpochKey) -> Indices:
        """Draw the indices of a pass; if the order is the user's, all ranks take the first one's."""
        sampler, ranks = self.sampler, self._loaders.ranks
        return ranks.broadcast(sampler.draw(key)) if sampler.is_own else sampler.draw(key)

    def enter_epoch(self, at: Position) -> EpochSteps:
        """Return the steps that are left; the user's order is drawn here, not where a length was asked."""
        sampler = self.sampler
        if sampler.is_own and not at.batch:
            sampler.restore(at.epoch, self.draw(at.epoch))
        self._entered = sampler.steps(sampler.of(at.epoch), at.batch)
        return self._entered

    def begin_epoch(self, epoch: int) -> Iterator[Any]:
        """Begin to give the steps that `enter_epoch` returned."""
        return self.begin(epoch, self.sampler.of(epoch), self._entered)

    def begin_endless(self) -> Iterator[Any]:
        """Return the iterator over pass after pass, each in an order of its own; there is one."""
        if not self.is_lasting:
            raise TypeError("endless(): the loader was made inside of an epoch; allowed: one made before epochs()")
        if self._draws is None:
            self._endless = Pass(self, "endless", self._saved or {})
            self._draws = iter(self._draw, NO_MORE)
        return self._draws

    def _draw(self) -> Any:
        self._loaders.check_place()
        batch = next(self._endless, NO_MORE)
        if batch is NO_MORE:
            self._endless = Pass(self, "endless", {"number": self._endless.number + 1})
            batch = next(self._endless, NO_MORE)
        return batch

    def check_passes(self) -> None:
        """Raise TypeError if a pass is in use that a restart could not continue."""
        is_own_loop = self._loaders.is_own_loop
        # A loop of your own continues one.
        if len(self.in_use) > 1 if is_own_loop else any(each.left > 0 for each in self.in_use):
            other, owner = ("another one", "loaders") if is_own_loop else ("batches()", self._loaders.owner)
            raise TypeError(
                f"an iterator over loader {self.name} is in use next to {other}, and a restart would begin it again; "
                f"type {owner}.endless(loader) in its place, or del where you no longer use it"
            )

    def end_workers(self) -> None:
        """End the worker processes."""
        end_workers(self._iterator)
        end_workers(self._endless and self._endless.iterator)


class Loaders:
    """Make DataLoaders whose order is a function of the seed, and keep the positions in all of them.

    Give it to `Checkpoints(state={"loaders": loaders})`, or put its state into a checkpoint of your own.  After a
    restart, `for batch in loader` continues the pass that was begun, and `endless` its iterator.  Make the loaders in
    the same order each time.
    """

    owner = "training"  # with a position of its own: whose endless() a script calls

    def __init__(self, seed: int = 0, *, ranks: Ranks | None = None, position: Position | None = None) -> None:
        self.is_own_loop, self.position, self.zone = position is None, position or Position(), Zone.SCRIPT
        self._seed, self.ranks = seed, ranks or here()
        self._made: dict[str, TrackedLoader] = {}
        self._saved: dict[str, Any] = {}  # of the loaders that are not made yet
        self._counts: Counter[tuple[str, str]] = Counter()

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> TrackedLoader:
        """Return a DataLoader whose order is a function of the seed and the epoch; `options` are those of DataLoader.

        Random numbers drawn in the dataset, also from generators of its own, are a function of (seed, epoch, index), in
        this process or in any worker; of (seed, epoch, batch) where the dataset has `__getitems__`.  Each loader has a
        seed of its own.  `order` takes the place of the shuffle: it draws the indices of one epoch from the generator
        that it is given, and a sample that comes again draws anew.  Several ranks share each epoch; `batch_size` is
        that of one; with None each sample is a batch already.  For validation: `shuffle=False`.
        """
        name = self.numbered()
        seed = self._seed if name == "0" else seed_from(self._seed, "loader", name)
        options |= {"shuffle": shuffle, "order": order, "drop_last": drop_last, "collate_fn": collate_fn}
        loader = TrackedLoader.make(dataset, batch_size, seed, **options)
        self._made[name] = loader
        loader.track(name, self, self._saved.pop(name, {}))
        return loader

    def endless(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Return the one endless iterator over a loader: pass after pass, its position is in the state."""
        found = next((each for each in self._made.values() if each is loader), None)
        if found is None:
            raise TypeError(f"endless() was given a {type(loader).__name__}, allowed: a loader of training.loader(...)")
        return found.begin_endless()

    def state_dict(self) -> dict[str, Any]:
        """Return the orders by the user and the positions of iterators, by the names of the loaders."""
        self.check_passes()
        return self._saved | {name: state for name, each in self._made.items() if (state := each.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from what `state_dict` returned."""
        self._saved = dict(state or {})
        for name, each in self._made.items():
            each.load_state_dict(self._saved.pop(name, {}))

    def end_workers(self) -> None:
        """End the worker processes of all loaders."""
        for each in self._made.values():
            each.end_workers()

    # --- for Training ---

    def numbered(self, name: str = "") -> str:
        """Return the place in the script, as a restart finds it again, and how often it was asked for there before."""
        at = self.position
        place = {Zone.SCRIPT: "", Zone.EPOCH: f"{at.epoch}.", Zone.BATCH: f"{at.epoch}.{at.batch}."}[self.zone]
        count = self._counts[name, place]
        self._counts[name, place] += 1
        return f"{place}{count}"

    def begin_epoch(self) -> None:
        """Note that the script gets the number of an epoch."""
        self.zone = Zone.EPOCH
        self._counts.clear()
        self._made = {name: each for name, each in self._made.items() if each.is_lasting}

    def begin_batches(self) -> None:
        """Note that the first batch of the epoch comes."""
        if self.zone is Zone.EPOCH:
            self.zone = Zone.BATCH

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
