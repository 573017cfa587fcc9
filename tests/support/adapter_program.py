"""A program: a small training through an adapter, by its options; notes each sample that it trains.

`FRAMEWORK OPTIONS`, the options as JSON.  Five steps an epoch by default; a signal comes when a step is done, before
the adapter hears of it.  `seen.jsonl` and `end.json` are written in the working directory.
"""

import json
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from unbroken.training.core.save_policy import Saves

FRAMEWORK, OPTIONS = sys.argv[1], json.loads(sys.argv[2])
EPOCHS, ROWS, BATCH = OPTIONS.get("epochs", 3), OPTIONS.get("rows", 20), 4
SAVES = Saves(**OPTIONS.get("saves", {"minutes": 1000}))
ADAPTER = {**OPTIONS.get("adapter", {}), "saves": SAVES}
HERE = []  # the adapter
LOADER = {"batch_size": BATCH, **OPTIONS.get("loader", {})}
# So many batches make a step, by the framework or by hand.
ADDED, BY_HAND = OPTIONS.get("added", 1), OPTIONS.get("by_hand", False)


def seldom_seen(generator: torch.Generator) -> torch.Tensor:
    """An order by weights that follow the training: what was seen least comes first, most often."""
    counts = torch.zeros(ROWS)
    for line in Path("seen.jsonl").read_text().splitlines() if Path("seen.jsonl").exists() else ():
        for index in json.loads(line).get("samples", ()):
            counts[index] += 1
    return torch.multinomial(0.1**counts, ROWS, generator=generator)


ORDERS = {
    "seldom_seen": seldom_seen,
    "again": lambda generator: torch.randint(10, (40,), generator=generator),
}


class Appending:
    """A logger that would show a step twice, if it got it twice."""

    def log(self, step, metrics):
        with Path("logged.jsonl").open("a") as file:
            file.write(json.dumps([step, metrics["loss"]] if "loss" in metrics else [step]) + "\n")


if OPTIONS.get("logs"):
    ADAPTER["loggers"] = [Appending()]


def begin(adapter: object) -> None:
    HERE.append(adapter)
    print(f"resumed: {adapter.resumed}, from {adapter.resume is not None}, asked to stop: {adapter.stop_requested}")


def trap(step: float) -> None:
    if step == OPTIONS.get("asks_at"):
        HERE[0].save()
    name, at = OPTIONS.get("signal", ["USR1", 0])
    if step == at:
        os.kill(os.getpid(), getattr(signal, f"SIG{name}"))


def see(**values: object) -> None:
    with Path("seen.jsonl").open("a") as file:
        file.write(json.dumps(values) + "\n")


class Rows(Dataset):
    """The number of the sample, and a random number."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return row(index, torch.rand(()).item())


def row(index: int, drawn: float) -> dict[str, torch.Tensor]:
    return {"x": torch.tensor([float(index), drawn]), "labels": torch.tensor(index % 3 / 3)}


class Stream(IterableDataset):
    """Without random numbers: the Trainer reads a batch ahead, and what a stream draws has no index to be drawn by."""

    def __iter__(self):
        return (row(index, 0.5) for index in range(ROWS))


class LyingStream(Stream):
    def __len__(self):
        return 2 * ROWS


class CountingStream(Stream):
    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()

    def __len__(self):
        return ROWS


class Net(nn.Module):
    """A frozen and a trained layer, with a mask."""

    def __init__(self):
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(2, 4), nn.Dropout(0.2), nn.Linear(4, 1)

    def forward(self, x, labels):
        x = x / torch.tensor([ROWS, 1.0])
        return {"loss": (self.head(self.drop(self.body(x))).squeeze(1) - labels).square().mean()}


def loader_options() -> dict[str, object]:
    options = dict(LOADER)
    if "order" in options:
        options["order"] = ORDERS[options["order"]]
    return options


def end(model: nn.Module, **values: object) -> None:
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    Path("end.json").write_text(json.dumps({"weights": weights, "trained": trained, **values}))


def note(step: int, batch: dict[str, torch.Tensor]) -> None:
    see(step=step, samples=batch["x"][:, 0].int().tolist(), draws=batch["x"][:, 1].tolist())


def lightning() -> None:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import BaseFinetuning, EarlyStopping

    from unbroken.training.lightning import UnbrokenCallback

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.norm, self.automatic_optimization = Net(), nn.BatchNorm1d(2), not BY_HAND

        def training_step(self, batch, batch_idx):
            note(self.global_step + 1, batch)
            loss = self.net(self.norm(batch["x"]), batch["labels"])["loss"]
            self.log("loss", loss.detach())
            if BY_HAND:
                self.manual_backward(loss / ADDED)
                if (batch_idx + 1) % ADDED == 0:
                    self.optimizers().step()
                    self.optimizers().zero_grad()
            return loss

        def on_train_epoch_end(self):
            see(epoch=self.current_epoch, norm=self.norm.track_running_stats, mode=self.net.drop.training)

        def configure_optimizers(self):
            return torch.optim.Adam([value for value in self.parameters() if value.requires_grad], 0.05)

    class Free(BaseFinetuning):
        def freeze_before_training(self, module):
            self.freeze([module.net.body, module.norm], train_bn=False)

        def finetune_function(self, module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group([module.net.body, module.norm], optimizer, lr=0.02)
                module.net.drop.eval()  # a mode that no state_dict holds

    class Trap(pl.Callback):
        def on_train_batch_end(self, trainer, *rest):
            trap(trainer.fit_loop.total_batch_idx + 1)

    chosen = {"free": Free, "patience": lambda: EarlyStopping("loss", patience=2, min_delta=10.0)}
    callback, model = UnbrokenCallback(**ADAPTER), Model()
    begin(callback)
    callbacks = [Trap(), *(chosen[name]() for name in OPTIONS.get("callbacks", [])), callback]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    quiet["accumulate_grad_batches"] = 1 if BY_HAND else ADDED
    trainer = pl.Trainer(max_epochs=callback.goal or EPOCHS, callbacks=callbacks, **quiet, **OPTIONS.get("trainer", {}))
    loader = callback.loader(Rows(), **loader_options())
    trainer.fit(model, loader, ckpt_path=callback.resume, weights_only=True)
    end(model.net, steps=trainer.global_step)


def accelerate() -> None:
    import accelerate as library

    from unbroken.training.accelerate import UnbrokenLoop

    accelerator = library.Accelerator(cpu=True, gradient_accumulation_steps=1 if BY_HAND else ADDED)
    model = Net()
    loop = UnbrokenLoop(accelerator, **ADAPTER)
    begin(loop)
    loader = [loop.loader(Rows(), **loader_options()) for _ in range(1 + OPTIONS.get("number", 0))][-1]
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 0.05))
    for epoch in loop.epochs(*OPTIONS.get("goal", [EPOCHS])):
        if OPTIONS.get("freezes") and epoch == 1 and loop.batch == 0:
            model.body.requires_grad_(False)
        for batch in loop.batches(loader):
            note(loop.step + 1, batch)
            assert loop.step == loop.epoch * len(loader) + loop.batch
            with nullcontext() if BY_HAND else accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss / ADDED if BY_HAND else loss)
                if not BY_HAND or (loop.step + 1) % ADDED == 0:  # over the border of epochs
                    optimizer.step()
                    optimizer.zero_grad()
            loop.log(loss=loss.item(), step=loop.step)
            trap(loop.step + 1)
    loop.finish({"weights.pt": model.state_dict()} if OPTIONS.get("files") else None)
    end(model, steps=loop.step)


def transformers() -> None:
    import transformers as library

    from unbroken.training.transformers import UnbrokenCallback

    class Trap(library.TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            trap(state.global_step + 0.5)

        def on_step_end(self, args, state, control, **kwargs):
            trap(state.global_step)
            if state.global_step == OPTIONS.get("ends_epoch_at"):
                control.should_epoch_stop = True
            if state.global_step == OPTIONS.get("saves_at"):
                control.should_save = True

    class Freeze(library.TrainerCallback):
        def on_epoch_begin(self, args, state, control, model, **kwargs):
            if state.epoch == 1:
                model.body.requires_grad_(False)

    class Stop(library.TrainerCallback):
        """Ends the training in the hook that is named."""

        def stop(self, args, state, control, **kwargs):
            if state.global_step >= 5:
                control.should_training_stop = True

    def stop_in(hook: str) -> library.TrainerCallback:
        return type("StopIn", (Stop,), {hook: Stop.stop})()

    class Noting(library.Trainer):
        def training_step(self, model, inputs, *rest):
            note(self.state.global_step + 1, inputs)
            return super().training_step(model, inputs, *rest)

    patience = library.EarlyStoppingCallback
    chosen = {"freeze": Freeze, "patience": lambda: patience(2, early_stopping_threshold=10.0)}
    callback, model = UnbrokenCallback(**ADAPTER), Net()
    begin(callback)
    model.save_pretrained = lambda folder, state_dict: folder.mkdir()
    callbacks = [Trap(), *(chosen[name]() for name in OPTIONS.get("callbacks", []))]
    callbacks.append(callback)
    if "stop_in" in OPTIONS:
        callbacks.insert(len(callbacks) - (not OPTIONS.get("stops_behind")), stop_in(OPTIONS["stop_in"]))
    kinds = {"rows": Rows, "stream": Stream, "lying": LyingStream, "counting": CountingStream}
    data = kinds[OPTIONS.get("data", "rows")]()
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    arguments = library.TrainingArguments(
        **{"output_dir": callback.output_dir("out"), **quiet, **OPTIONS.get("trainer", {})},
        num_train_epochs=callback.goal or EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.05,
        remove_unused_columns=False,
    )
    trainer = Noting(model=model, args=arguments, train_dataset=data, eval_dataset=Rows(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=callback.resume)
    rows = trainer.state.log_history
    evaluated = [[row["step"], row["eval_loss"]] for row in rows if "eval_loss" in row]
    rates = [[row["step"], row["learning_rate"]] for row in rows if "learning_rate" in row]
    end(model, steps=trainer.state.global_step, evaluated=evaluated, rates=rates)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    globals()[FRAMEWORK]()
