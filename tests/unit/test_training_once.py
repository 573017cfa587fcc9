"""Several trainings in one process, the folds of a cross-validation say: each gets its own end, or one clear line."""

import json
import re
from pathlib import Path

import pytest
from support.telling import begin_as_a_new_process

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.plain_adapter import PlainAdapter  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import Training, seed_everything  # noqa: E402

DATA = TensorDataset(torch.arange(12.0).reshape(6, 2))
IN_THE_RUN = re.escape(
    "this process has a training of the run 'demo' already, and a second one would go on from its checkpoints; "
    "allowed: one in a run; type a run for each (each fold), with args: [...] in its settings"
)


def fold(number: int, folder: Path | None) -> tuple[int, list[float]]:
    """How many steps a fold trains, and its weights at the end."""
    seed_everything(number)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    training = Training(state={"model": model, "optimizer": optimizer}, folder=folder)
    loader, steps = training.loader(DATA, 2), 0
    for _ in training.epochs(2):
        for (batch,) in training.batches(loader):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            steps += 1
    training.finish()
    return steps, [value for each in model.parameters() for value in each.flatten().tolist()]


@pytest.mark.process
def test_folds_with_folders_of_their_own_are_the_folds_alone(tmp_path: Path) -> None:
    alone = [fold(number, None) for number in range(3)]
    found = [fold(number, tmp_path / f"fold{number}") for number in range(3)]

    assert found == alone
    assert [steps for steps, _ in found] == [6, 6, 6]


@pytest.mark.process
def test_a_second_fold_in_the_folder_of_the_first_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = re.escape(
        f"{tmp_path / 'runs'}: this process has finished a training there, and a second one would go on from"
    )
    fold(0, tmp_path / "runs")
    with pytest.raises(CheckpointError, match=line):
        fold(1, tmp_path / "runs")
    monkeypatch.setenv("UNBROKEN_FOLDER", str(tmp_path / "runs"))
    with pytest.raises(CheckpointError, match=line):
        fold(1, None)
    begin_as_a_new_process()

    assert fold(0, tmp_path / "runs")[0] == 0  # the same training, which has come to its end


def test_a_second_fold_in_a_run_of_the_workflow_is_refused_for_good(told: Path) -> None:
    assert fold(0, None)[0] == 6
    with pytest.raises(CheckpointError, match=IN_THE_RUN):
        fold(1, None)

    assert json.loads((told / "verdict.json").read_text())["verdict"] == "hopeless"
    assert len(list((told / "save").glob("*.ready"))) == 1


def test_a_second_training_beside_the_first_is_refused(told: Path) -> None:
    first = Training(state={"generator": torch.Generator()})
    with pytest.raises(CheckpointError, match=IN_THE_RUN):
        Training(state={"discriminator": torch.nn.Linear(1, 1)})

    first.finish()


def test_a_second_loop_of_a_framework_is_refused(told: Path) -> None:
    from unbroken.store.progress import Progress

    first, second = PlainAdapter(), PlainAdapter()
    first._begin(0)
    first._is_due(Progress(1), 1)

    with pytest.raises(CheckpointError, match=IN_THE_RUN):
        second._begin(0)
