"""A program: a training of two epochs of ten steps that logs; what it logs to, and its accidents, as JSON."""

import json
import os
import signal
import sys

import torch

from unbroken.training.loggers import JsonLines, MLflow, TensorBoard, WandB
from unbroken.training.torch import Saves, Training

OPTIONS = {"stop": 0, "kill": 0, "goal": 2, "saves": {"steps": 3}, **json.loads(sys.argv[1])}


class Printed:
    """The logger of the docs: a line per step."""

    def log(self, step, metrics):
        print("logged", step, sorted(metrics), flush=True)


LOGGERS = {
    "json": lambda: JsonLines("logged.jsonl"),
    "board": lambda: TensorBoard("board"),
    "wandb": WandB,
    "mlflow": MLflow,
    "printed": Printed,
}

torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
training = Training(
    state={"model": model},
    folder=OPTIONS.get("folder", "run"),
    saves=Saves(**OPTIONS["saves"]),
    loggers=[LOGGERS[name]() for name in OPTIONS.get("loggers", ())],
)
if own := OPTIONS.get("own"):  # the script logs by itself
    import mlflow
    import wandb

    run = wandb.init() if own == "wandb" else mlflow.start_run()
loader = training.loader(torch.utils.data.TensorDataset(torch.arange(10.0)[:, None]), 1)
for epoch in training.epochs(OPTIONS["goal"]):
    for _ in training.batches(loader):
        step = training.step + 1
        training.log(loss=step / 2)
        if own == "wandb":
            run.log({"loss": step / 2}, **({"step": step} if OPTIONS.get("by_step") else {}))
        elif own:
            mlflow.log_metric("loss", step / 2, step=step)
        if step == OPTIONS["stop"]:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == OPTIONS["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
    training.log(score=float(epoch))
training.finish({})
