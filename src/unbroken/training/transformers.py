"""The Trainer of Hugging Face in segments: its own checkpoints, handed over, left in time, resumed in mid-epoch."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from unbroken.runs.progress import Progress
from unbroken.training.accelerate_kinds import check_kind
from unbroken.training.core.collector import keep_what_is_loaded
from unbroken.training.core.framework_session import OFTEN, NextAction
from unbroken.training.core.save_policy import Saves
from unbroken.training.torch.framework_session import RanksSession, refuse

# Where the Trainer writes before it is handed over; a name that unbroken takes for nothing.
DRAFTS = "draft-trainer"
# Where each of several ranks leaves its random numbers.
RANDOM_FILE = "rng_state_{}.pth"
REFUSED = {
    "load_best_model_at_end": "the best one may be of another segment; save it in on_evaluate of a callback of yours",
    "save_only_model": "nobody could go on from such a checkpoint",
    "save_on_each_node": "the ranks of all nodes write into one folder",
}


class UnbrokenCallback(TrainerCallback):  # type: ignore[misc]  # its types are not read
    """Saves through unbroken and leaves in time.  Give it to the Trainer as the last callback.

    `TrainingArguments(output_dir=callback.output_dir("out"), save_strategy="no", ...)`, then
    `trainer.train(resume_from_checkpoint=callback.resume)`.  The model is in `final/` of a run that is finished.
    Started by hand, on one process, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and goes on from there;
    without one it does nothing.  `saves` says how often.
    """

    def __init__(self, *, folder: str | os.PathLike[str] | None = None, saves: Saves = OFTEN) -> None:
        self._keeper = RanksSession(
            {
                "transformers": transformers.__version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
            folder,
            saves,
        )
        self._wish = NextAction.GO_ON
        self._last: Path | None = None  # written by the Trainer at its end, and not handed over yet

    @property
    def resume(self) -> str | None:
        """For `trainer.train(resume_from_checkpoint=...)`."""
        return str(self._keeper.resume) if self._keeper.resume else None

    @property
    def goal(self) -> float | None:
        """The goal of the configuration, for `max_steps` or `num_train_epochs`; None by hand."""
        return self._keeper.contract.goal if self._keeper.contract else None

    def output_dir(self, by_hand: str) -> str:
        """For `TrainingArguments(output_dir=...)`: `by_hand` without unbroken."""
        contract = self._keeper.contract
        return str(contract.save / DRAFTS) if contract else by_hand

    # --- what the Trainer calls ---

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """ValueError if the arguments do not fit unbroken, CheckpointError if the ranks do not."""
        if self._keeper.contract is None:
            return
        _check_arguments(args, self.output_dir(""))
        check_kind(getattr(kwargs.get("optimizer"), "accelerator_state", None))
        self._keeper.join()
        if self._keeper.resume:
            self._keeper.check_ranks(_ranks_that_made(self._keeper.resume))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Asks the Trainer to save if it is time to, or if it must leave."""
        self._wish = self._keeper.step(self._progress(args, state))
        is_at_end = state.global_step >= state.max_steps or control.should_training_stop
        if self._keeper.contract and (self._wish is not NextAction.GO_ON or is_at_end):
            control.should_save = True
        return control

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """A callback before this one may have ended the training early."""
        if self._keeper.contract and control.should_training_stop:
            control.should_save = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Hands over what the Trainer has just written, and leaves if it is time."""
        if self._keeper.contract is None:
            return
        written = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self._keeper.flush(written / RANDOM_FILE.format(self._keeper.ranks.rank))
        if state.global_step >= state.max_steps or control.should_training_stop:
            self._last = written  # it becomes the last one, with the result
            return
        self._keeper.hand_over(lambda draft: self._move(written, draft), self._progress(args, state))
        if self._wish is NextAction.LEAVE:
            self._keeper.leave()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Hands over the last checkpoint, with the model in its folder `final/`."""
        written, model = self._last, kwargs.get("model")
        if written is None:
            return

        def write(draft: Path) -> None:
            self._move(written, draft)
            if model is not None and self._keeper.ranks.is_first:
                model.save_pretrained(draft / "final")

        self._keeper.hand_over(write, self._progress(args, state), is_finished=True)
        self._last = None

    def _move(self, source: Path, target: Path) -> None:
        """The first rank alone; by now all of them have written their files."""
        if self._keeper.ranks.is_first:
            for path in sorted(source.iterdir()):
                os.rename(path, target / path.name)
            source.rmdir()

    def _progress(self, args: TrainingArguments, state: TrainerState) -> Progress:
        contract = self._keeper.contract
        logged = {key: value for row in state.log_history[-2:] for key, value in row.items() if key not in _NO_METRICS}
        if contract and contract.goal_unit == "epochs":
            return Progress(state.epoch or 0.0, _finite(args.num_train_epochs), "epochs", logged)
        return Progress(state.global_step, _finite(state.max_steps), "steps", logged)


_NO_METRICS = {"epoch", "step"}


def _finite(goal: float) -> float | None:
    return float(goal) if math.isfinite(goal) else None


def _ranks_that_made(checkpoint: Path) -> int:
    """Several ranks leave their random numbers in numbered files, a single process in one without a number."""
    return len(list(checkpoint.glob(RANDOM_FILE.format("*")))) or 1


def _check_arguments(args: TrainingArguments, output_dir: str) -> None:
    strategy = getattr(args.save_strategy, "value", args.save_strategy)
    if strategy != "no":
        refuse(
            ValueError,
            f"save_strategy={strategy!r}, allowed: 'no', because unbroken says when to save; type "
            "save_strategy='no', and save_minutes in the config",
        )
    for name, why in REFUSED.items():
        if getattr(args, name):
            refuse(ValueError, f"{name}=True, allowed: False; {why}")
    if Path(str(args.output_dir)) != Path(output_dir):
        refuse(
            ValueError,
            f"output_dir={args.output_dir!r}, allowed: callback.output_dir(...); type "
            f"output_dir=callback.output_dir({args.output_dir!r})",
        )


keep_what_is_loaded()
