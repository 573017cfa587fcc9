"""What a save costs a JAX training that goes on, against Orbax's own CheckpointManager, in one process, in turns.

A real training on the CPU: forward, backward and Adam, its state donated by each step.  Stall: how long the training
stands still for the save.  All: what it loses until the save is complete, against the same steps without one.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from support.measure import in_turns, machine, options, publish, ratios, spread, table

from unbroken.store.progress import Progress
from unbroken.training.core.environment import Contract, Outbox, SavePlace
from unbroken.training.core.notes import NotedPoint
from unbroken.training.core.run_directory import Home
from unbroken.training.jax import Saves
from unbroken.training.jax.state import State, Writer

LAYERS = 8
ORBAX = "Orbax, `CheckpointManager`, async"


class Loop:
    """A training, and how long one of its steps takes; each step is waited for, as by a loop that logs its loss."""

    def __init__(self, megabytes: float) -> None:
        width = max(4, int((megabytes * 1e6 / 4 / 3 / LAYERS) ** 0.5))
        optimizer, batch = optax.adam(1e-3), jnp.ones((8, width))
        params = [jax.random.normal(key, (width, width)) for key in jax.random.split(jax.random.key(0), LAYERS)]

        def loss_of(params: list[jax.Array]) -> jax.Array:
            values = batch
            for weights in params:
                values = jnp.tanh(values @ weights)
            return values.sum()

        def train_step(state: dict[str, object]) -> dict[str, object]:
            gradients = jax.grad(loss_of)(state["params"])
            updates, moments = optimizer.update(gradients, state["moments"])
            return {"params": optax.apply_updates(state["params"], updates), "moments": moments}

        self._step = jax.jit(train_step, donate_argnums=0)
        self.state = {"params": params, "moments": optimizer.init(params)}
        for _ in range(2):
            self.step()
        self.step_seconds = median(self.seconds(3) / 3 for _ in range(3))

    def step(self) -> None:
        self.state = self._step(self.state)
        jax.block_until_ready(self.state)

    def seconds(self, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - began


# What begins a save, what tells between two steps that it is complete, and what removes what it wrote.
Way = tuple[Callable[[], object], Callable[[], bool], Callable[[], object]]


def none(loop: Loop, folder: Path) -> Way:
    return (lambda: None), (lambda: True), (lambda: None)


def orbax(loop: Loop, folder: Path, is_async: bool) -> Way:
    chosen = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=is_async)
    manager, steps = ocp.CheckpointManager(folder, options=chosen), iter(range(10**6))

    def save() -> None:
        manager.save(next(steps), args=ocp.args.StandardSave(loop.state), force=True)

    return save, (lambda: not manager.is_saving_in_progress()), manager.wait_until_finished


def ours(loop: Loop, folder: Path, in_background: bool, is_published: bool = False) -> Way:
    folder.mkdir()
    place: SavePlace = Home(folder, "training", Saves(keep=1)) if is_published else Outbox(folder)
    paths = {"save": folder, "stop": folder / "stop", "progress": folder / "progress.json"}
    contract = Contract("bench", None, deadline=1e18, save_seconds=1e9, **paths)
    link = Writer(contract, place, Saves(in_background=in_background), 0)

    def save() -> None:
        state = State(loop.state)
        link.save(NotedPoint(progress=Progress(1), step=1, state=state.tree, notes={"leaves": state.table()}))

    def is_complete() -> bool:
        link.poll()
        return link._async_save is None

    def remove() -> None:
        for ready in folder.glob("*.ready"):
            shutil.rmtree(ready)

    return save, is_complete, remove


WAYS: dict[str, Callable[[Loop, Path], Way]] = {
    "no save": none,
    "Orbax, `CheckpointManager`, not async": lambda loop, folder: orbax(loop, folder, False),
    ORBAX: lambda loop, folder: orbax(loop, folder, True),
    "unbroken, at once": lambda loop, folder: ours(loop, folder, False),
    "unbroken, in the background": lambda loop, folder: ours(loop, folder, True),
    "the same, and published: every byte digested, flushed": lambda loop, folder: ours(loop, folder, True, True),
}


def cost(loop: Loop, way: Way) -> tuple[float, float]:
    """The stall of one save, and all that the training loses by it."""
    save, is_complete, remove = way
    os.sync()
    began = time.perf_counter()
    save()
    stall, steps = time.perf_counter() - began, 0
    while steps < 3 or not is_complete():
        loop.step()
        steps += 1
    lost = time.perf_counter() - began - steps * loop.step_seconds
    remove()
    return stall, lost


def measure(megabytes: float, rounds: int, base: Path) -> str:
    loop = Loop(megabytes)
    ways = {name: make(loop, base / f"{megabytes}-{number}") for number, (name, make) in enumerate(WAYS.items())}
    variants = {name: lambda way=way: cost(loop, way) for name, way in ways.items()}
    in_turns(variants, 1)  # to have everything loaded, and memory taken
    found = in_turns(variants, rounds)
    bases = [stall for stall, _ in found[ORBAX]]
    rows = []
    for name, costs in found.items():
        stalls, lost = ([each[at] for each in costs] for at in (0, 1))
        quickest = f"{min(stalls) / min(bases):.2f}"
        rows.append(
            [name, spread(stalls, 4), spread(ratios(stalls, bases)), quickest, spread(lost, 3), f"{min(lost):.3f}"]
        )
    header = ["variant", "stall, seconds", "times Orbax's async", "the least", "all, seconds", "the least"]
    return f"**{megabytes:g} MB**, a step takes {loop.step_seconds:.3f} s, rounds: {rounds}\n\n{table(header, rows)}"


if __name__ == "__main__":
    chosen = options(__doc__, megabytes=(str, "1,30,300", "sizes of the state"), rounds=(int, 7, "how often"))
    where = machine("jax", "orbax-checkpoint")
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as folder:
        pages = [measure(float(size), chosen.rounds, Path(folder)) for size in chosen.megabytes.split(",")]
    publish("save_jax", "\n\n".join([where, *pages]), chosen.write)
