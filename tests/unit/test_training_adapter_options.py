"""Every option of every adapter does what it says: what if it were ignored?"""

import json
import signal
from pathlib import Path

import pytest
from support.adapter_runs import AdapterRun, needs_adapters

pytestmark = [pytest.mark.process, needs_adapters()]

FRAMEWORKS = ["transformers", "lightning", "accelerate"]
LOADERS = ["lightning", "accelerate"]


@pytest.fixture(params=FRAMEWORKS)
def run(request: pytest.FixtureRequest, tmp_path: Path):
    """Makes a training of each framework with the options that it is given."""
    return lambda name="run", **options: AdapterRun(tmp_path / name, request.param, options)


@pytest.fixture(params=LOADERS)
def loading(request: pytest.FixtureRequest, tmp_path: Path):
    """Makes a training of each framework that has a loader of ours, with the options of that loader."""

    def make(name: str = "run", **loader: object) -> AdapterRun:
        made = AdapterRun(tmp_path / name, request.param, {"epochs": 2, "loader": loader})
        assert made.start() == 0, made.log
        return made

    return make


def joined(batches: list[list[float]]) -> list[float]:
    return [value for batch in batches for value in batch]


# --- Saves ---


def test_saves_every_so_many_steps_and_keeps_so_many(run) -> None:
    killed, few = run(saves={"steps": 3, "keep": 9}), run("few", saves={"steps": 3, "keep": 2})

    codes = [one.start(signal=["KILL", 15]) for one in (killed, few)]

    assert codes == [-signal.SIGKILL] * 2, killed.log + few.log
    assert (killed.steps, few.steps) == ([3, 6, 9, 12], [9, 12])


def test_a_restart_saves_at_the_same_steps_of_the_whole_training(run) -> None:
    pieces = run(epochs=4, saves={"steps": 3, "keep": 99})

    codes = [pieces.start(signal=["USR1", 7]), pieces.start(signal=["USR1", 12]), pieces.start()]

    assert codes == [85, 85, 0], pieces.log
    assert pieces.steps == [3, 6, 7, 9, 12, 15, 18, 20]


def test_a_restart_where_an_epoch_ends_does_not_save_what_it_resumed_from(tmp_path: Path) -> None:
    pieces = AdapterRun(tmp_path / "run", "accelerate", {"saves": {"steps": 5, "keep": 9}})

    codes = [pieces.start(signal=["USR1", 10]), pieces.start()]

    assert codes == [85, 0], pieces.log
    assert [round(5 * one["done"]) for one in pieces.saved] == [5, 10, 15, 15]  # the last with the result


def test_saves_after_so_many_minutes(run) -> None:
    often, never = run("often", saves={"minutes": 1e-6, "keep": 99}), run("never", saves={"minutes": 1000.0})

    assert [often.start(), never.start()] == [0, 0], often.log + never.log
    assert (often.steps, never.steps) == ([*range(1, 16)], [15])


def test_a_mean_time_between_failures_comes_before_the_minutes(run) -> None:
    chosen = run(saves={"minutes": 1e-6, "mtbf_hours": 1000.0})

    assert chosen.start(signal=["KILL", 15]) == -signal.SIGKILL, chosen.log
    assert chosen.steps == []
    assert chosen.progress["metrics"]["save_every_seconds"] > 100


def test_a_milestone_is_kept(run) -> None:
    marked = run(saves={"steps": 1, "keep": 1, "milestone_every": 4})

    assert marked.start() == 0, marked.log
    assert len(marked.steps) > 1


def test_saves_in_the_background_are_refused(run) -> None:
    asked, refused = run("asked", saves={"in_background": False}), run("refused", saves={"in_background": True})

    assert asked.start() == 0, asked.log
    assert refused.start() == 1
    assert "ValueError: Saves(in_background=True), allowed: None or False, because the framework writes" in refused.log


# --- what all adapters offer ---


def test_a_checkpoint_that_is_asked_for_comes_after_its_step_and_a_restart_knows_that_it_is_one(run) -> None:
    asked = run(asks_at=4)

    assert asked.start(signal=["KILL", 9]) == -signal.SIGKILL, asked.log
    assert asked.steps == [4]
    assert asked.start() == 0, asked.log
    told = [line for line in asked.log.splitlines() if line.startswith("resumed: ")]
    assert told == [f"resumed: {is_so}, from {is_so}, asked to stop: False" for is_so in (False, True)]


def test_each_step_that_is_logged_reaches_a_logger_once_whatever_was_killed(run) -> None:
    """With the checkpoint that holds it: what a killed attempt was ahead of that has not been seen before."""
    options = {"logs": True, "saves": {"steps": 2}}
    whole, pieces = run("whole", **options), run("pieces", **options)
    for one in (whole, pieces):
        one.options["trainer"] = {"log_every_n_steps": 1} if one.framework == "lightning" else {}

    codes = [whole.start(), *(pieces.start(signal=["KILL", step]) for step in (7, 12)), pieces.start()]

    assert codes == [0, -signal.SIGKILL, -signal.SIGKILL, 0], pieces.log
    logged = [[*map(json.loads, (one.root / "logged.jsonl").read_text().splitlines())] for one in (whole, pieces)]
    assert logged[0] == logged[1]
    assert [row[0] for row in logged[0] if len(row) > 1] == [*range(1, 16)]


# --- where it saves, and what it reports ---


def test_a_folder_may_be_named_by_the_adapter(run) -> None:
    named = run(adapter={"folder": "mine"})
    named.names_folder = False

    assert named.start() == 0, named.log
    assert (named.root / "mine" / "final").is_dir()


def test_without_a_folder_nothing_is_saved(run) -> None:
    free = run(saves={"steps": 1})
    free.names_folder = False

    assert free.start(signal=["USR2", 99]) == 0, free.log
    assert free.end["steps"] == 15
    assert not list(free.root.rglob("manifest.json"))


@pytest.mark.parametrize(("goal", "unit"), [(2, "epochs"), (7, "steps")])
def test_the_goal_of_the_configuration_comes_first(run, goal: int, unit: str) -> None:
    options = {"trainer": {"max_steps": goal}} if unit == "steps" else {}
    told = run(saves={"steps": 3}, **options)
    told.told = {"GOAL": str(goal), "GOAL_UNIT": unit, "SAVE_SECONDS": "1000", "DEADLINE": "1e12"}

    assert told.start() == 0, told.log
    *_, last = told.handed
    assert (last["done"], last["goal"], last["unit"], last["is_finished"]) == (goal, goal, unit, True)
    assert [round(one["done"] * (5 if unit == "epochs" else 1)) for one in told.handed[:2]] == [3, 6]


def test_the_metrics_are_those_of_the_framework(run) -> None:
    shown = run(saves={"steps": 5})

    assert shown.start() == 0, shown.log
    assert 0 < shown.saved[0]["metrics"]["loss"] < 10


def test_the_result_of_accelerate_has_what_finish_is_given_and_its_goal_may_be_steps(tmp_path: Path) -> None:
    plain, steps = (AdapterRun(tmp_path / name, "accelerate", {"files": True}) for name in ("plain", "steps"))

    assert [plain.start(), steps.start(goal=[7, "steps"])] == [0, 0], plain.log + steps.log
    assert (plain.end["steps"], steps.end["steps"]) == (15, 7)
    names = ["metrics.csv", "metrics.json", "summary.json", "weights.pt"]
    assert sorted(path.name for path in (plain.folder / "final").iterdir()) == names


# --- the loader of Lightning and Accelerate ---


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    found = {}
    for framework in LOADERS:
        runs = [AdapterRun(tmp_path / f"{framework}{seed}", framework, {"adapter": {"seed": seed}}) for seed in (1, 2)]
        assert [one.start() for one in runs] == [0, 0], runs[0].log
        found[framework] = [one.samples() for one in runs]

    assert found["lightning"] == found["accelerate"]
    assert found["lightning"][0] != found["lightning"][1]


def test_the_batch_size_the_shuffle_and_the_last_batch_are_as_asked(loading) -> None:
    plain, short = loading("plain", batch_size=6, shuffle=False), loading("short", batch_size=6, drop_last=True)
    shuffled = loading("shuffled", batch_size=6)

    sizes = [[len(batch) for batch in one.samples()] for one in (plain, short, shuffled)]
    assert sizes == [[6, 6, 6, 2] * 2, [6, 6, 6] * 2, [6, 6, 6, 2] * 2]
    assert joined(plain.samples()) == [*range(20)] * 2
    assert joined(shuffled.samples()) != [*range(20)] * 2


def test_a_sample_that_an_order_draws_twice_is_not_twice_the_same(loading) -> None:
    """Ten samples, forty draws an epoch: each has random numbers of its own, in any epoch."""
    run = loading(order="again")

    draws = joined(run.samples("draws"))
    assert len(set(joined(run.samples()))) == 10
    assert len(draws) == len(set(draws)) == 80


@pytest.mark.parametrize("framework", LOADERS)
def test_an_order_that_follows_the_training_is_that_of_the_whole_epoch_after_a_restart(tmp_path, framework) -> None:
    options = {"loader": {"order": "seldom_seen"}, "saves": {"steps": 1}}
    whole, pieces = (AdapterRun(tmp_path / name, framework, options) for name in ("whole", "pieces"))

    assert whole.start() == 0, whole.log
    assert [pieces.start(signal=["USR1", 8]), pieces.start()] == [85, 0], pieces.log
    assert pieces.samples() == whole.samples()


def test_two_loaders_of_one_length_have_orders_of_their_own(tmp_path: Path) -> None:
    plain, second = (
        AdapterRun(tmp_path / name, "accelerate", {"number": number}) for name, number in (("a", 0), ("b", 1))
    )

    assert [plain.start(), second.start(signal=["USR1", 3]), second.start()] == [0, 85, 0], second.log
    assert sorted(joined(plain.samples())[:20]) == sorted(joined(second.samples())[:20]) == [*range(20)]
    assert plain.samples() != second.samples()


# --- Lightning ---


def test_a_trainer_without_checkpoints_is_refused_by_lightning(tmp_path: Path) -> None:
    run = AdapterRun(tmp_path / "run", "lightning", {"trainer": {"enable_checkpointing": False}})

    assert run.start() == 1
    assert "Trainer was configured with `enable_checkpointing=False` but found" in run.log.splitlines()[-1]


# --- the Trainer of Hugging Face ---


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"save_strategy": "epoch"}, "save_strategy='epoch', allowed: 'no', because unbroken says when"),
        ({"load_best_model_at_end": True}, "load_best_model_at_end=True, allowed: False; the best one may be of"),
        ({"save_only_model": True}, "save_only_model=True, allowed: False; nobody could go on from such"),
        ({"save_on_each_node": True}, "save_on_each_node=True, allowed: False; the ranks of all nodes"),
        ({"output_dir": "own"}, "output_dir='own', allowed: callback.output_dir(...); type output_dir=callback."),
    ],
    ids=["strategy", "best model", "model alone", "nodes", "folder"],
)
def test_the_trainer_is_refused_what_would_save_otherwise(trainer, message: str, tmp_path: Path) -> None:
    run = AdapterRun(tmp_path / "run", "transformers", {"trainer": trainer})

    assert run.start() == 1
    assert message in run.log
    assert not (run.root / "seen.jsonl").exists()
