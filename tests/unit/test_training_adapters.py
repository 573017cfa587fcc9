"""What the adapters refuse, and where their loader begins; the trainings themselves: tests/engines."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch
from support.pieces_here import stop
from support.plain_adapter import PlainAdapter
from support.telling import begin_as_a_new_process
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from unbroken.errors import CheckpointError
from unbroken.training.torch.loader import ResumableLoader
from unbroken.training.torch.samples import seed_samples

MISSING = "missing: {} (pip install unbroken[adapters])"
DATA = TensorDataset(torch.arange(10))


def numbers(loader) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_begins_where_it_was_told_and_the_next_epoch_at_its_beginning(workers: int) -> None:
    whole, resumed = (ResumableLoader.make(DATA, 3, 7, num_workers=workers) for _ in range(2))
    epochs = []
    for epoch in (0, 1):
        whole.sampler.set_epoch(epoch)
        epochs.append(numbers(whole))

    whole.go_to(0, 2)
    resumed.load_state_dict(whole.state_dict())
    rest = numbers(resumed)
    resumed.sampler.set_epoch(0)  # as Lightning does when the loader has begun
    again = numbers(resumed)
    resumed.sampler.set_epoch(1)

    assert sorted(number for batch in epochs[0] for number in batch) == list(range(10))
    assert epochs[0] != epochs[1]
    assert (rest, again, numbers(resumed)) == (epochs[0][2:], epochs[0][2:], epochs[1])
    assert len(resumed) == 4


@pytest.mark.parametrize("start", [0, 1])
def test_two_ranks_share_an_epoch_from_where_they_are_told_to_begin(start: int) -> None:
    alone, *both = (ResumableLoader.make(DATA, 3, 7) for _ in range(3))
    for rank, loader in enumerate(both):
        loader.share_with(rank, 2)
        loader.go_to(0, start)
    found = [numbers(loader) for loader in both]

    row = numbers(alone)  # 3, 3, 3 and 1 sample
    assert [len(loader) for loader in both] == [2, 2]
    assert found == [row[0::2][start:], row[1::2][start:]]


def test_a_loader_does_not_go_on_in_other_data() -> None:
    state = ResumableLoader.make(DATA, 3, seed=7).state_dict()

    with pytest.raises(ValueError, match="was made with batches = 4, and the loader has 5; take the same data, batch"):
        ResumableLoader.make(DATA, 2, seed=7).load_state_dict(state)
    with pytest.raises(ValueError, match="was made with seed = 7, and the loader has 8"):
        ResumableLoader.make(DATA, 3, seed=8).load_state_dict(state)


class Drawing(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index + torch.rand(())


def with_noise(samples):
    return torch.stack(samples) + torch.rand(())


def test_what_a_data_set_and_its_collator_draw_is_a_function_of_seed_epoch_and_index() -> None:
    """In a framework's own loader, which reads ahead and begins anywhere: masks of a collator, crops of a data set."""
    loaders = [
        DataLoader(Drawing(), sampler=order, batch_size=2, collate_fn=with_noise) for order in (range(6), [2, 3])
    ]
    seeded = [seed_samples(loader, 3) for loader in loaders]

    whole, middle = (torch.stack(list(loader)) for loader in loaders)
    seeded[0].epoch.fill_(1)
    second = torch.stack(list(loaders[0]))

    assert torch.equal(whole[1], middle[0])
    assert not torch.equal(whole, second)
    assert len(set((whole - torch.arange(6).reshape(3, 2)).flatten().tolist())) == 6
    assert seed_samples(loaders[0], 3) is seeded[0]  # once
    assert seed_samples(DataLoader(Drawing(), batch_size=None), 3) is None
    assert seed_samples(DataLoader(Stream()), 3) is None


def test_a_sampler_that_draws_gives_the_order_of_an_epoch_again() -> None:
    sampler = WeightedRandomSampler(torch.ones(10), 10)
    seeded = seed_samples(DataLoader(DATA, batch_sampler=BatchSampler(sampler, 2, drop_last=False)), 3)

    orders = []
    for epoch in (1, 2, 1):
        seeded.begin(epoch)
        torch.rand(5)  # as a training does before a restart
        orders.append(list(sampler))

    assert orders[0] == orders[2] != orders[1]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def test_ranks_by_hand_are_refused_a_folder_before_one_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert PlainAdapter()._link is None
    with pytest.raises(CheckpointError, match="2 ranks keep checkpoints in a folder, allowed: one process, Accel"):
        PlainAdapter(folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_lightning_is_refused_what_cannot_be_resumed(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("pytorch_lightning", reason=MISSING.format("pytorch-lightning"))
    from unbroken.training.lightning import UnbrokenCallback

    callback = UnbrokenCallback()
    strategy = pl.strategies.SingleDeviceStrategy("cpu")
    trainer = SimpleNamespace(world_size=1, global_rank=0, global_step=0, strategy=strategy, accumulate_grad_batches=1)
    trainer.train_dataloader = DataLoader(DATA)

    callback.setup(trainer, None, "fit")
    with pytest.raises(TypeError, match=r"data come from a DataLoader, allowed: callback\.loader\(dataset, \.\.\.\)"):
        callback.on_train_start(trainer, None)
    trainer.train_dataloader = callback.loader(DATA, batch_size=2)
    callback.on_train_start(trainer, None)
    trainer.strategy = pl.strategies.FSDPStrategy()
    with pytest.raises(
        CheckpointError, match="strategy is FSDPStrategy, allowed: one device, DDPStrategy, or FSDP2 by Mod"
    ):
        callback.setup(trainer, None, "fit")
    assert (callback.goal, callback.resume) == (2, None)


def test_lightning_is_refused_processes_that_unbroken_has_not_started(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytorch_lightning", reason=MISSING.format("pytorch-lightning"))
    from unbroken.training.lightning import UnbrokenCallback

    own, alone = (SimpleNamespace(world_size=count, global_rank=0) for count in (4, 1))

    with pytest.raises(
        CheckpointError, match="4 processes train, and unbroken has started 1; type ranks: 4 in the sett"
    ):
        UnbrokenCallback().setup(own, None, "fit")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CheckpointError, match=r"each process trains for itself, .* started 2; .* Trainer\(devices=2, "):
        UnbrokenCallback().setup(alone, None, "fit")


def accelerated(folder: Path, stop_at: int | None = None, is_endless: bool = True) -> list[object]:
    """What each step of three epochs of 4 batches saw of two loaders, and a pass at the end of each epoch."""
    accelerate = pytest.importorskip("accelerate", reason=MISSING.format("accelerate"))
    from unbroken.training.accelerate import UnbrokenLoop

    begin_as_a_new_process()
    seen: list[object] = []
    loop = UnbrokenLoop(accelerate.Accelerator(cpu=True), seed=3, folder=folder)
    loader = loop.loader(DATA, 3, order=lambda generator: torch.randint(10, (10,), generator=generator))
    second = loop.loader(DATA, 4)
    others = loop.endless(second) if is_endless else iter(second)
    try:
        for epoch in loop.epochs(3):
            for (batch,) in loop.batches(loader):
                seen.append((epoch, loop.is_last_batch, batch.tolist(), next(others)[0].tolist()))
                stop(stop_at, loop.step + 1)
            seen.append((epoch, numbers(second)))
        loop.finish()
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


@pytest.mark.process
@pytest.mark.usefixtures("signals_kept")
def test_several_loaders_of_accelerate_go_on_each_where_it_was(tmp_path: Path) -> None:
    whole = accelerated(tmp_path / "whole")
    pieces = [each for at in (2, 3, 9, None) for each in accelerated(tmp_path / "pieces", at)]

    assert len(whole) == 15
    assert pieces == whole
    with pytest.raises(TypeError, match=r"over loader 1 is in use next to batches\(\).*unbroken\.endless\(loader\)"):
        accelerated(tmp_path / "refused", is_endless=False)


def test_accelerate_is_refused_another_seed_or_loader(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate", reason=MISSING.format("accelerate"))
    from unbroken.training.accelerate import UnbrokenLoop

    accelerator = accelerate.Accelerator(cpu=True)
    loop = UnbrokenLoop(accelerator, seed=3)
    batches = loop.batches(loop.loader(DATA, batch_size=3))
    next(loop.epochs())
    for _ in range(2):
        next(batches)
    state = loop.state_dict()
    batches.close()
    monkeypatch.setattr("unbroken.training.core.run_directory._trained", set())  # as in another process

    with pytest.raises(CheckpointError, match="made with seed=3, allowed: the same seed"):
        UnbrokenLoop(accelerator, seed=4).load_state_dict(state)
    loop.load_state_dict(state)
    with pytest.raises(CheckpointError, match="middle of an epoch of 4 batches, and the loader has 10; allo"):
        next(loop.batches(loop.loader(DATA)))
    named = accelerate.utils.ProjectConfiguration(str(told), automatic_checkpoint_naming=True)
    with pytest.raises(
        CheckpointError, match="automatic_checkpoint_naming=True, allowed: False, because unbroken says"
    ):
        UnbrokenLoop(accelerate.Accelerator(cpu=True, project_config=named))
