"""A training of several ranks with DeepSpeed, under Accelerate or the Trainer, small enough for a test: a program.

`FRAMEWORK STAGE [DEED STEP ...]`; a deed happens to the last rank in a step, `kill-all` to all of them.
"""

import os
import signal
import sys

import deepspeed
import torch
from torch.utils.data import TensorDataset

FRAMEWORK, STAGE, *DEEDS = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
IS_OFFLOADED = (FRAMEWORK, STAGE) == ("accelerate", 3)
SIGNALS = {"signal": signal.SIGUSR1, "kill": signal.SIGKILL, "kill-all": signal.SIGKILL}
CONFIG = {
    "zero_optimization": {
        "stage": STAGE,
        "stage3_param_persistence_threshold": 0,  # else weights as small as these stay whole
        "stage3_gather_16bit_weights_on_model_save": FRAMEWORK == "accelerate",
        **({name: {"device": "cpu"} for name in ("offload_optimizer", "offload_param")} if IS_OFFLOADED else {}),
    },
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
if FRAMEWORK == "transformers":
    adam = {"lr": 0.01, "torch_adam": True}
    CONFIG["optimizer"] = {"type": "Adam", "params": adam}


def do(step: int) -> None:
    for deed, at in zip(DEEDS[::2], DEEDS[1::2], strict=True):
        if step == int(at) and (deed == "kill-all" or os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)):
            os.kill(os.getpid(), SIGNALS[deed])


def check(engine: object) -> None:
    """Fail unless DeepSpeed trains: without it, Accelerate would take DistributedDataParallel and say nothing."""
    assert type(engine).__name__ == "DeepSpeedEngine", type(engine)
    assert engine.zero_optimization_stage() == STAGE


def accelerate() -> None:
    from accelerate import Accelerator, DeepSpeedPlugin
    from accelerate.utils import InitProcessGroupKwargs, set_seed

    from unbroken.training.accelerate import UnbrokenLoop

    # Without a backend and a GPU, Accelerate takes each rank for a training of its own.
    handlers = [InitProcessGroupKwargs(backend="gloo")]
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG), kwargs_handlers=handlers)
    set_seed(0)
    # Each parameter is of even size: ZeRO-3 pads others to equal shards with memory that was never set.
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
    unbroken = UnbrokenLoop(accelerator, seed=3)
    # 7 steps of each of two ranks, the last with 2 samples of each.
    loader = unbroken.loader(TensorDataset(torch.arange(3.0 * 52).reshape(52, 3) / 52), batch_size=4)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    check(model)
    torch.manual_seed(accelerator.process_index)  # the ranks draw different masks
    for _ in unbroken.epochs():
        for (inputs,) in unbroken.batches(loader):
            do(unbroken.step + 1)
            with accelerator.accumulate(model):
                loss = model(inputs).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            unbroken.log(loss=loss.item())
    unbroken.finish({"model.pt": accelerator.get_state_dict(model)})


def transformers() -> None:
    from torch.utils.data import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

    from unbroken.training.transformers import UnbrokenCallback

    class Rows(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            row = (torch.arange(index, index + 6) + torch.randint(2, ())) % 13
            return {"input_ids": row, "labels": row}

    class Deed(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            do(state.global_step)

    unbroken = UnbrokenCallback(seed=3)
    arguments = TrainingArguments(
        output_dir=unbroken.output_dir("out"),
        save_strategy="no",
        num_train_epochs=unbroken.goal,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        logging_steps=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        deepspeed=CONFIG,
    )
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_positions=6, n_embd=16, n_layer=1, n_head=2))
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[Deed(), unbroken])
    torch.manual_seed(arguments.process_index)  # the ranks draw different masks
    trainer.train(resume_from_checkpoint=unbroken.resume)
    check(trainer.model_wrapped)


# Without it ranks on one CPU talk by gloo alone, and DeepSpeed compiles nothing.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
if "WITHOUT_OPTIMIZER" in os.environ:  # a restore that is broken on purpose
    deepspeed.DeepSpeedEngine._load_zero_checkpoint = lambda *_, **__: True
torch.set_num_threads(1)
globals()[FRAMEWORK]()
