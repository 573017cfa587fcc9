"""A training with two streams, one in batches() and one in endless(); it writes down what it sees and ends itself."""

import json
import os
import random
import signal
import sys
import warnings
from pathlib import Path

import torch
from torch.utils.data import get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from unbroken.training.torch import ResumableStream, Training, seed_everything

warnings.simplefilter("ignore")
SHARDS, IN_SHARD, BATCH = 8, 6, 2


def write_shards(folder):
    import webdataset as wds

    with wds.ShardWriter(f"{folder}/shard-%06d.tar", maxcount=IN_SHARD, verbose=0) as writer:
        for number in range(SHARDS * IN_SHARD):
            writer.write({"__key__": f"{number:03d}", "cls": number})


def tars(folder, **options):
    import webdataset as wds

    urls = [str(path) for path in sorted(Path(folder).glob("*.tar"))]
    return wds.WebDataset(urls, nodesplitter=wds.split_by_node, empty_check=False, **options)


def number_of(sample):
    return int(sample["__key__"]), random.random()


def hugging_face(rank, ranks):
    from datasets import Dataset
    from datasets.distributed import split_dataset_by_node

    numbers = Dataset.from_dict({"number": [*range(SHARDS * IN_SHARD)]}).to_iterable_dataset(num_shards=SHARDS)
    return split_dataset_by_node(numbers, rank, ranks)


def with_noise(example):
    return {"number": example["number"], "noise": random.random()}


def stream_of(kind, folder, rank, ranks):
    if kind == "hf":
        return hugging_face(rank, ranks).map(lambda example: {"number": example["number"], "noise": 0.0})
    if kind == "hf-shuffled":
        return ResumableStream(hugging_face(rank, ranks).shuffle(seed=3, buffer_size=10).map(with_noise))
    if kind == "hf-mixed":
        from datasets import interleave_datasets

        halves = [hugging_face(rank, ranks), hugging_face(rank, ranks)]
        return interleave_datasets(halves, probabilities=[0.7, 0.3], seed=1).map(lambda e: {**e, "noise": 0.0})
    if kind == "tars":
        return ResumableStream(tars(folder, shardshuffle=False).map(number_of))
    if kind == "tars-shuffled":
        return ResumableStream(tars(folder, shardshuffle=4).shuffle(8).map(number_of))
    if kind == "tars-resampled":
        return ResumableStream(tars(folder, resampled=True).shuffle(8).map(number_of).with_epoch(20))
    raise ValueError(kind)


def rows(samples):
    pairs = [(each["number"], each["noise"]) if isinstance(each, dict) else each for each in samples]
    return [[int(number), float(noise)] for number, noise in pairs]


class Forgetful(StatefulDataLoader):
    """A loader whose restart is broken on purpose: it forgets where it was."""

    def load_state_dict(self, state):
        pass


def main():
    kind, workers, folder, *ends = sys.argv[1:]
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    seed_everything(5)
    model = torch.nn.Linear(1, 1)
    make = Forgetful if "broken" in ends else StatefulDataLoader
    loaders = [
        make(stream_of(name, folder, rank, ranks), BATCH, num_workers=int(workers), collate_fn=rows)
        for name in kind.split("+")
    ]
    parts = {f"loader{number}": loader for number, loader in enumerate(loaders)}
    training = Training(state={"model": model, **parts})
    others = [training.endless(loader) for loader in loaders[1:]]
    for epoch in training.epochs():
        for batch in training.batches(loaders[0]):
            drawn = torch.rand(()).item() + random.random()
            seen = [epoch, batch, *(next(other) for other in others), drawn]
            with open(f"{folder}/seen-{rank}", "a") as file:
                print(json.dumps([training.step, seen]), file=file)
            with torch.no_grad():
                model.weight += sum(number * noise + number for number, noise in batch) + drawn
            end_at(training.step, ends, rank, Path(folder))
    training.finish({"model.pt": model.state_dict()})


def end_at(step, ends, rank, folder):
    """Kill or stop this process once, in steps such as "k7" and "s9"."""
    for letter, number in ((signal.SIGKILL, f"k{step}"), (signal.SIGUSR1, f"s{step}")):
        marker = folder / f"ended-{number}"
        if number in ends and rank == 0 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), letter)


if __name__ == "__main__":
    assert get_worker_info() is None
    main()
