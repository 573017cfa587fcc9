"""What a save costs a training that goes on: a stall, and the slowdown until the file is complete.

A real training on the CPU, or on a GPU (`--device cuda`): forward, backward and Adam, its state three times its
parameters.  Each variant has a process of its own.  Stall: how long the training stands still for the save.  All: the
seconds that the training loses by the save in all, until it is complete, against the same steps without.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from support.measure import in_turns, machine, options, publish, ratios, spread, table
from torch import distributed

from unbroken.store.progress import Progress
from unbroken.system.fs import flush_tree
from unbroken.training.core.environment import Contract, Outbox
from unbroken.training.core.point import Point
from unbroken.training.core.run_directory import Home
from unbroken.training.torch import Saves
from unbroken.training.torch.content import Content, non_finite_weight, weights_of
from unbroken.training.torch.state import STATE_FILE, canonical, load
from unbroken.training.torch.writer import TorchWriter

LAYERS = 10
SECONDS_BETWEEN = 30.0


# So many samples at once that a step takes long enough to be measured: on the GPU, 0.05 to 0.5 s with 1 to 10 GB.
BATCHES = {"cpu": 8, "cuda": 4096}
WAIT = {"cpu": lambda: None, "cuda": torch.cuda.synchronize}


class Loop:
    """A training, and how long one of its steps takes; a step waits for the GPU, as one that logs its loss does."""

    def __init__(self, megabytes: float, device: str = "cpu") -> None:
        width = max(4, int((megabytes * 1e6 / 4 / 3 / LAYERS) ** 0.5))
        self.device = device
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS))).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.rand(BATCHES[device], width, device=device)
        self.before_update: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        for _ in range(2):
            self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).sum().backward()
        self.before_update()
        self.optimizer.step()
        self.after()
        WAIT[self.device]()

    def state(self) -> dict[str, object]:
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return canonical({"parts": parts, "step": torch.zeros(1)}, "state")

    def seconds(self, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - began


# Each takes a loop and an empty folder; gives what begins a save (its time is the stall), what says that it is
# complete, and what the stall was besides.
Way = tuple[Callable[[], object], Callable[[], bool], Callable[[], float]]


def none(loop: Loop, folder: Path) -> Way:
    return (lambda: None), (lambda: True), (lambda: 0.0)


def bare(loop: Loop, folder: Path) -> Way:
    return (lambda: torch.save(loop.state(), folder / STATE_FILE)), (lambda: True), (lambda: 0.0)


def flushed(loop: Loop, folder: Path) -> Way:
    def save() -> None:
        torch.save(loop.state(), folder / STATE_FILE)
        flush_tree(folder)

    return save, (lambda: True), (lambda: 0.0)


def ours(loop: Loop, folder: Path, in_background: bool) -> Way:
    paths = {"save": folder, "stop": folder / "stop", "progress": folder / "progress.json"}
    place = Outbox(folder)
    contract = Contract("bench", None, deadline=1e18, save_seconds=1e9, **paths)
    parts = {"model": loop.model, "optimizer": loop.optimizer}
    content = Content(parts, {}, notes=dict, take_notes=dict, where=str, leave=sys.exit)
    link = TorchWriter(contract, place, Saves(in_background=in_background), content)
    loop.after = link.poll

    def save() -> None:
        link.save(Point(progress=Progress(1), step=1))

    return save, (lambda: link._async_save is None), (lambda: 0.0)


def at_once(loop: Loop, folder: Path) -> Way:
    return ours(loop, folder, False)


def beside(loop: Loop, folder: Path) -> Way:
    return ours(loop, folder, True)


def torchs_own(loop: Loop, folder: Path) -> Way:
    from torch.distributed import checkpoint

    futures = []

    def save() -> None:
        futures[:] = [checkpoint.async_save(loop.state(), checkpoint_id=folder / "dcp", no_dist=True)]

    return save, (lambda: futures[0].done()), (lambda: 0.0)


def torchs_process(loop: Loop, folder: Path) -> Way:
    """The save is written by a process of its own, which needs a group of processes."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    backend = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}[loop.device]
    distributed.init_process_group(backend, init_method=f"file://{folder.parent}/meeting", rank=0, world_size=1)
    futures = []

    def save() -> None:
        kind = AsyncCheckpointerType.PROCESS
        futures[:] = [checkpoint.async_save(loop.state(), checkpoint_id=folder / "dcp", async_checkpointer_type=kind)]

    return save, (lambda: futures[0].done()), (lambda: 0.0)


def torchs_pinned(loop: Loop, folder: Path) -> Way:
    """Copied into pinned memory beside the training; the optimizer's step has to wait until that is done."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    stager, answers, waited = DefaultStager(StagingOptions(use_shared_memory=False)), [], [0.0]

    def wait() -> None:
        if answers:
            began = time.perf_counter()
            answers[0].staging_completion.result()
            waited[0] += time.perf_counter() - began

    def save() -> None:
        waited[0] = 0.0
        path = folder / "dcp"
        answers[:] = [checkpoint.async_save(loop.state(), checkpoint_id=path, no_dist=True, async_stager=stager)]

    loop.before_update = wait
    return save, (lambda: answers[0].upload_completion.done()), (lambda: waited[0])


def forked(loop: Loop, folder: Path) -> Way:
    children = []

    def save() -> None:
        state = loop.state()
        pid = os.fork()
        if pid == 0:
            torch.save(state, folder / STATE_FILE)
            os._exit(0)
        children[:] = [pid]

    return save, (lambda: os.waitpid(children[0], os.WNOHANG)[0] != 0), (lambda: 0.0)


WAYS: dict[str, Callable[[Loop, Path], Way]] = {
    "no save": none,
    "`torch.save`": bare,
    "`torch.save`, flushed to the disk": flushed,
    "unbroken, at once": at_once,
    "unbroken, beside the training": beside,
    "torch's own `async_save` (DCP)": torchs_own,
    "DCP, in a process": torchs_process,
    "DCP, copied into pinned memory": torchs_pinned,
    "a fork that calls `torch.save`": forked,
}
# A fork has no GPU, and pinned memory is for a GPU.
NOT_ON = {"cpu": ("DCP, copied into pinned memory",), "cuda": ("a fork that calls `torch.save`",)}


def measured(name: str, chosen: argparse.Namespace, base: Path) -> dict[str, float]:
    """One save, the second of its process, so that memory for it is there; in this process."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # threads that wait for each other measure whatever else the machine does
    loop, steps = Loop(chosen.megabytes, chosen.device), chosen.steps
    found: dict[str, float] = {}
    begin, is_complete, more = WAYS[name](loop, _empty(base / "x"))
    for _ in range(2):
        alone = loop.seconds(steps) / steps
        _empty(base / "x")
        began = time.perf_counter()
        begin()
        found["stall"] = time.perf_counter() - began
        count = 0
        while count < steps or not is_complete():
            loop.step()
            count += 1
        found["all"] = time.perf_counter() - began - count * alone
        found["step"] = alone
        found["stall"] += more()
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["gpu_mb"] = torch.cuda.max_memory_allocated() / 1e6 if loop.device == "cuda" else 0.0
    return found


def in_a_process(name: str, megabytes: float, chosen: argparse.Namespace) -> dict[str, float]:
    """What `measured` finds; nothing if the variant does not work on this machine, which says so."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as base:
        given = [f"--megabytes={megabytes}", f"--steps={chosen.steps}", f"--device={chosen.device}"]
        command = [sys.executable, __file__, *given, f"--one={name}:{base}"]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, check=True, text=True, timeout=chosen.variant_seconds or None
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return {}
        return json.loads(done.stdout)


def resumed(megabytes: float, device: str) -> tuple[float, float]:
    """Seconds to the first step: `torch.load` alone, and opened, checked, loaded by unbroken."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as base:
        loop, home = Loop(megabytes, device), Home(Path(base), "training", Saves(keep=1))
        draft = home.new_draft()
        torch.save(loop.state(), draft / STATE_FILE)
        from unbroken.store.progress import Handover

        path = home.hand_over(draft, Handover(Progress(1))).folder / STATE_FILE
        home.close()

        def put_back(state: dict) -> None:
            loop.model.load_state_dict(state["parts"]["model"])
            loop.optimizer.load_state_dict(state["parts"]["optimizer"])
            loop.step()

        began = time.perf_counter()
        put_back(torch.load(path, weights_only=True))
        middle = time.perf_counter()
        home = Home(Path(base), "training", Saves(keep=1))
        put_back(load(home.origin.folder))
        home.close()
        return middle - began, time.perf_counter() - middle


def checked(megabytes: float, rounds: int, device: str) -> list[float]:
    """Seconds for the question whether all weights are numbers (`Guard(finite=...)`), asked of each copy."""
    torch.set_num_threads(1)
    parts, seconds = {"model": Loop(megabytes, device).model}, []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        non_finite_weight(weights_of(parts))
        seconds.append(time.perf_counter() - began)
    return seconds[1:]  # the first has to get the memory for its answers


def measure(megabytes: float, chosen: argparse.Namespace) -> str:
    words = chosen.only.split(",") if chosen.only else [""]
    names = [name for name in WAYS if any(word in name for word in words) and name not in NOT_ON[chosen.device]]
    variants = {name: lambda name=name: in_a_process(name, megabytes, chosen) for name in names}
    found = in_turns(variants, chosen.rounds)
    gone = [name for name, results in found.items() if {} in results]
    found = {name: results for name, results in found.items() if name not in gone}
    plain = [row["stall"] for row in found["`torch.save`"]]
    least, least_gpu = (median(row[key] for row in found["no save"]) for key in ("peak_mb", "gpu_mb"))
    rows = []
    for name, results in found.items():
        stalls, lost = [row["stall"] for row in results], [row["all"] for row in results]
        rows.append([
            name,
            spread(stalls, 3),
            spread(ratios(stalls, plain)),
            spread(lost),
            f"{100 * median(lost) / SECONDS_BETWEEN:.1f} %",
            f"{median(row['peak_mb'] for row in results) - least:+.0f}",
        ])  # fmt: skip
        if chosen.device == "cuda":
            rows[-1].append(f"{median(row['gpu_mb'] for row in results) - least_gpu:+.0f}")
    step = spread([row["step"] for row in found["no save"]])
    header = ["variant", "stall, seconds", "times `torch.save`", "all, seconds", "of 30 s", "peak MB more"]
    header += ["of the GPU"] if chosen.device == "cuda" else []
    saves = f"**{megabytes:g} MB**, a step takes {step} s, rounds: {chosen.rounds}\n\n{table(header, rows)}"
    saves += f"\n\nDoes not work on this machine: {', '.join(gone)}." if gone else ""
    return saves if chosen.saves_alone else f"{saves}\n\n{around(megabytes, chosen)}"


def around(megabytes: float, chosen: argparse.Namespace) -> str:
    """What belongs to a save besides: resuming from it, and the check of what is saved."""
    loads = [resumed(megabytes, chosen.device) for _ in range(chosen.rounds)]
    asked = checked(megabytes, chosen.rounds, chosen.device)
    return (
        f"From a checkpoint to the end of the first step: `torch.load` {spread([first for first, _ in loads])} s, "
        f"unbroken, opened, every byte checked, loaded {spread([second for _, second in loads])} s.\n\n"
        f"Are all weights numbers? asked of each copy that is saved, in the rows of unbroken counted: "
        f"{spread(asked, 3)} s."
    )


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.sync()
    return folder


if __name__ == "__main__":
    chosen = options(
        __doc__,
        megabytes=(float, 100.0, "size of the smaller state"),
        larger=(float, 10.0, "how many times that the larger one is; 0: none"),
        rounds=(int, 5, "how often"),
        steps=(int, 8, "steps at least beside each save"),
        device=(str, "cpu", "cpu or cuda"),
        only=(str, "", "the variants whose name has one of these words, separated by commas"),
        variant_seconds=(float, 0.0, "how long one variant may take; 0: no limit"),
        saves_alone=(bool, False, "not how long a resume takes"),
        one=(str, "", "for its own use"),
    )
    if chosen.one:
        name, _, folder = chosen.one.rpartition(":")
        print(json.dumps(measured(name, chosen, Path(folder))))
        sys.exit()
    where = machine("torch", "xxhash")
    if chosen.device == "cuda":
        where += f" {torch.cuda.get_device_name()}, {BATCHES['cuda']} samples a step."
    sizes = [size for size in (chosen.megabytes, chosen.larger * chosen.megabytes) if size]
    pages = [measure(megabytes, chosen) for megabytes in sizes]
    publish("save_beside", "\n\n".join([where, *pages]), chosen.write and chosen.device == "cpu")
