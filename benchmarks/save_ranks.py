"""What a save costs a training on several ranks (DDP, gloo), each step of which waits for all of them.

A real training on the CPU: forward, backward, Adam, its state three times its parameters.  *Lost*: how much longer
than so many usual steps a process takes, for each save but the first, on the rank where that is longest.  Started by
hand, so unbroken flushes, digests and renames in the training's own process.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from support.measure import in_turns, machine, options, publish, ratios, spread, table
from torch.nn.parallel import DistributedDataParallel

from unbroken.system import fs
from unbroken.training.torch import Saves, Training

LAYERS = 10
# Steps that the first save may prolong after its own: ranks agree in one, save in the next, and wait for a copy.
BEHIND = 3
PLAIN = "`torch.save` on the first rank, and a barrier"
NEVER = Saves(minutes=1e9)


def no_save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    pass


def by_first(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """What most scripts do."""
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
    dist.barrier()


def by_first_flushed(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
        fs.flush(folder / "state.pt")
    dist.barrier()


class TorchsOwn:
    """The asynchronous save of torch.distributed.checkpoint, one at a time."""

    def __init__(self) -> None:
        self._group = self._under_way = None

    def __call__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        from torch.distributed import checkpoint

        if self._under_way:
            self._under_way.result()
        # Its thread talks in the default group, beside the training's own messages, and both hang for ever.
        self._group = self._group or dist.new_group(backend="gloo")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        self._under_way = checkpoint.async_save(state, checkpoint_id=folder / "dcp", process_group=self._group)


# A policy of unbroken's, where it saves, or what is called after a step.
WAYS: dict[str, bool | Callable[..., None]] = {
    "no save": no_save,
    PLAIN: by_first,
    "the same, flushed to the disk": by_first_flushed,
    "unbroken, at once": False,
    "unbroken, beside the training": True,
    "torch's own `async_save` (DCP)": TorchsOwn(),
}


def train(way: bool | Callable[..., None], megabytes: float, saves: int, every: int, base: Path) -> None:
    """On each rank; leaves the seconds of its steps in a file."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    width = max(4, int((megabytes * 1e6 / 4 / 3 / LAYERS) ** 0.5))
    module = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.Adam(model.parameters())
    policy = NEVER if callable(way) else Saves(steps=every, in_background=way)
    training = Training(state={"model": model, "optimizer": optimizer}, folder=base / "unbroken", saves=policy)
    data = training.loader(torch.rand(saves * every * 8 * dist.get_world_size() + 1, width), batch_size=8)
    began: list[float] = []
    for _ in training.epochs(1):
        for batch in training.batches(data):
            began.append(time.perf_counter())
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            if callable(way) and len(began) % every == 0:
                way(model, optimizer, base)
    (base / f"rank{dist.get_rank()}.json").write_text(json.dumps(began))
    dist.barrier()
    dist.destroy_process_group()


def lost(began: list[float], every: int, saves: int) -> tuple[float, float]:
    """Seconds that each save but the first cost in all, if the others took `saves`; and a usual step."""
    steps = [after - before for before, after in pairwise(began)]
    usual, later = median(steps), steps[every + BEHIND :]
    return (sum(later) - len(later) * usual) / (saves - 1), usual


def measured(name: str, ranks: int, megabytes: float, saves: int, every: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as base:
        launch = [sys.executable, "-m", "unbroken.training.launch.ranks", "--ranks", str(ranks)]
        own = [f"--megabytes={megabytes}", f"--saves={saves}", f"--every={every}", f"--one={name}:{base}"]
        subprocess.run([*launch, sys.executable, __file__, *own], stdout=subprocess.DEVNULL, check=True)
        began = [json.loads(path.read_text()) for path in sorted(Path(base).glob("rank*.json"))]
        numbers = [int(path.name[:6]) for path in Path(base).glob("unbroken/checkpoints/0*")]
    count = max(numbers, default=(len(began[0]) - 1) // every)
    found = [lost(own, every, count) for own in began]
    return {"lost": max(seconds for seconds, _ in found), "step": median(usual for _, usual in found)}


def measure(ranks: int, megabytes: float, saves: int, every: int, rounds: int) -> str:
    ways = {name: partial(measured, name, ranks, megabytes, saves, every) for name in WAYS}
    found = in_turns(ways, rounds)
    plain = [row["lost"] for row in found[PLAIN]]
    rows = [
        [name, spread([row["lost"] for row in rows], 3), spread(ratios([row["lost"] for row in rows], plain))]
        for name, rows in found.items()
    ]
    step = spread([row["step"] for row in found["no save"]])
    header = ["variant", "lost by a save, seconds", "times `torch.save`"]
    text = f"**{megabytes:g} MB on {ranks} ranks**, a step takes {step} s; rounds: {rounds}"
    return f"{text}\n\n{table(header, rows)}"


def main() -> None:
    given = options(
        __doc__,
        megabytes=(float, 100.0, "size of the state"),
        saves=(int, 8, "saves in a process; the first and the last do not count"),
        every=(int, 8, "steps from one save to the next"),
        rounds=(int, 3, "how often"),
        ranks=(str, "2,4", "numbers of ranks"),
        one=(str, "", "for its own use"),
    )
    if given.one:
        name, _, folder = given.one.rpartition(":")
        return train(WAYS[name], given.megabytes, given.saves, given.every, Path(folder))
    head = machine("torch", "xxhash")
    pages = [
        measure(int(ranks), given.megabytes, given.saves, given.every, given.rounds) for ranks in given.ranks.split(",")
    ]
    publish("save_ranks", "\n\n".join([head, *pages]), given.write)


if __name__ == "__main__":
    main()
