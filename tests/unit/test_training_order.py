"""The order of data: every sample exactly once an epoch, whatever stops it and however many ranks go on."""

import itertools
import random
from collections import Counter

import pytest

from unbroken.errors import CheckpointError

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.training.torch import Loaders  # noqa: E402
from unbroken.training.torch.process_group import Ranks  # noqa: E402
from unbroken.training.torch.samplers import EpochSteps  # noqa: E402


def steps_of(samples, batch_size, place, ranks, **options):
    """The steps of each rank from a place on."""
    return [EpochSteps(samples, batch_size, place, rank=rank, ranks=ranks, **options) for rank in range(ranks)]


def one_step(samples, batch_size, place, ranks, **options):
    """The batches that all ranks take in the step that begins at a place, and where it ends."""
    steps = steps_of(samples, batch_size, place, ranks, **options)
    assert len({len(each) for each in steps}) == 1
    assert len({each.end_after(place) for each in steps}) == 1
    return [[*next(iter(each))] for each in steps], steps[0].end_after(place)


@pytest.mark.parametrize("seed", range(30))
def test_any_changes_of_the_number_of_ranks_give_every_sample_exactly_once(seed):
    dice = random.Random(seed)
    size, batch_size = dice.randint(20, 90), dice.randint(6, 9)
    row = EpochSteps(size, batch_size)
    seen, place = Counter(), 0
    while place < row.batches:
        # Never more ranks than there are samples left: then some would come twice.
        left = row.samples(place, row.batches)
        batches, place = one_step(size, batch_size, place, dice.randint(1, min(6, left)))
        assert all(batches)
        seen.update(index for batch in batches for index in batch)

    assert seen == Counter(range(size))


def test_batches_that_do_not_divide_by_the_ranks_are_shared_evenly():
    assert one_step(13, 5, 2, 2) == ([[10], [11, 12]], 3)
    assert one_step(13, 5, 1, 3) == ([[5, 6], [7, 8, 9], [10, 11, 12]], 3)


def test_fewer_samples_than_ranks_join_the_step_before():
    assert one_step(11, 5, 0, 2) == ([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10]], 3)
    assert one_step(11, 5, 2, 2) == ([[10], [10]], 3)  # there is no step before


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_order_of_whole_batches_of_one_kind_gives_each_rank_batches_of_one_kind(ranks):
    kinds, size = [number % 3 for number in range(70)], 4

    def by_kind(generator):
        mixed = torch.randperm(len(kinds), generator=generator).tolist()
        of_kind = [[index for index in mixed if kinds[index] == kind] for kind in range(3)]
        batches = [each[at : at + size] for each in of_kind for at in range(0, len(each) - size + 1, size)]
        chosen = torch.randperm(len(batches), generator=generator).tolist()
        return [index for number in chosen for index in batches[number]]

    made = [Loaders(3).loader(kinds, size, order=by_kind, drop_last=True) for _ in range(ranks)]
    for rank, loader in enumerate(made):
        loader.share_with(rank, ranks)
    found = [[batch.tolist() for batch in loader] for loader in made]

    assert all(len(set(batch)) == 1 for batches in found for batch in batches)
    assert {len(batches) for batches in found} == {16 // ranks}
    assert len({kind for batches in found for (kind, *_) in batches}) == 3


def test_drop_last_leaves_out_what_is_not_enough_for_all_ranks():
    assert one_step(23, 5, 2, 2, drop_last=True) == ([[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]], 4)
    assert [len(steps_of(23, 5, place, 3, drop_last=True)[0]) for place in (0, 1, 2)] == [1, 1, 0]


def one_of(ranks=1, rank=0, state=None, seed=2, size=53, **options):
    """Loaders of a loop of one's own on a rank, and one that they made."""
    loaders = Loaders(seed, ranks=Ranks(rank, ranks))
    loader = loaders.loader(range(size), 5, **options)
    loaders.load_state_dict(state)
    return loaders, loader


@pytest.mark.process
def test_a_pass_gives_every_sample_once_on_changing_ranks_with_workers():
    seen, state = Counter(), None
    for count, steps in ((2, 2), (3, 1), (1, 1000)):
        states = []
        for rank in range(count):
            loaders, loader = one_of(count, rank, state, num_workers=2)
            batches = iter(loader)
            for batch in itertools.islice(batches, steps):
                seen.update(batch.tolist())
            states.append(loaders.state_dict())
        assert all(each == states[0] for each in states)
        state = states[0]

    assert seen == Counter(range(53))


def test_each_pass_has_an_order_of_its_own_and_holds_every_sample():
    _, loader = one_of()
    first, second = ([index for batch in loader for index in batch.tolist()] for _ in range(2))

    assert sorted(first) == sorted(second) == list(range(53))
    assert first != second


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"seed": 5}, "was made with another seed for loader 0"),
        ({"size": 56}, "with 11 batches in loader 0, and it has 12"),
    ],
)
def test_a_state_of_another_order_is_refused(options, line):
    loaders, loader = one_of()
    batches = iter(loader)
    next(batches)
    state = loaders.state_dict()

    with pytest.raises(CheckpointError, match=line):
        next(iter(one_of(state=state, **options)[1]))


def dropped_out(stop_at=1000, start=None):
    """A loop of one's own with dropout, over two passes; returns all masks, and the state at the stop."""
    torch.manual_seed(0)
    masks, (loaders, loader) = [], one_of(state=start and start["loaders"])
    if start:
        torch.set_rng_state(start["random"])
    while len(masks) < 22 - (start["done"] if start else 0):
        for batch in loader:
            masks.append((batch.tolist(), torch.nn.functional.dropout(torch.ones(8)).tolist()))
            if len(masks) == stop_at:
                return masks, {"loaders": loaders.state_dict(), "random": torch.get_rng_state(), "done": stop_at}
    return masks, {}


def test_a_loader_leaves_no_trace_in_the_generators_so_dropout_goes_on_exactly():
    whole, _ = dropped_out()
    before, state = dropped_out(stop_at=4)
    after, _ = dropped_out(start=state)

    assert before + after == whole
