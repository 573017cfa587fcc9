"""Frameworks that add up gradients over batches: a stop within a group loses none of them, whoever makes the steps."""

import os
import signal
from pathlib import Path

import pytest
from support.telling import tell_here

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

# 10 batches an epoch; a step takes four.
INPUTS, GROUP, EPOCHS = torch.arange(40.0).reshape(10, 4) / 40, 4, 2
MISSING = "missing: {} (pip install unbroken[adapters])"
pytestmark = pytest.mark.usefixtures("signals_kept")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))


def stop_at(batch: int, stop: int) -> None:
    if batch == stop:
        os.kill(os.getpid(), signal.SIGUSR1)


def weights(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def attempts(base: Path, train, *stops: int) -> tuple[list[int], list[bytes]]:
    """The exit codes of one attempt for each stop (0: none), and the weights at the end."""
    codes, resume, found = [], "", []
    for number, stop in enumerate(stops):
        folder = base / str(number)
        folder.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            tell_here(folder, patch, RESUME=resume, GOAL=EPOCHS, GOAL_UNIT="epochs")
            try:
                found = weights(train(stop))
                codes.append(0)
            except SystemExit as left:
                codes.append(left.code)
        resume = str(max((folder / "save").glob("*.ready")))
    return codes, found


def lightning(stop: int, by_hand: bool) -> nn.Module:
    pl = pytest.importorskip("pytorch_lightning", reason=MISSING.format("pytorch-lightning"))
    from unbroken.training.lightning import UnbrokenCallback

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.automatic_optimization = net(), not by_hand

        def training_step(self, batch, batch_idx):
            stop_at(self.current_epoch * len(INPUTS) + batch_idx + 1, stop)
            loss = self.net(batch[0]).square().mean()
            if by_hand:
                self.manual_backward(loss / GROUP)
                if (batch_idx + 1) % GROUP == 0:
                    self.optimizers().step()
                    self.optimizers().zero_grad()
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.1)

    callback, model = UnbrokenCallback(seed=3), Model()
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=1 if by_hand else GROUP,
    )
    trainer.fit(
        model, callback.loader(TensorDataset(INPUTS), batch_size=1), ckpt_path=callback.resume, weights_only=True
    )
    return model


def accelerate(stop: int, by_hand: bool) -> nn.Module:
    library = pytest.importorskip("accelerate", reason=MISSING.format("accelerate"))
    from unbroken.training.accelerate import Segments

    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    library.state.GradientState._reset_state()
    accelerator = library.Accelerator(cpu=True, gradient_accumulation_steps=1 if by_hand else GROUP)
    segments, model = Segments(accelerator, seed=3), net()
    loader = segments.loader(TensorDataset(INPUTS), batch_size=1)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 0.1))
    for _ in segments.epochs(EPOCHS):
        for (inputs,) in segments.batches(loader):
            stop_at(segments.epoch * len(INPUTS) + segments.batch + 1, stop)
            assert segments.step == segments.epoch * len(INPUTS) + segments.batch
            if by_hand:
                accelerator.backward(model(inputs).square().mean() / GROUP)
                if (segments.step + 1) % GROUP == 0:  # over the border of epochs
                    optimizer.step()
                    optimizer.zero_grad()
                continue
            with accelerator.accumulate(model):
                accelerator.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()
    segments.finish()
    return model


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(INPUTS)

    def __getitem__(self, index):
        return {"x": INPUTS[index], "labels": INPUTS[index].sum()}


class WithLoss(nn.Module):
    """As the Trainer wants a model."""

    def __init__(self):
        super().__init__()
        self.net, self.seen, self.stop = net(), 0, 0

    def forward(self, x, labels):
        self.seen += 1
        stop_at(self.seen, self.stop)
        return {"loss": (self.net(x).squeeze(1) - labels).square().mean()}


def trainer(stop: int) -> nn.Module:
    transformers = pytest.importorskip("transformers", reason=MISSING.format("transformers"))
    from unbroken.training.transformers import UnbrokenCallback

    transformers.set_seed(0)
    callback, model = UnbrokenCallback(), WithLoss()
    model.stop = stop
    arguments = transformers.TrainingArguments(
        output_dir=callback.output_dir("out"),
        save_strategy="no",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=GROUP,
        learning_rate=0.1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    model.save_pretrained = lambda folder: folder.mkdir()
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[callback]).train(
        resume_from_checkpoint=callback.resume
    )
    return model


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")  # Lightning's, of few workers, few batches and Slurm
@pytest.mark.parametrize(
    "by_hand", [pytest.param(False, id="by lightning", marks=pytest.mark.slow), pytest.param(True, id="by hand")]
)
def test_gradients_that_lightning_adds_up_survive_a_stop(by_hand: bool, tmp_path: Path) -> None:
    _, whole = attempts(tmp_path / "whole", lambda stop: lightning(stop, by_hand), 0)
    codes, pieces = attempts(tmp_path / "pieces", lambda stop: lightning(stop, by_hand), 6, 13, 0)

    assert codes == [85, 85, 0]
    assert pieces == whole


@pytest.mark.parametrize("by_hand", [False, True], ids=["by accelerate", "by hand"])
def test_gradients_that_are_added_up_with_accelerate_survive_a_stop(by_hand: bool, tmp_path: Path) -> None:
    _, whole = attempts(tmp_path / "whole", lambda stop: accelerate(stop, by_hand), 0)
    codes, pieces = attempts(tmp_path / "pieces", lambda stop: accelerate(stop, by_hand), 6, 13, 0)

    assert codes == [85, 85, 0]
    assert pieces == whole


@pytest.mark.process
def test_gradients_that_the_trainer_adds_up_survive_a_stop(tmp_path: Path) -> None:
    _, whole = attempts(tmp_path / "whole", trainer, 0)
    codes, pieces = attempts(tmp_path / "pieces", trainer, 6, 5, 0)  # the second within its own first group but one

    assert codes == [85, 85, 0]
    assert pieces == whole
