"""Streams of Hugging Face and WebDataset in a training: after kills and stops the samples are those of the whole."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")
torchdata = pytest.importorskip("torchdata", reason="missing: torchdata (pip install torchdata)")
datasets = pytest.importorskip("datasets", reason="missing: datasets (pip install datasets)")
wds = pytest.importorskip("webdataset", reason="missing: webdataset (pip install webdataset)")

from support import stream_program  # noqa: E402
from support.training_parent import TrainingParent  # noqa: E402

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
    states = {"state.pt"} if kind == "hf-mixed" else set()
    assert {name: each for name, each in pieces.result().items() if name not in states} == {
        name: each for name, each in whole.result().items() if name not in states
    }
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
