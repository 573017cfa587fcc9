"""Track the loaders of a training, and the script's position in those that it iterates itself.

Code before the first batch of an epoch runs again after a restart.  So a call of iter() there is known by its number,
and continues what the same call had begun; batches drawn there are drawn again.  A call inside the epoch begins a new
pass, which takes the place of one that has ended, as in a loop that begins its loader again and again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.training.core.batch_order import EpochSteps
from unbroken.training.core.position import Position
from unbroken.training.torch.loader import PlannedLoader
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.samplers import EpochKey, as_tensor, from_tensor, seed_from


class Zone(Enum):
    """Name the part of the script that runs."""

    SCRIPT = "before epochs"
    EPOCH = "between epochs and batches"
    BATCH = "in the epoch"


@dataclass
class Place:
    """Track a pass over a loader; `zone` and `call` name the call of iter() that continues it after a restart."""

    epoch: int
    number: int  # of the pass in that epoch
    zone: Zone
    call: int
    start: int = 0  # the place in the row of batches where this process began
    order: torch.Tensor | None = None  # `EpochOrder.state`
    steps: EpochSteps | None = None
    given: int = 0  # how many batches this process was given
    script_ahead: int = 0  # of these: so many before `epochs`, which a restart draws again
    epoch_ahead: int = 0  # and so many before the first batch of this epoch
    before: Place | None = None  # the pass whose place this one took
    is_replaced: bool = False
    is_resumed: bool = False

    @property
    def key(self) -> EpochKey:
        """Return the key of the order; an epoch's first pass has the order that a loader has in `Training.batches`."""
        return self.epoch if self.number == 0 else f"{self.epoch}.{self.number}"

    @property
    def is_done(self) -> bool:
        return self.steps is not None and self.given >= len(self.steps)

    def state(self, is_in_epoch: bool) -> dict[str, Any]:
        """Return where to continue, from which what was drawn ahead is drawn again."""
        ahead = self.script_ahead + (self.epoch_ahead if is_in_epoch else 0)
        place, done = self, self.given - ahead
        if done < 0 and self.before is not None and self.before.steps is not None:
            place, done = self.before, len(self.before.steps) + done
        at = place.start if place.steps is None else place.steps.place_after(done)
        found = {"epoch": place.epoch, "number": place.number, "zone": self.zone.value, "call": self.call, "start": at}
        return found | ({} if place.order is None else {"order": place.order})


class Pass(Iterator[Any]):
    """Iterate over a loader and count the batches given."""

    def __init__(self, batches: Iterator[Any], place: Place, passes: Passes) -> None:
        self._batches, self._place, self._passes = batches, place, passes

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._passes.count(self._place)
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]


class Passes:
    """Track the passes over one loader."""

    def __init__(self, loader: PlannedLoader, loaders: PlannedLoaders, name: int, state: Mapping[str, Any]) -> None:
        self.loader, self.name, self._loaders = loader, name, loaders
        self._made = self._calls = 0
        self._saved_made = int(state.get("made", 0))
        self._crosses: bool | None = state.get("crosses")  # an iterator made inside an epoch is used in the next one
        self._is_left = bool(state.get("left"))  # such an iterator is left unfinished, and another one made
        self._open: list[tuple[Place, weakref.ref[Pass]]] = []
        self._pending = [
            Place(**{**each, "zone": Zone(each["zone"])}, is_resumed=True) for each in state.get("open", ())
        ]

    def begin(self) -> Pass:
        """Begin a pass, or continue the one that this call had begun before a restart."""
        place = self._resumed() or self._fresh()
        if not (place.is_resumed and place.zone is Zone.BATCH):  # which is counted already
            self._made, self._calls = self._made + 1, self._calls + 1
        plan = self.loader.sampler.plan
        indices = plan.order.draw(place.key) if place.order is None else from_tensor(place.order)
        place.order = as_tensor(indices) if plan.order.is_own else None
        place.steps = plan.steps_in(plan.cut(place.key, indices), place.start)
        found = Pass(self.loader.begin(place.key, place.steps, place.start), place, self)
        self._open.append((place, weakref.ref(found)))
        return found

    def count(self, place: Place) -> None:
        zone = self._loaders.zone
        place.given += 1
        place.script_ahead += zone is Zone.SCRIPT
        place.epoch_ahead += zone is Zone.EPOCH
        if place.zone is Zone.BATCH and place.epoch != self._loaders.position.epoch:
            self._crosses = True

    def begin_epoch(self) -> None:
        self._learn()
        self._made = self._calls = 0
        self._open = [pair for pair in self._open if pair[0].zone is not Zone.EPOCH and pair[1]() is not None]
        is_known = self._crosses is False
        self._pending = [
            place
            for place in self._pending
            if place.zone is not Zone.SCRIPT and not (is_known and place.epoch != self._loaders.position.epoch)
        ]
        for place, _ in self._open:
            place.epoch_ahead = 0

    def begin_batches(self, is_resumed: bool) -> None:
        if is_resumed:
            self._made = self._saved_made
        self._learn()
        self._open = [pair for pair in self._open if pair[1]() is not None]
        self._pending = [place for place in self._pending if place.zone is Zone.BATCH]

    def state(self, is_in_epoch: bool) -> dict[str, Any]:
        """Return what a restart needs to continue the passes that are in use."""
        if not is_in_epoch:
            self._learn()
        is_kept = {Zone.SCRIPT: True, Zone.EPOCH: is_in_epoch}
        is_kept[Zone.BATCH] = not self._is_left if is_in_epoch else self._crosses is not False
        used = [place for place, alive in self._open if self._is_in_use(place, alive()) and is_kept[place.zone]]
        found = [place.state(is_in_epoch) for place in [*self._pending, *used]]
        rewound = sum(
            place.number != each["number"] for place, each in zip([*self._pending, *used], found, strict=True)
        )
        made = self._made - rewound if is_in_epoch else 0
        return {"made": made, "crosses": self._crosses, "left": self._is_left, "open": found}

    def _learn(self) -> None:
        """Note at the end of an epoch if an iterator that was made inside it is gone, though it was not at its end."""
        gone = (place for place, alive in self._open if alive() is None and place.zone is Zone.BATCH)
        if self._crosses is None and any(not place.is_done for place in gone):
            self._crosses = False

    @staticmethod
    def _is_in_use(place: Place, iterator: Pass | None) -> bool:
        return not place.is_replaced and (iterator is not None or (place.zone is not Zone.BATCH and place.is_done))

    def _resumed(self) -> Place | None:
        zone = self._loaders.zone
        for place in self._pending:
            if place.zone is zone and (zone is Zone.BATCH or place.call == self._calls):
                self._pending.remove(place)
                if place.epoch != self._loaders.position.epoch and zone is Zone.BATCH and self._crosses is None:
                    self._loaders.say(
                        f"loader {self.name} continues at batch {place.start}, because an iterator over it was in use "
                        "at the checkpoint; to begin it with the epoch, call iter(loader) before batches()"
                    )
                return place
        return None

    def _fresh(self) -> Place:
        loaders, zone, call = self._loaders, self._loaders.zone, self._calls
        fresh = Place(loaders.position.epoch, self._made, zone, call if zone is not Zone.BATCH else 0)
        if zone is not Zone.BATCH:
            return fresh
        for place, alive in self._open:
            if place.zone is not Zone.BATCH and place.is_done and not place.is_replaced:
                place.is_replaced, place.before = True, None
                fresh.zone, fresh.call, fresh.before = place.zone, place.call, place
                fresh.script_ahead, fresh.epoch_ahead = place.script_ahead, place.epoch_ahead
                break
            if place.zone is Zone.BATCH and not place.is_done and alive() is not None:
                self._leave(place)
        return fresh

    def _leave(self, place: Place) -> None:
        """Note that an iterator is in use no more, though it was not at its end."""
        if place.epoch != self._loaders.position.epoch:
            self._crosses = False
        elif place.is_resumed:
            raise CheckpointError(
                f"loader {self.name} was continued after the restart, and the script begins it again before its end; "
                "remove the iterator where you no longer use it (del), or iterate with a for loop"
            )
        else:
            self._is_left = True


class PlannedLoaders:
    """Hold all loaders of `Training.loader`, by their number in the order of creation."""

    def __init__(self, seed: int, position: Position, say: Callable[[str], None]) -> None:
        self.position, self.say = position, say
        self.zone = Zone.SCRIPT
        self.made: dict[int, Passes] = {}
        self._seed, self._next, self._before_epochs = seed, 0, 0
        self._saved: Mapping[str, Any] = {}

    def new_seed(self) -> int:
        """Return the seed of the loader that is made next; that of the first is the training's."""
        return self._seed if self._next == 0 else seed_from(self._seed, "loader", self._next)

    def add(self, loader: PlannedLoader) -> None:
        saved = self._saved.get("loaders", {}).get(self._next, {}) if self.zone is not Zone.BATCH else {}
        loader.sampler.plan.order.restore(self.position.epoch, saved.get("order"))
        passes = Passes(loader, self, self._next, saved)
        loader.begin_pass = passes.begin
        self.made[self._next] = passes
        self._next += 1

    def begin_epoch(self) -> None:
        """Note that the script gets the number of an epoch."""
        if self.zone is Zone.SCRIPT:
            self._before_epochs = self._next
        elif self.zone is Zone.BATCH:
            self._saved = {}
        self.zone, self._next = Zone.EPOCH, self._before_epochs
        for passes in self.made.values():
            passes.begin_epoch()

    def draw_order(self, loader: object, ranks: Ranks) -> None:
        """Draw a user's order where its epoch begins, not where a length was asked; all ranks take the first one's."""
        if self.position.batch or not isinstance(loader, PlannedLoader) or not loader.sampler.plan.order.is_own:
            return
        order, epoch = loader.sampler.plan.order, self.position.epoch
        order.forget()
        order.of(epoch)
        if ranks.size > 1:
            order.restore(epoch, ranks.broadcast(order.state(epoch)))

    def begin_batches(self) -> None:
        """Note that the first batch of the epoch comes."""
        if self.zone is not Zone.EPOCH:
            return
        is_resumed = bool(self._saved.get("is_in_epoch"))
        self.zone = Zone.BATCH
        for passes in self.made.values():
            passes.begin_batches(is_resumed)
        if is_resumed:
            self._next = self._saved["next"]
        self._saved = {}

    def state(self) -> dict[str, Any]:
        """Return the orders by the user and the places in all loaders, and by which seeds they were made."""
        if self.zone is Zone.SCRIPT and self._saved:
            return dict(self._saved)  # no epoch is left to be trained
        is_in_epoch, found = self.position.batch > 0, {}
        for passes in self.made.values():
            order = passes.loader.sampler.plan.order.state(self.position.epoch) if is_in_epoch else None
            found[passes.name] = passes.state(is_in_epoch) | ({} if order is None else {"order": order})
        made = self._next if is_in_epoch or self.zone is Zone.SCRIPT else self._before_epochs
        return {"next": made, "is_in_epoch": is_in_epoch, "loaders": found}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continue from what `state` returned."""
        self._saved = state or {}
