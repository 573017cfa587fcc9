"""Streams of Hugging Face and WebDataset in a training: after kills and stops the samples are those of the whole."""

import io
import json
import random
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")
torchdata = pytest.importorskip("torchdata", reason="missing: torchdata (pip install torchdata)")
datasets = pytest.importorskip("datasets", reason="missing: datasets (pip install datasets)")
wds = pytest.importorskip("webdataset", reason="missing: webdataset (pip install webdataset)")

from support import stream_program  # noqa: E402
from support.training_parent import TrainingParent  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from unbroken.training.torch import ResumableStream, Training  # noqa: E402
from unbroken.training.torch.state import places  # noqa: E402

TEXT = Path(stream_program.__file__).read_text()
STEPS = 30
# Killed in the middle of a shard and of an epoch, at once after a restart, and stopped in a later epoch.
ENDS = ("k3", "k4", "s11", "k12", "k20")


def train(root: Path, kind: str, *ends: str, workers: int = 0, ranks: int = 0) -> TrainingParent:
    root.mkdir()
    stream_program.write_shards(root)
    told = {"UNBROKEN_GOAL": str(STEPS), "UNBROKEN_GOAL_UNIT": "steps"}
    words = [kind, str(workers), str(root), *ends]
    parent = TrainingParent(root / "run", TEXT, words, ranks=ranks, told=told, save_seconds=0.001)
    while not parent.codes or parent.codes[-1] != 0:
        parent.run()
        assert len(parent.codes) <= len(ends) + 1, parent.log
    return parent


def seen_by(parent: TrainingParent, rank: int = 0) -> dict[int, object]:
    """What each step saw; a step that was trained again after a kill has to have seen the same."""
    found: dict[int, object] = {}
    for line in Path(parent.arguments[2], f"seen-{rank}").read_text().splitlines():
        step, seen = json.loads(line)
        assert found.setdefault(step, seen) == seen, (step, parent.log)
    return found


def contents_of(parent: TrainingParent) -> dict[str, object]:
    """The last checkpoint; torchdata sends the items of a worker's state in any order."""
    found: dict[str, object] = {}
    for name, data in parent.result().items():
        state = torch.load(io.BytesIO(data), weights_only=True) if name.endswith(".pt") else {}
        values = {place: each for place, each in places(state) if not isinstance(each, (dict, list, tuple))}
        plain = {place: each.tolist() if isinstance(each, torch.Tensor) else each for place, each in values.items()}
        found[name] = plain or data
    return found


def numbers_of(parent: TrainingParent, epoch: int, ranks: int) -> list[int]:
    """The samples of an epoch, of all ranks."""
    steps = [seen for rank in range(ranks) for seen in seen_by(parent, rank).values()]
    return sorted(number for first, batch, *_ in steps if first == epoch for number, _ in batch)  # type: ignore[misc]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        ("hf", 0),
        ("hf-mixed", 0),
        ("hf+tars-shuffled", 0),
        ("hf-shuffled+hf", 0),
        ("tars", 0),
        ("tars-shuffled+tars-resampled+hf", 0),
        ("hf", 2),
        ("hf-shuffled+tars-shuffled", 2),
        ("tars-shuffled+hf", 2),
    ],
)
def test_a_killed_training_sees_the_samples_of_the_whole(kind: str, ranks: int, workers: int, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", kind, workers=workers, ranks=ranks)
    pieces = train(tmp_path / "pieces", kind, *ENDS, workers=workers, ranks=ranks)

    assert len(pieces.codes) == len(ENDS) + 1, pieces.log
    for rank in range(ranks or 1):
        assert seen_by(pieces, rank) == seen_by(whole, rank)
        assert len(seen_by(pieces, rank)) == STEPS
    # What interleave_datasets keeps of itself has another form after a restart.
    left_out = "state.pt" if kind == "hf-mixed" else ""
    found, wanted = ({**contents_of(each), left_out: None} for each in (pieces, whole))
    assert found == wanted
    if kind != "hf-mixed":
        assert numbers_of(pieces, 0, ranks or 1) == [*range(48)]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hf", "tars-shuffled"])
def test_a_loader_that_forgets_its_state_is_found_by_the_same_comparison(kind: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", kind)
    broken = train(tmp_path / "broken", kind, "s7", "broken")

    assert broken.codes == [85, 0]
    assert seen_by(broken) != seen_by(whole)


def numbers(shards: int = 4) -> "datasets.IterableDataset":
    return datasets.Dataset.from_dict({"number": [*range(40)]}).to_iterable_dataset(num_shards=shards)


def with_noise(example: dict[str, float]) -> dict[str, float]:
    return {"number": example["number"] + random.random()}


@pytest.mark.parametrize(
    ("stream", "line"),
    [
        (lambda: numbers().shuffle(seed=1, buffer_size=8), "cannot resume what shuffle gives.*type StatefulDataLoader"),
        (
            lambda: datasets.concatenate_datasets([numbers(), numbers()]),
            "cannot resume what concatenate_datasets gives",
        ),
        (lambda: datasets.interleave_datasets([numbers()] * 2, probabilities=[0.5, 0.5]), "mixed without a seed"),
        (lambda: ResumableStream(numbers().shuffle(buffer_size=8)), "shuffled or mixed without a seed.*type seed=0"),
    ],
)
def test_what_datasets_cannot_resume_is_refused_before_the_first_step(stream, line: str) -> None:
    with pytest.raises(TypeError, match=rf"Training\(state=\{{'loader': ...\}}\): .*{line}"):
        Training(state={"loader": StatefulDataLoader(stream(), 4)})


@pytest.mark.process
@pytest.mark.usefixtures("signals_kept")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # the tests of JAX may share the process
def test_random_numbers_of_a_stream_in_workers_are_refused_at_the_first_batch(tmp_path: Path) -> None:
    loader = StatefulDataLoader(numbers().map(with_noise), 4, num_workers=1)
    training = Training(state={"loader": loader}, folder=tmp_path)
    next(training.epochs(3, "steps"))

    with pytest.raises(TypeError, match=r"draws random numbers in a worker process.*ResumableStream"):
        next(training.batches(loader))


@pytest.mark.parametrize("stage", [wds.resampled, lambda: wds.shardlists.DirectoryShardList("/tmp/")])
def test_shards_that_differ_at_each_start_are_refused(stage) -> None:
    with pytest.raises(TypeError, match="of webdataset gives other shards at each start; allowed: a list of shards"):
        ResumableStream(wds.DataPipeline(wds.SimpleShardList("shard-{000..003}.tar"), stage()))


def test_a_loader_of_webdataset_is_refused_by_name() -> None:
    training = Training()
    next(training.epochs(3, "steps"))

    with pytest.raises(TypeError, match=r"given a WebLoader, .*StatefulDataLoader\(ResumableStream\(dataset\), ...\)"):
        next(training.batches(wds.WebLoader(wds.WebDataset("shard-000.tar", shardshuffle=False))))
