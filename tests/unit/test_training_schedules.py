"""A schedule that is shorter than the goal is named before the first step, and can be made longer."""

import math

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.pieces_here import pieces  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

from unbroken.training.core.position import Course, Position  # noqa: E402
from unbroken.training.torch import Saves, Training  # noqa: E402
from unbroken.training.torch.schedules import end_of, too_short  # noqa: E402

pytestmark = pytest.mark.usefixtures("signals_kept")


def optimizer_of(lr=0.1):
    return torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=lr, momentum=0.9)


def cosine(length):
    return lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=length)


def one_cycle(length):
    return lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=length)


def warm(length):
    def made(optimizer):
        parts = [
            lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
            lr_scheduler.CosineAnnealingLR(optimizer, length),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [2])

    return made


def of_lambda(length):
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, min(step, length - step) / length))


def trained(folder, goal, scheduler_of, is_per_batch=False, stop=(), **options):
    """Train; return the learning rate at each step; a step of the scheduler for each epoch or batch of 3."""

    def program(folder, trap):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = scheduler_of(optimizer)
        training = Training(
            state={"model": model, "optimizer": optimizer, "scheduler": scheduler},
            folder=folder,
            saves=Saves(steps=1),
            **options,
        )
        loader = training.loader(torch.utils.data.TensorDataset(torch.ones(6, 2)), 2)
        for _ in training.epochs(goal):
            for (inputs,) in training.batches(loader):
                trap()
                training.log(lr=optimizer.param_groups[0]["lr"], momentum=optimizer.param_groups[0]["momentum"])
                model(inputs).sum().backward()
                optimizer.step()
                if is_per_batch:
                    scheduler.step()
            if not is_per_batch:
                scheduler.step()
        training.finish()
        return [(row["lr"], row["momentum"]) for row in training._log.metrics.table()]

    return pieces(program, folder, stop)


def lines(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if "schedule" in line]


@pytest.mark.process
def test_a_raised_goal_is_compared_with_the_schedule_before_the_first_step(tmp_path, capsys) -> None:
    trained(tmp_path / "run", 4, cosine(4))
    assert lines(capsys) == []

    trained(tmp_path / "run", 8, cosine(4))

    assert lines(capsys) == [
        "unbroken: scheduler (CosineAnnealingLR): its schedule ends after 4 steps, and the goal of 8 epochs takes 8; "
        "then the learning rate climbs again; for a longer schedule type T_max=... and Training(..., new_schedule=True)"
    ]


@pytest.mark.process
@pytest.mark.parametrize("scheduler_of", [cosine, one_cycle, warm, of_lambda])
@pytest.mark.parametrize("is_per_batch", [True, False])
def test_a_new_schedule_goes_on_where_it_would_be_had_it_been_there_from_the_start(
    tmp_path, scheduler_of, is_per_batch
) -> None:
    unit = 3 if is_per_batch else 1
    short, long = scheduler_of(4 * unit), scheduler_of(8 * unit)
    whole = trained(tmp_path / "whole", 8, long, is_per_batch)

    trained(tmp_path / "run", 4, short, is_per_batch)
    found = trained(tmp_path / "run", 8, long, is_per_batch, [2, 7], new_schedule=True)

    assert found[12:] == whole[12:]
    assert found[:12] != whole[:12]


@pytest.mark.process
def test_without_the_option_the_schedule_of_the_checkpoint_stays(tmp_path) -> None:
    trained(tmp_path / "run", 4, cosine(8))

    found = trained(tmp_path / "run", 8, cosine(100))

    assert found == trained(tmp_path / "whole", 8, cosine(8))


@pytest.mark.process
def test_a_goal_within_the_schedule_and_schedules_without_an_end_are_not_named(tmp_path, capsys) -> None:
    for number, scheduler_of in enumerate(
        [cosine(6), cosine(5), one_cycle(18), warm(4), lambda optimizer: lr_scheduler.StepLR(optimizer, 2)]
    ):
        trained(tmp_path / str(number), 6, scheduler_of, is_per_batch=number == 2, stop=[7])

    assert lines(capsys) == []


ENDS = {
    "cosine": (cosine(5), 5),
    "one cycle": (one_cycle(7), 7),
    "two in a row": (warm(5), 7),
    "a function": (of_lambda(6), 6),
    "polynomial": (lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 8), 8),
    "a warm-up alone": (lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4), None),
    "a constant function": (lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1.0), None),
    "restarts": (lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3), None),
}


@pytest.mark.parametrize("kind", ENDS)
def test_the_end_of_a_schedule_is_known(kind) -> None:
    scheduler_of, expected = ENDS[kind]
    found = end_of(scheduler_of(optimizer_of()), 100)

    assert (found.step if found else None) == expected


@pytest.mark.parametrize(
    ("done", "position", "unit", "goal", "takes"),
    [
        (0, Position(batches=10), "epochs", 30, "at least 30"),
        (0, Position(batches=10), "steps", 300, "at least 30"),
        (4, Position(epoch=4, step=40, batches=10), "epochs", 30, "30"),
        (5, Position(epoch=4, step=40, batches=10), "epochs", 30, "31"),
        (40, Position(epoch=4, step=40, batches=10), "epochs", 30, "300"),
        (20, Position(epoch=4, step=40, batches=10), "epochs", 30, "150"),
        (40, Position(epoch=4, step=40, batches=10), "steps", 300, "300"),
        (4, Position(epoch=4, step=40, batches=10), "steps", 300, "30"),
    ],
)
def test_the_steps_to_the_goal_follow_from_how_often_the_schedule_was_called(done, position, unit, goal, takes) -> None:
    scheduler = cosine(20)(optimizer_of())
    scheduler.last_epoch = done

    line = too_short("scheduler", scheduler, Course(position, goal, unit))

    assert f"the goal of {goal} {unit} takes {takes}; then" in line


def test_a_goal_without_an_end_is_not_compared() -> None:
    assert too_short("scheduler", cosine(2)(optimizer_of()), Course(Position(), math.inf)) == ""
