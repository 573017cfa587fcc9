"""A program: twelve steps of a framework's own loop that logs each; `FRAMEWORK OPTIONS`, the options as JSON.

`own` names a tracker to which the framework logs by itself, `loggers` those that unbroken serves.
"""

import json
import os
import signal
import sys

import torch
from torch import nn

from unbroken.training.loggers import MLflow, WandB
from unbroken.training.torch import Saves

FRAMEWORK, OPTIONS = sys.argv[1], {"stop": 0, "kill": 0, "own": None, "loggers": [], **json.loads(sys.argv[2])}
LOGGERS = {"wandb": WandB, "mlflow": MLflow}
ADAPTER = {"folder": "run", "saves": Saves(steps=3), "loggers": [LOGGERS[name]() for name in OPTIONS["loggers"]]}
STEPS, BATCH = 12, 2


def trap(begun: int) -> None:
    """What happens while the step of this number is trained."""
    for accident, number in (("stop", signal.SIGUSR1), ("kill", signal.SIGKILL)):
        if begun == OPTIONS[accident]:
            os.kill(os.getpid(), number)


def rows() -> torch.utils.data.TensorDataset:
    return torch.utils.data.TensorDataset(torch.arange(24.0)[:, None] / 24)


def with_trainer() -> None:
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from unbroken.training.transformers import UnbrokenCallback

    class Model(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.layer = nn.Linear(1, 1)
            self.post_init()

        def forward(self, row):
            trap(trainer.state.global_step + 1)
            return {"loss": (self.layer(row) ** 2).mean()}

    callback = UnbrokenCallback(**ADAPTER)
    arguments = TrainingArguments(
        output_dir=callback.output_dir("out"),
        save_strategy="no",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        logging_steps=1,
        report_to=OPTIONS["own"] or "none",
        disable_tqdm=True,
        use_cpu=True,
    )
    data = [{"row": row} for (row,) in rows()]
    trainer = Trainer(model=Model(PretrainedConfig()), args=arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume)


def with_lightning() -> None:
    import pytorch_lightning as pl

    from unbroken.training.lightning import UnbrokenCallback

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def training_step(self, batch, number):
            trap(self.global_step + 1)
            loss = (self.layer(batch[0]) ** 2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    callback = UnbrokenCallback(**ADAPTER)
    trainer = pl.Trainer(
        max_steps=STEPS,
        logger=own_logger(pl),
        log_every_n_steps=1,
        callbacks=[callback],
        enable_progress_bar=False,
        accelerator="cpu",
    )
    trainer.fit(Model(), callback.loader(rows(), BATCH), ckpt_path=callback.resume)


def own_logger(pl):
    if OPTIONS["own"] == "mlflow":
        import mlflow

        return pl.loggers.MLFlowLogger(run_id=mlflow.start_run().info.run_id)
    return pl.loggers.WandbLogger() if OPTIONS["own"] else False


torch.set_num_threads(1)
torch.manual_seed(0)
{"trainer": with_trainer, "lightning": with_lightning}[FRAMEWORK]()
