"""The order of data: every sample exactly once an epoch, whatever stops it and however many ranks go on."""

import itertools
import random
from collections import Counter

import pytest

from unbroken.training.core.batch_order import BatchRow, EpochSteps, Share, grouped

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch.utils.data import DataLoader  # noqa: E402

from unbroken.training.torch import InterruptibleBatchSampler  # noqa: E402


def of_each_rank(make, ranks):
    return [make(Share(rank, ranks)) for rank in range(ranks)]


def one_step(row, place, ranks, **options):
    """The batches that all ranks take in the step that begins at a place, and where it ends."""
    steps = of_each_rank(lambda share: EpochSteps(row, share, place, drop_last=options.get("drop_last", False)), ranks)
    assert len({len(each) for each in steps}) == 1
    assert len({each.end_after(place) for each in steps}) == 1
    return [next(iter(each)) for each in steps], steps[0].end_after(place)


@pytest.mark.parametrize("seed", range(30))
def test_any_changes_of_the_number_of_ranks_give_every_sample_exactly_once(seed):
    dice = random.Random(seed)
    size, batch_size = dice.randint(20, 90), dice.randint(6, 9)
    row = BatchRow(dice.sample(range(size), size), batch_size)
    seen, place = Counter(), 0
    while place < len(row):
        # Never more ranks than there are samples left: then some would come twice.
        left = sum(map(len, itertools.islice(row, place, None)))
        batches, place = one_step(row, place, dice.randint(1, min(6, left)))
        assert all(batches)
        seen.update(index for batch in batches for index in batch)

    assert seen == Counter(range(size))


def test_batches_that_do_not_divide_by_the_ranks_are_halved():
    row = BatchRow(range(13), 5)

    assert one_step(row, 2, 2) == ([(10, 11), (12,)], 3)
    assert one_step(row, 1, 3) == ([(5, 6, 7), (8, 9), (10, 11, 12)], 3)


def test_fewer_samples_than_ranks_join_the_step_before():
    row = BatchRow(range(11), 5)

    assert one_step(row, 0, 2) == ([(0, 1, 2, 3, 4, 10), (5, 6, 7, 8, 9)], 3)
    assert one_step(row, 2, 2) == ([(10,), (10,)], 3)  # there is no step before


def test_drop_last_leaves_out_what_is_not_enough_for_all_ranks():
    row = BatchRow(range(23), 5, drop_last=True)

    assert one_step(row, 2, 2, drop_last=True) == ([(10, 11, 12, 13, 14), (15, 16, 17, 18, 19)], 4)
    assert [len(EpochSteps(row, Share(0, 3), place, drop_last=True)) for place in (0, 1, 2)] == [1, 1, 0]


def test_batches_of_groups_are_of_one_kind_and_hold_every_sample_once():
    kinds = [index % 3 for index in range(50)]
    row = grouped(range(50), kinds, 4)

    assert all(len({kinds[index] for index in batch}) == 1 for batch in row)
    assert Counter(index for batch in row for index in batch) == Counter(range(50))
    assert [len(batch) for batch in grouped(range(50), kinds, 4, drop_last=True)] == [4] * 12


def sampler_of(size=53, **options):
    return InterruptibleBatchSampler(size, 5, **options)


def trained(sampler, batches=1000, workers=0):
    """Trains so many batches of a plain DataLoader, as a loop of one's own does; returns the indices."""
    seen = []
    for batch in itertools.islice(DataLoader(range(53), batch_sampler=sampler, num_workers=workers), batches):
        seen += batch.tolist()
        sampler.advance()
    return seen


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loader_goes_on_where_it_was_stopped_twice(workers):
    whole = trained(sampler_of(seed=4))
    pieces, state = [], None
    for batches in (2, 3, 1000):
        sampler = sampler_of(seed=4)
        if state:
            sampler.load_state_dict(state)
        pieces += trained(sampler, batches, workers)
        state = sampler.state_dict()

    assert sorted(whole) == list(range(53))
    assert pieces == whole
    assert state == {"seed": 4, "epoch": 0, "done": 11, "size": 11}


def test_each_epoch_has_an_order_of_its_own_and_begins_at_its_beginning():
    sampler = sampler_of(range(53), seed=4)
    first = trained(sampler)
    sampler.set_epoch(0)
    rest = list(sampler)
    sampler.set_epoch(1)

    assert rest == []
    assert (len(sampler), sorted(itertools.chain(*sampler))) == (11, list(range(53)))
    assert [*itertools.chain(*sampler)] != first


@pytest.mark.process
def test_a_batch_sampler_gives_every_sample_once_on_changing_ranks_with_workers():
    kinds = [index % 2 for index in range(53)]
    seen, state, mixed = Counter(), None, 0
    for count, steps in ((2, 2), (3, 1), (1, 1000)):
        samplers = [
            InterruptibleBatchSampler(53, 5, groups=kinds, rank=rank, ranks=count, seed=2) for rank in range(count)
        ]
        for sampler in samplers:
            if state:
                sampler.load_state_dict(state)
            for batch in itertools.islice(DataLoader(range(53), batch_sampler=sampler, num_workers=2), steps):
                seen.update(batch.tolist())
                mixed += len({kinds[index] for index in batch.tolist()}) != 1
                sampler.advance()
        assert len({tuple(sampler.state_dict().items()) for sampler in samplers}) == 1
        state = samplers[0].state_dict()

    assert seen == Counter(range(53))
    assert mixed == 0


def test_a_state_of_another_order_is_refused():
    sampler = sampler_of(seed=4)

    with pytest.raises(ValueError, match="the state was made with seed 5, and this sampler has 4"):
        sampler.load_state_dict(sampler_of(seed=5).state_dict())
    with pytest.raises(ValueError, match="the state was made with size 12, and this sampler has 11"):
        sampler.load_state_dict(sampler_of(56, seed=4).state_dict())


def dropped_out(sampler, stop_at=1000, start=None, **options):
    """A loop of one's own with dropout, over two epochs; returns all masks, and the state at the stop."""
    torch.manual_seed(0)
    masks, state = [], None
    if start:
        sampler.load_state_dict(start["sampler"])
        torch.set_rng_state(start["random"])
    for epoch in range(sampler.epoch, 2):
        sampler.set_epoch(epoch)
        for batch in DataLoader(range(53), batch_sampler=sampler, **options):
            masks.append((batch.tolist(), torch.nn.functional.dropout(torch.ones(8)).tolist()))
            sampler.advance()
            if len(masks) == stop_at:
                return masks, {"sampler": sampler.state_dict(), "random": torch.get_rng_state()}
    return masks, state


@pytest.mark.parametrize("has_generator", [True, False])
def test_a_loader_needs_a_generator_of_its_own_where_dropout_is_to_go_on_exactly(has_generator):
    def options():
        return {"generator": torch.Generator()} if has_generator else {}

    def sampler():
        return InterruptibleBatchSampler(53, 5, seed=4)

    whole, _ = dropped_out(sampler(), **options())
    before, state = dropped_out(sampler(), stop_at=4, **options())
    after, _ = dropped_out(sampler(), start=state, **options())

    assert [batch for batch, _ in before + after] == [batch for batch, _ in whole]
    assert (before + after == whole) is has_generator


def test_to_count_more_than_is_left_stays_at_the_end_of_the_epoch():
    sampler = sampler_of(seed=4)
    sampler.advance(12)

    assert sampler.done == 11
