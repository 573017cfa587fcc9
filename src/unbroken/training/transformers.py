"""Run Hugging Face's Trainer in segments: hand over its checkpoints, leave in time, resume in mid-epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import transformers
from transformers import TrainerCallback
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Arguments
from transformers.trainer_utils import has_length

from unbroken.program.contract import FINAL
from unbroken.store.progress import Progress
from unbroken.training.core.environment import say
from unbroken.training.core.save_schedule import Phase
from unbroken.training.torch.framework_session import Adapter, refuse
from unbroken.training.torch.framework_shards import sharding_of, whole_weights
from unbroken.training.torch.put_back import MODES, Switches
from unbroken.training.torch.samples import SeededSamples, seed_samples

# Where the Trainer writes before it is handed over; a name that unbroken takes for nothing.
DRAFTS = "draft-trainer"
# What the Trainer does not save of the model.
SWITCHES_FILE = "switches.json"
REFUSED = {
    "load_best_model_at_end": "the best one may be of another segment; save it in on_evaluate of a callback of yours",
    "save_only_model": "nobody could go on from such a checkpoint",
    "save_on_each_node": "the ranks of all nodes write into one folder",
}


class UnbrokenCallback(Adapter, TrainerCallback):  # type: ignore[misc]  # its types are not read
    """Save through unbroken and leave in time.  Give it to the Trainer as the last callback.

    `TrainingArguments(output_dir=callback.output_dir("out"), save_strategy="no", ...)`, then
    `trainer.train(resume_from_checkpoint=callback.resume)`.  The model is in `final/` of a run that is finished.
    `seed` is that of what is drawn for each sample, in the data set and its collator; the order is the Trainer's.
    Started by hand, on one process, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and resumes from there;
    without one it saves nothing.  `saves` says how often; `loggers` get what the Trainer logs.
    """

    _library = MappingProxyType({"transformers": transformers.__version__})
    _is_asked = _is_epoch_over = False
    _steps = 0  # that the Trainer counts as an epoch when it resumes; of a stream without a length, all
    _seeded: SeededSamples | None = None
    _switches: Switches  # of the model
    _numbers: Mapping[str, float] | None = None  # of the data set, before the first epoch
    _last: Path | None = None  # written by the Trainer at its end, and not handed over yet

    def output_dir(self, by_hand: str) -> str:
        """Return the value for `TrainingArguments(output_dir=...)`: `by_hand` without unbroken."""
        return str(self._link.contract.save / DRAFTS) if self._link else by_hand

    # --- what the Trainer calls ---

    def on_init_end(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> None:
        """Let the Trainer restore what callbacks such as EarlyStoppingCallback have counted."""
        if self._link:
            args.restore_callback_states_from_checkpoint = True

    def on_train_begin(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> None:
        """Raise ValueError if the arguments do not fit unbroken, CheckpointError if the ranks do not."""
        self._seeded = seed_samples(kwargs.get("train_dataloader"), self._seed)
        self._switches = Switches({"model": kwargs["model"]}, MODES)
        if self._link:
            _check_arguments(args, self.output_dir(""))
        self._join(lambda: sharding_of(getattr(kwargs.get("optimizer"), "accelerator_state", None)))
        self._begin(state.global_step)
        if folder := self._origin:
            # Without one the Trainer would begin with a new one; DeepSpeed's is in its shards.
            if not self._sharding.zero and not any(folder.glob("optimizer*")):
                refuse(f"{folder} has no optimizer (save_only_model); import another")
            if (saved := folder / SWITCHES_FILE).exists():  # not where another program made the checkpoint
                self._switches.put_back(json.loads(saved.read_text()))

    def on_epoch_begin(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> None:
        """Note that steps follow, and what the data set counts."""
        self._is_epoch_over, loader = False, kwargs["train_dataloader"]
        batches = len(loader) if has_length(loader) else 0
        self._steps = math.ceil(batches / args.gradient_accumulation_steps) or int(state.max_steps)
        if self._seeded:
            self._seeded.begin(state.global_step // self._steps)
        if self._numbers is None:
            self._numbers = _numbers_of(loader)

    def on_step_end(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> Control:
        """Ask the Trainer to save if it is time to, or if it must leave; at an epoch's last step, after its end.

        There the evaluation, the scheduler and the callbacks of the epoch's end are still to come, and no restart
        would make up for them.
        """
        if self._link is None:
            return control
        # Where an epoch ends, two steps are a step and an evaluation apart.
        at = state.global_step % self._steps
        following = Phase.END if at in (0, self._steps - 1) else Phase.BATCH
        is_due = self._is_due(self._progress(args, state), state.global_step, following)
        self._is_asked = is_due or control.should_save
        is_last = at == 0 or control.should_epoch_stop or control.should_training_stop
        control.should_save = self._is_asked and not is_last
        return control

    def on_epoch_end(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> Control:
        """Ask for the save that had to wait for the epoch's end, and for the last one.

        Raise CheckpointError if the epoch ended at a step from which the Trainer would not continue with the next one.
        """
        if self._link:
            self._is_epoch_over = True
            self._say_what_counts(_numbers_of(kwargs["train_dataloader"]))
            if not control.should_training_stop or state.global_step == 0:
                _check_epoch(state, self._steps, control)
            # The Trainer puts the callbacks that it restores, such as EarlyStoppingCallback, after this one: they may
            # end the training when this one was asked already.
            may_end = control.should_training_stop or (self._origin and len(state.stateful_callbacks) > 1)
            control.should_save = bool(control.should_save or self._is_asked or may_end)
        return control

    def on_log(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> Control:
        """Pass on what is logged, and ask for a save if a callback before this one has ended the training."""
        logged = {name: value for name, value in (kwargs.get("logs") or {}).items() if name not in ("epoch", "step")}
        numbers = {name: float(value) for name, value in logged.items() if isinstance(value, int | float)}
        self._log.add(int(state.epoch or 0), state.global_step, numbers)
        if self._link and self._is_epoch_over and control.should_training_stop:
            control.should_save = True
        return control

    on_evaluate = on_log  # nothing is logged there, but a callback may have ended the training

    def on_save(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> None:
        """Hand over what the Trainer has just written, and leave if it is time."""
        if self._link is None:
            return
        self._is_asked = False
        written = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if self._ranks.is_first:
            (written / SWITCHES_FILE).write_text(json.dumps(self._switches.state()))
        if state.global_step >= state.max_steps or control.should_training_stop:
            self._last = written  # it becomes the last one, with the result
            return
        self._hand_over(lambda draft: self._move(written, draft), self._progress(args, state))

    def on_train_end(self, args: Arguments, state: State, control: Control, **kwargs: Any) -> None:
        """Hand over the last checkpoint, with the model in its folder `final/`.

        Raise CheckpointError if there is none, because a callback after this one ended the training.
        """
        written, model = self._last, kwargs["model"]
        if written is None:
            if self._link and self._is_epoch_over:
                refuse(
                    f"a callback ended the training at step {state.global_step} when UnbrokenCallback had been called, "
                    "so that its end was not saved; allowed: UnbrokenCallback as the last one of callbacks=[...]"
                )
            self._log.finish(state.global_step)
            return

        def write(draft: Path) -> None:
            self._move(written, draft)
            weights = whole_weights(model, self._sharding, draft)
            if self._ranks.is_first:
                model.save_pretrained(draft / FINAL, state_dict=weights)

        self._hand_over(write, self._progress(args, state), is_finished=True)
        self._last = None

    def _say_what_counts(self, numbers: Mapping[str, float]) -> None:
        """Log numbers that a pass over the data has changed: the first epoch after a restart begins without them."""
        before, self._numbers = self._numbers or {}, {}
        for name, value in numbers.items():
            if before.get(name, value) != value:
                say(
                    f"{name} was {before[name]} before the epoch and is {value} now, and after a restart it begins "
                    "again; if the order depends on it, type a method set_epoch(self, epoch), which the Trainer calls"
                )

    def _move(self, written: Path, draft: Path) -> None:
        """Put the folder in the place of the empty one, on the first rank; by now all ranks have written theirs."""
        if self._ranks.is_first:
            written.rename(draft)

    def _progress(self, args: Arguments, state: State) -> Progress:
        logged = dict(self._log.metrics.latest)
        if self._link and self._link.contract.goal_unit == "epochs":
            return Progress(state.epoch or 0.0, float(args.num_train_epochs), "epochs", logged)
        return Progress(state.global_step, float(state.max_steps), "steps", logged)


def _numbers_of(loader: Any) -> dict[str, float]:
    """Return the numbers that the data set keeps, unless the Trainer tells it the epoch."""
    data = getattr(loader, "dataset", None)
    data = data.dataset if isinstance(data, SeededSamples) else data
    kept = {} if hasattr(data, "set_epoch") else getattr(data, "__dict__", {})
    return {f"{type(data).__name__}.{name}": each for name, each in kept.items() if isinstance(each, (int, float))}


def _check_epoch(state: State, steps: int, control: Control) -> None:
    if state.global_step and state.global_step % steps == 0:
        return
    if control.should_epoch_stop:
        found = f"a callback ended the epoch after step {state.global_step}"
        allowed = "epochs that a callback does not end (should_epoch_stop)"
    else:
        found = f"the training data ended after step {state.global_step}"
        allowed = (
            "data that give as many batches as their length says (type a method __len__ for a stream that ends), or "
            "max_steps that a single pass over the stream reaches"
        )
    refuse(
        f"{found}, and the Trainer counts {steps} steps an epoch, so a restart would train on other data; "
        f"allowed: {allowed}"
    )


def _check_arguments(args: Arguments, output_dir: str) -> None:
    strategy = getattr(args.save_strategy, "value", args.save_strategy)
    if strategy != "no":
        refuse(
            f"save_strategy={strategy!r}, allowed: 'no', because unbroken says when to save; type "
            "save_strategy='no', and save_minutes in the config",
            ValueError,
        )
    for name, why in REFUSED.items():
        if getattr(args, name):
            refuse(f"{name}=True, allowed: False; {why}", ValueError)
    if Path(str(args.output_dir)) != Path(output_dir):
        refuse(
            f"output_dir={args.output_dir!r}, allowed: callback.output_dir(...); type "
            f"output_dir=callback.output_dir({args.output_dir!r})",
            ValueError,
        )
