"""Data held by the ranks: shares, epochs, other ranks; as a part of a training, stopped anywhere."""

import itertools
import math
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.core.sharding import Epoch, shares  # noqa: E402
from unbroken.training.torch import DistributedShardedDataset, Training, seed_everything  # noqa: E402

pytestmark = pytest.mark.usefixtures("signals_kept")

SAMPLES = 53


def held(ranks=1, batch_size=5, count=SAMPLES, **options):
    return [
        DistributedShardedDataset(torch.arange(count), batch_size=batch_size, rank=rank, ranks=ranks, **options)
        for rank in range(ranks)
    ]


def trained(data, steps=1000):
    """What all ranks see in so many steps."""
    seen = []
    for batches in itertools.islice(zip(*data, strict=True), steps):
        seen.append([batch.tolist() for batch in batches])
        for one in data:
            one.advance()
    return seen


def samples(seen):
    return Counter(index for step in seen for batch in step for index in batch)


def test_shares_are_disjoint_or_overlap_by_a_fraction():
    assert shares(range(7), 3, 0) == [[0, 1], [2, 3], [4, 5, 6]]
    assert shares(range(8), 2, 0.5) == [[0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 0, 1]]
    assert shares(range(4), 2, 1) == [[0, 1, 2, 3], [2, 3, 0, 1]]
    assert shares(range(3), 1, 0.5) == [[0, 1, 2]]


def test_each_rank_holds_its_share_alone_and_it_is_a_sample_of_all():
    data = held(4)

    assert sorted(index for one in data for index in one.indices) == list(range(SAMPLES))
    assert all(one.indices != sorted(one.indices) for one in data)
    assert [sorted(set(itertools.chain(*(step[rank] for step in trained(held(4)))))) for rank in range(4)] == [
        sorted(one.indices) for one in data
    ]
    assert held(2, shuffle=False)[0].indices == list(range(26))


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_an_epoch_has_as_many_steps_on_all_ranks_and_every_sample_once(ranks: int, batch_size: int) -> None:
    seen = trained(held(ranks, batch_size))
    found = samples(seen)

    assert len(seen) == math.ceil(math.ceil(SAMPLES / ranks) / batch_size)
    assert all(batch for step in seen for batch in step)
    assert set(found) == set(range(SAMPLES))
    # One that has none left takes a sample again: with batches of one, a step of those with a smaller share.
    assert sum(found.values()) - SAMPLES == (-SAMPLES % ranks if batch_size == 1 else 0)


def test_each_epoch_has_an_order_of_its_own_in_the_same_memory():
    (data,) = held()
    first = trained([data])
    memory = data._held[1][0].data_ptr()
    data.set_epoch(1)
    second = trained([data])

    assert samples(first) == samples(second)
    assert first != second
    assert data._held[1][0].data_ptr() == memory
    assert trained(held()) == first


def test_drop_last_leaves_out_what_is_no_whole_batch():
    assert [len(batch) for step in trained(held(2, drop_last=True)) for batch in step] == [5] * 10


@pytest.mark.parametrize("overlap", [0, 0.25])
def test_other_ranks_go_on_with_every_sample_as_often_as_it_would_have_come(overlap: float) -> None:
    whole = samples(trained(held(2, overlap=overlap)))
    for counts in itertools.product((1, 2, 3), repeat=3):
        seen, state = Counter(), None
        for ranks, steps in zip((2, *counts), (1, 2, 1, 1000), strict=True):
            data = held(ranks, overlap=overlap)
            for one in data:
                if state:
                    one.load_state_dict(state)
            seen += samples(trained(data, steps))
            states = [one.state_dict() for one in data]
            assert states == states[:1] * ranks
            state = states[0]
        assert set(seen) == set(whole)
        assert (seen - whole).total() <= max(counts) - 1  # one that has none left takes a sample again
        assert (whole - seen).total() == 0


def test_after_an_epoch_on_changed_ranks_each_holds_its_share_again():
    first, later = held(2), held(3)
    trained(first, 2)
    for one in later:
        one.load_state_dict(first[0].state_dict())
    trained(later)
    for one in later:
        one.set_epoch(1)
    seen = trained(later)

    assert samples(seen) == Counter(range(SAMPLES))
    assert sorted(later[0]._held[0]) == sorted(held(3)[0].indices)


def test_a_step_of_an_epoch_counts_what_all_ranks_train():
    epoch = Epoch([[0, 1, 2], [3, 4]], 2, False)

    assert [epoch.cut(rank, step) for rank in (0, 1) for step in (0, 1)] == [(0, 2), (2, 3), (0, 1), (1, 2)]
    assert [epoch.done(steps) for steps in range(3)] == [0, 3, 5]
    assert epoch.rest(1) == [2, 4]
    assert epoch.rest(2) == []


def test_several_tensors_and_data_sets_are_held_together():
    pairs = [(torch.tensor([float(index)]), index) for index in range(6)]
    tensors = DistributedShardedDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6), batch_size=4, ranks=1, rank=0)
    samples_of = DistributedShardedDataset(pairs, batch_size=4, ranks=1, rank=0)

    for data in (tensors, samples_of):
        for inputs, targets in data:
            assert inputs.squeeze(1).tolist() == targets.tolist()
    assert [len(batch) for batch, _ in samples_of] == [4, 2]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"\(overlap=2\), allowed: from 0 to 1"):
        held(overlap=2)
    with pytest.raises(ValueError, match="3 samples for 4 ranks"):
        held(4, count=3)
    with pytest.raises(ValueError, match=r"sources of \[3, 4\] samples, allowed: as many in each"):
        DistributedShardedDataset(torch.zeros(3), torch.zeros(4), batch_size=1)
    with pytest.raises(ValueError, match=r"the state was made with overlap 0\.0, and this data set has 0\.5"):
        held(overlap=0.5)[0].load_state_dict(held()[0].state_dict())
    with pytest.raises(TypeError, match=r"the data set is no part of the training; type Training\(data=data"):
        next(Training().batches(held()[0]))


def train(folder, stop_at=None, batch_size=5):
    """3 epochs of 11 steps; what it saw."""
    seed_everything(1)
    (data,) = held(batch_size=batch_size)
    model, seen = torch.nn.Linear(1, 1), []
    try:
        training = Training(model=model, data=data, folder=folder)
        for epoch in training.epochs(3):
            for batch in training.batches(data):
                seen.append((epoch, batch.tolist(), torch.rand(()).item()))
                if training._course.position.step + 1 == stop_at:
                    os.kill(os.getpid(), signal.SIGUSR1)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


@pytest.mark.process
def test_a_training_stopped_at_any_step_sees_what_the_whole_one_sees(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    for stop_at in (1, 5, 10, 11, 12, 21, 22, 30):
        folder = tmp_path / str(stop_at)

        assert train(folder, stop_at) + train(folder) == whole
        for name in ("checkpoints/latest/state.pt", "final/model.pt", "final/metrics.json"):
            assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert [sum(len(batch) for epoch, batch, _ in whole if epoch == number) for number in range(3)] == [SAMPLES] * 3


@pytest.mark.process
def test_another_batch_size_is_refused_in_one_line(tmp_path: Path) -> None:
    train(tmp_path, 3)

    with pytest.raises(CheckpointError, match="'data' does not fit: the state was made with batch_size 5, and this"):
        train(tmp_path, batch_size=6)
