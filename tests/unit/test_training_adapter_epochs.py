"""A stop or a kill at the end of an epoch changes nothing of that end, nor of what is trained after it."""

import signal
from pathlib import Path

import pytest
from support.adapter_runs import AdapterRun, needs_adapters

pytestmark = [pytest.mark.process, needs_adapters()]

EACH_EPOCH = {
    "eval_strategy": "epoch",
    "metric_for_best_model": "eval_loss",
    "greater_is_better": False,
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5, "threshold": 10.0},
}


def whole_and_pieces(base: Path, framework: str, stops: list[tuple[str, float]], **options: object) -> list[AdapterRun]:
    """A training in one piece, and one with a signal at each of these steps."""
    whole, pieces = (AdapterRun(base / name, framework, options) for name in ("whole", "pieces"))
    assert whole.start() == 0, whole.log
    for name, step in stops:
        expected = -signal.SIGKILL if name == "KILL" else 85
        assert pieces.start(signal=[name, step]) == expected, pieces.log
    assert pieces.start() == 0, pieces.log
    return [whole, pieces]


# --- the Trainer of Hugging Face ---


@pytest.mark.parametrize(
    ("stops", "saves"),
    [
        pytest.param([("USR1", 5), ("USR1", 10)], {}, id="stopped at the ends of epochs"),
        pytest.param([("KILL", 7), ("KILL", 12)], {"steps": 5}, id="killed after a save at an epoch's end"),
        pytest.param([("USR1", 4), ("USR1", 11)], {}, id="stopped around an end"),
    ],
)
def test_an_epoch_of_the_trainer_ends_as_in_one_piece(stops, saves, tmp_path: Path) -> None:
    """Its evaluation, the learning rate that falls on a plateau, and the count of early stopping."""
    whole, pieces = whole_and_pieces(
        tmp_path, "transformers", stops, epochs=9, saves=saves, trainer=EACH_EPOCH, callbacks=["patience"]
    )

    assert pieces.end == whole.end
    assert [step for step, _ in whole.end["evaluated"]] == [5, 10, 15]  # it was stopped early
    assert len({rate for _, rate in whole.end["rates"]}) == 3


def test_a_save_that_a_callback_asks_for_waits_for_the_epochs_end_too(tmp_path: Path) -> None:
    whole, pieces = whole_and_pieces(
        tmp_path, "transformers", [("KILL", 7)], saves_at=5, saves={"minutes": 1000}, trainer=EACH_EPOCH
    )

    assert pieces.end == whole.end
    assert (pieces.steps, len(pieces.seen)) == ([5, 15], 7 + 10)


@pytest.mark.parametrize("hook", ["on_step_end", "on_evaluate", "on_log", "on_epoch_end"])
def test_wherever_a_callback_ends_the_training_of_the_trainer_it_is_finished(hook: str, tmp_path: Path) -> None:
    trainer = EACH_EPOCH if hook == "on_evaluate" else {"logging_strategy": "epoch"}
    run = AdapterRun(tmp_path / "run", "transformers", {"trainer": trainer, "stop_in": hook})

    assert run.start() == 0, run.log
    assert run.end["steps"] == 5
    assert [line["done"] for line in run.saved] == [5]
    assert (run.folder / "final").is_dir()


def test_a_callback_behind_unbrokens_that_ends_the_training_of_the_trainer_is_named(tmp_path: Path) -> None:
    run = AdapterRun(tmp_path / "run", "transformers", {"stop_in": "on_epoch_end", "stops_behind": True})

    assert run.start() == 1
    assert "a callback ended the training at step 5 when UnbrokenCallback had been called, so that its end" in run.log


def test_a_data_set_of_the_trainer_that_counts_its_passes_is_named(tmp_path: Path) -> None:
    run = AdapterRun(tmp_path / "run", "transformers", {"data": "counting"})

    assert run.start() == 0, run.log
    lines = [line for line in run.log.splitlines() if line.startswith("unbroken: CountingStream.")]
    assert lines == [
        "unbroken: CountingStream.passes was 0 before the epoch and is 1 now, and after a restart it begins again; if "
        "the order depends on it, type a method set_epoch(self, epoch), which the Trainer calls"
    ]


@pytest.mark.parametrize("data", ["stream", "lying"])
def test_data_of_the_trainer_that_end_early_are_refused_where_they_end(data: str, tmp_path: Path) -> None:
    """A restart would skip batches that the pass does not have, and begin another pass in the middle."""
    run = AdapterRun(tmp_path / "run", "transformers", {"data": data, "trainer": {"max_steps": 14}})

    assert run.start() == 1
    counted = {"stream": 14, "lying": 10}[data]
    assert f"training data ended after step 5, and the Trainer counts {counted} steps an epoch, so a" in run.log
    assert run.steps == []


def test_a_stream_that_lasts_for_all_steps_of_the_trainer_needs_no_length(tmp_path: Path) -> None:
    whole, pieces = whole_and_pieces(
        tmp_path, "transformers", [("USR1", 5)], data="stream", rows=80, trainer={"max_steps": 14}
    )

    assert pieces.end == whole.end
    assert pieces.samples() == whole.samples()


def test_a_callback_that_ends_an_epoch_of_the_trainer_early_is_refused(tmp_path: Path) -> None:
    run = AdapterRun(tmp_path / "run", "transformers", {"ends_epoch_at": 3})

    assert run.start() == 1
    assert "a callback ended the epoch after step 3, and the Trainer counts 5 steps an epoch, so" in run.log


# --- Lightning ---


@pytest.mark.parametrize("trainer", [{}, {"max_steps": 14}], ids=["epochs", "steps"])
@pytest.mark.parametrize("stops", [[5, 12], [7, 10]])
def test_an_epoch_of_lightning_ends_as_in_one_piece(stops: list[int], trainer, tmp_path: Path) -> None:
    """With a count of early stopping; validation and schedulers: tests/engines/test_torch_adapters.py."""
    whole, pieces = whole_and_pieces(
        tmp_path, "lightning", [("USR1", stop) for stop in stops], epochs=9, callbacks=["patience"], trainer=trainer
    )

    assert pieces.end == whole.end
    assert pieces.seen == whole.seen
    assert whole.end["steps"] == trainer.get("max_steps", 15)


# --- gradients that are added up over batches ---


@pytest.mark.parametrize(
    ("framework", "stops", "options"),
    [
        ("lightning", (4, 7), {"added": 3}),
        ("lightning", (4, 7), {"added": 3, "by_hand": True}),
        ("accelerate", (4, 7), {"added": 3}),
        ("accelerate", (4, 7), {"added": 3, "by_hand": True}),
        ("transformers", (1.5, 2.5), {"trainer": {"gradient_accumulation_steps": 3}}),
    ],
)
def test_gradients_that_are_added_up_survive_stops_within_a_step(
    framework: str, stops: tuple[float, float], options: dict[str, object], tmp_path: Path
) -> None:
    """Whoever makes the steps; the Trainer ends the step within which it is told."""
    whole, pieces = whole_and_pieces(tmp_path, framework, [("USR1", stop) for stop in stops], **options)

    assert pieces.end == whole.end


# --- what is frozen ---


@pytest.mark.parametrize(
    ("framework", "options"),
    [
        ("lightning", {"callbacks": ["free"]}),
        ("accelerate", {"freezes": True}),
        ("transformers", {"callbacks": ["freeze"]}),
    ],
    ids=["lightning", "accelerate", "transformers"],
)
@pytest.mark.parametrize("stops", [[("USR1", 5), ("USR1", 12)], [("KILL", 8)]], ids=["stopped", "killed"])
def test_what_was_frozen_or_freed_at_an_epoch_is_so_after_a_restart(
    framework: str, options: dict[str, object], stops, tmp_path: Path
) -> None:
    """With Lightning's BaseFinetuning the flags of BatchNorm too, and a mode that was set by hand."""
    whole, pieces = whole_and_pieces(tmp_path, framework, stops, saves={"steps": 7}, **options)

    assert pieces.end == whole.end
    changed = "net.body.weight" if framework == "lightning" else "body.weight"
    assert (changed.removeprefix("net.") in whole.end["trained"]) == (framework == "lightning")
    ends = [[line for line in one.seen if "epoch" in line] for one in (whole, pieces)]
    assert ends[0] == ends[1]


def test_the_modes_of_layers_that_a_model_has_no_more_are_left_out() -> None:
    from torch import nn

    from unbroken.training.torch.put_back import MODES, Switches

    models = [nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))) for count in (3, 2)]
    saved, here = (Switches({"model": model}, MODES) for model in models)
    models[0][0].requires_grad_(False)
    models[0][1].eval()
    here.put_back(saved.state())

    assert [parameter.requires_grad for parameter in models[1].parameters()] == [False, False, True, True]
    assert [layer.training for layer in models[1]] == [True, False]
