"""Data sets with generators of their own, batched reading, streams that count their passes, the last batch."""

import functools
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from support.training_parent import TrainingParent

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch.utils.data import DataLoader, Dataset, IterableDataset, StackDataset, Subset  # noqa: E402

from unbroken.training.torch import ResumableStream, Training, seed_everything  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.usefixtures("signals_kept"),
]

SAMPLES = 24
GLOBAL = np.random.default_rng(11)


class Numbers(Dataset):
    """The numbers up to 24, each through the transforms."""

    def __init__(self, *transforms):
        self.transforms = transforms

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        value = float(index)
        for transform in self.transforms:
            value = transform(value)
        return value


class Shift:
    """As transforms of albumentations 2: both generators are attributes, made with the transform."""

    def __init__(self):
        self.random_generator, self.py_random = np.random.default_rng(7), random.Random(7)

    def __call__(self, value):
        return value + self.random_generator.normal() + self.py_random.random()


class Slotted:
    __slots__ = ("generator",)

    def __init__(self):
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, value):
        return value + torch.rand((), generator=self.generator).item()


class Late:
    """Makes its generator when it first draws."""

    generator = None

    def __call__(self, value):
        if self.generator is None:
            self.generator = np.random.RandomState(5)
        return value + self.generator.rand()


class Twister:
    def __init__(self):
        self.generator = np.random.Generator(np.random.MT19937(5))

    def add(self, value):
        return value + self.generator.normal()


def closed():
    generator = np.random.default_rng(9)
    return lambda value: value + generator.normal()


def by_global_name(value):
    return value + GLOBAL.normal()


def by_keyword(value, generator):
    return value + generator.normal()


TRANSFORMS = {
    "attributes": Shift,
    "slots": Slotted,
    "late": Late,
    "bound": lambda: Twister().add,
    "closure": closed,
    "global": lambda: by_global_name,
    "partial": lambda: functools.partial(by_keyword, generator=np.random.default_rng(1)),
}


def train(folder: Path, make, stop_at=None, goal=(3, "epochs")):
    """Returns the batches that it saw of 3 epochs of 6 steps."""
    seed_everything(1)
    model, seen = torch.nn.Linear(1, 1), []
    parts, loader_of = make()
    try:
        training = Training(state={"model": model, **parts}, folder=folder)
        loader = loader_of(training)
        for epoch in training.epochs(*goal):
            for batch in training.batches(loader):
                seen.append((epoch, training.batch, batch.tolist()))
                if training.step + 1 == stop_at:
                    os.kill(os.getpid(), signal.SIGUSR1)
        training.finish()
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


def assert_pieces_are_the_whole(tmp_path: Path, make) -> None:
    whole = train(tmp_path / "whole", make)
    pieces = [each for stop_at in (2, 8, None) for each in train(tmp_path / "pieces", make, stop_at)]

    assert pieces == whole
    drawn = [value for _, _, batch in whole for value in batch]
    assert len(set(drawn)) == len(drawn) == 3 * SAMPLES


@pytest.mark.process
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_generator_of_the_data_set_draws_for_each_sample_what_it_draws_in_one_piece(name, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(
        tmp_path, lambda: ({}, lambda training: training.loader(Subset(Numbers(TRANSFORMS[name]()), range(24)), 4))
    )


@pytest.mark.process
def test_a_generator_of_the_data_set_draws_the_same_in_worker_processes(tmp_path: Path) -> None:
    def with_workers(workers):
        return lambda: ({}, lambda training: training.loader(Numbers(Shift(), Late()), 4, num_workers=workers))

    assert train(tmp_path / "here", with_workers(0)) == train(tmp_path / "there", with_workers(2))


def test_a_generator_of_the_data_set_is_left_as_it_was() -> None:
    shift = Shift()
    untouched = Shift()
    training = Training()
    loader = training.loader(Numbers(shift), 4)
    for _ in training.epochs(1):
        list(training.batches(loader))

    assert shift(0.0) == untouched(0.0)


class Fetching(Numbers):
    """Reads a batch at once, and counts how often."""

    def __init__(self):
        super().__init__()
        self.fetches = 0

    def __getitems__(self, indices):
        self.fetches += 1
        return [index + random.random() + torch.rand(()).item() for index in indices]


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Subset(data, range(SAMPLES))])
def test_a_data_set_that_reads_batches_at_once_is_asked_once_for_each(wrap) -> None:
    training, data = Training(), Fetching()
    loader = training.loader(wrap(data), 4)
    for _ in training.epochs(2):
        list(training.batches(loader))

    assert data.fetches == 12


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_drawn_for_a_batch_that_is_read_at_once_is_that_of_one_piece(workers, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(
        tmp_path, lambda: ({}, lambda training: training.loader(Fetching(), 4, num_workers=workers))
    )


def test_a_data_set_on_a_device_gives_whole_batches() -> None:
    class OnDevice(Dataset):
        def __init__(self, *tensors):
            self.tensors = tensors

        def __len__(self):
            return len(self.tensors[0])

        def __getitems__(self, indices):
            return [tensor[indices] for tensor in self.tensors]

    training = Training()
    loader = training.loader(OnDevice(torch.arange(10), 2 * torch.arange(10)), 4, collate_fn=list)
    batches = [pair for _ in training.epochs(1) for pair in training.batches(loader)]

    assert all(torch.equal(2 * one, other) for one, other in batches)
    assert sorted(number for one, _ in batches for number in one.tolist()) == list(range(10))


def test_a_wrapper_of_torch_around_single_samples_has_one_seed_for_each_sample() -> None:
    """A sample draws the same in batches of any size, as without the wrapper."""
    noisy = Numbers(lambda value: value + random.random())

    def drawn(data, batch_size):
        training = Training()
        loader = training.loader(data, batch_size, collate_fn=list)
        return sorted(value for _ in training.epochs(1) for batch in training.batches(loader) for value in batch)

    stacked = [value for (value,) in drawn(StackDataset(noisy), 6)]
    assert drawn(noisy, 4) == drawn(Subset(noisy, range(SAMPLES)), 6) == stacked


def stateful(data, **options):
    pytest.importorskip("torchdata", reason="missing: torchdata (pip install torchdata)")
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(data, 4, **options)


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_data_set_of_a_stateful_loader_draws_is_that_of_one_piece(workers, tmp_path: Path) -> None:
    def kept():
        data = Numbers(Shift(), Slotted(), Twister().add)
        loader = stateful(data, shuffle=True, num_workers=workers)
        return {"loader": loader}, lambda training: loader

    whole = train(tmp_path / "whole", kept)
    pieces = [each for stop_at in (2, 8, None) for each in train(tmp_path / "pieces", kept, stop_at)]

    assert pieces == whole


class CountingShuffle:
    """As detshuffle of WebDataset: each pass has an order of its own, by a number that the stage counts."""

    def __init__(self):
        self.epoch = -1

    def run(self, numbers):
        self.epoch += 1
        return iter(random.Random(self.epoch).sample(numbers, len(numbers)))


class ByOwn:
    """Draws from a generator that it holds."""

    def __init__(self):
        self.generator = np.random.default_rng(5)

    def run(self, numbers):
        return (number + self.generator.normal() for number in numbers)


class Pipeline(IterableDataset):
    def __init__(self, *stages):
        self.pipeline = list(stages)

    def __iter__(self):
        numbers = list(range(SAMPLES))
        for stage in self.pipeline:
            numbers = list(stage.run(numbers))
        return iter(numbers)


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_that_counts_its_passes_itself_goes_on_with_that_of_its_epoch(workers: int, tmp_path: Path) -> None:
    def shuffled():
        loader = stateful(ResumableStream(Pipeline(CountingShuffle(), ByOwn())), num_workers=workers)
        return {"loader": loader}, lambda training: loader

    whole = train(tmp_path / "whole", shuffled, goal=(30, "steps"))
    pieces = [
        each
        for stop_at in (2, 3, 17, None)
        for each in train(tmp_path / "pieces", shuffled, stop_at, goal=(30, "steps"))
    ]
    epochs = [[value for at, _, batch in whole if at == epoch for value in batch] for epoch in (0, 1)]

    assert pieces == whole
    assert epochs[0] != epochs[1]


class WebLoader(Pipeline):
    """As that of WebDataset: a pipeline around a DataLoader, which it is not itself."""


def test_a_loader_of_another_library_is_named_as_the_user_knows_it() -> None:
    training = Training()
    next(training.epochs(1))

    with pytest.raises(TypeError, match=r"^batches\(\) was given a WebLoader, which cannot begin in the middle of an "):
        next(training.batches(WebLoader(DataLoader(range(4)))))


LAST = """
import os, signal, sys
import torch
from pathlib import Path
from unbroken.training.torch import Training
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    torch.distributed.init_process_group("gloo")
rank = int(os.environ.get("RANK", 0))
model = torch.nn.Linear(1, 1)
training = Training(state={"model": model})
loader = training.loader(torch.utils.data.TensorDataset(torch.arange(22.0)[:, None]), 2)
open_batches = training.batch % 3
for epoch in training.epochs():
    for (inputs,) in training.batches(loader):
        model(inputs).sum().backward()
        open_batches += 1
        is_last = training.is_last_batch
        if (training.batch + 1) % 3 == 0 or is_last:
            open_batches = 0
            model.zero_grad()
        with open(f"{sys.argv[1]}/seen-{rank}", "a") as file:
            print(epoch, training.batch, int(is_last), open_batches, file=file)
        if training.step + 1 == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
    assert not training.is_last_batch
training.finish()
"""


@pytest.mark.process
def test_the_last_batch_is_known_where_other_ranks_began_the_epoch(tmp_path: Path) -> None:
    """11 batches: three steps of two ranks, then five of one process, where no batch is the 11th."""
    from support.forked_ranks import ForkedRanks

    parent = ForkedRanks(tmp_path / "run", LAST, [str(tmp_path)], ranks=2)
    parent.run()
    alone = TrainingParent(tmp_path / "alone", LAST, [str(tmp_path)])
    parent.latest.rename(alone.root / "checkpoint-0000")
    alone.run()
    seen = [tuple(map(int, line.split())) for line in (tmp_path / "seen-0").read_text().splitlines()]

    assert (parent.codes, alone.codes) == ([85], [0]), alone.log
    assert [(epoch, batch) for epoch, batch, is_last, _ in seen if is_last] == [(0, 7), (1, 10), (2, 10)]
    assert [open_batches for _, _, is_last, open_batches in seen if is_last] == [0, 0, 0]


def test_the_last_batch_of_an_epoch_of_unknown_length_is_no_guess(tmp_path: Path) -> None:
    loader = stateful(ResumableStream(Pipeline()))
    training = Training(state={"loader": loader})
    next(training.epochs(2, "steps"))
    next(training.batches(loader))

    with pytest.raises(ValueError, match="is_last_batch: the length of this epoch is unknown"):
        training.is_last_batch  # noqa: B018
