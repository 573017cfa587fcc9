"""Loggers of a training: each step once, over pauses and kills, whatever becomes of a logger."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.toyrun import ProgramEngine, toy_job
from support.trackers import ENDS, of_tensorboard, train, train_to_the_end

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.errors import SegmentError
from unbroken.job.lifecycle import run_segment
from unbroken.store.trackers import note_mlflow, set_tracker_variables, tracker_variables
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.core.process_group import Processes
from unbroken.training.loggers import JsonLines, MLflow, WandB


class Heard:
    """A logger that remembers; the calls of the numbers `fails` raise."""

    def __init__(self, *fails: int) -> None:
        self.steps: list[int] = []
        self.flushed: list[int] = []
        self.calls, self.fails = 0, fails

    def log(self, step, metrics):
        self.calls += 1
        if self.calls in self.fails:
            raise OSError("the server is away")
        self.steps.append(step)

    def flush(self, step):
        self.flushed.append(step)


def begun(loggers: list, steps: list[int], live: Path, step: int = 0, ranks: Processes | None = None) -> MetricsLog:
    """The log of a training that resumes at a step, and has metrics of these."""
    log = MetricsLog(loggers)
    for each in steps:
        log.metrics.add(0, each, {"loss": each / 2})
    log.open(ranks or Processes(), step, live)
    return log


def test_a_step_is_passed_on_with_the_first_checkpoint_behind_it_and_the_rest_at_the_end(tmp_path: Path) -> None:
    heard = Heard()
    log = begun([heard], [1, 2, 3, 4], tmp_path)

    log.published(3)
    at_checkpoint = list(heard.steps)
    log.finish(4)
    log.published(4)

    assert (at_checkpoint, heard.steps) == ([1, 2], [1, 2, 3, 4])
    assert heard.flushed == [2, 4]


def test_the_next_process_begins_behind_what_was_passed_on(tmp_path: Path) -> None:
    begun([Heard()], [1, 2, 3, 4], tmp_path).published(4)
    heard, late = Heard(), JsonLines(tmp_path / "late.jsonl")

    log = begun([heard, late], [1, 2, 3, 4, 5], tmp_path, 5)
    log.published(5)
    log.close()

    assert heard.steps == [4]
    assert [json.loads(line)["step"] for line in late.path.read_text().splitlines()] == [1, 2, 3, 4]


def test_after_a_rollback_a_file_is_cut_and_others_get_no_step_twice(tmp_path: Path, capsys) -> None:
    file = JsonLines(tmp_path / "file.jsonl")
    begun([Heard(), file], [1, 2, 3, 4, 5], tmp_path)
    begun([Heard(), file], [1, 2, 3, 4, 5], tmp_path).published(5)
    heard = Heard()

    log = begun([heard, file], [1, 2], tmp_path, 2)
    for step in (3, 4, 5, 6):
        log.add(0, step, {"loss": 0.25})
    log.published(6)

    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert heard.steps == [5]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 0.5), (2, 1), (3, 0.25), (4, 0.25), (5, 0.25)]
    assert capsys.readouterr().out == "unbroken: Heard has steps 3 to 4 already; they are not logged again\n"


def test_a_logger_that_fails_ends_nothing_and_gets_what_it_missed_later(tmp_path: Path, capsys) -> None:
    heard, other = Heard(2, 3), Heard()
    log = begun([heard, other], [1, 2, 3], tmp_path)

    for step in (4, 5, 6):
        log.add(0, step, {"loss": 1.0})
        log.published(step)

    assert (heard.steps, other.steps) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    said = "unbroken: loggers: Heard: the server is away; tried again at the next checkpoint\n"
    assert capsys.readouterr().out == said
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"logged": {"Heard": 5, "Heard 2": 5}}


class Away(Heard):
    def begin(self, step):
        if self.calls in self.fails:
            raise OSError("no server")


def test_a_tracker_that_cannot_begin_stops_a_new_training_and_no_other(tmp_path: Path, capsys) -> None:
    with pytest.raises(OSError, match="no server"):
        begun([Away(0)], [], tmp_path)
    begun([Away()], [1, 2], tmp_path).published(2)
    away = Away(0)

    log = begun([away], [1, 2, 3], tmp_path, 2)
    away.fails = ()
    log.published(3)

    assert away.steps == [2]
    assert "Away: no server; tried again" in capsys.readouterr().out


def test_of_several_ranks_the_first_one_logs(tmp_path: Path) -> None:
    heard = Heard()
    log = begun([heard], [1, 2], tmp_path, ranks=Processes(1, 2))

    log.finish(2)

    assert (heard.steps, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize("given", [Heard(), [print], "board", [None]])
def test_what_is_no_list_of_loggers_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match=r"allowed: a list of objects with a method log\(step, metrics\)"):
        MetricsLog(given)


@pytest.mark.parametrize(("make", "module"), [(WandB, "wandb"), (MLflow, "mlflow")])
def test_a_tracker_that_is_not_installed_is_refused_at_once(make, module: str, monkeypatch) -> None:
    monkeypatch.setattr("unbroken.training.loggers.find_spec", lambda name: None)

    with pytest.raises(ModuleNotFoundError, match=f"{module} is not installed; type: pip install {module}"):
        make()


# --- a framework's own loop ---


def test_what_a_framework_logs_is_in_its_checkpoint_and_passed_on_by_the_next_process(tmp_path: Path) -> None:
    heard, log = Heard(), MetricsLog()
    log.open(Processes(), 0)
    log.add(0, 5, {"loss": 0.5})
    log.add(0, 10, {"loss": 0.25, "epoch": 1.0})
    log.write(tmp_path, 10)

    again = MetricsLog([heard])
    step = again.read(tmp_path)
    again.open(Processes(), step)
    again.add(0, 15, {"loss": 0.125})
    again.finish(15)

    assert (step, heard.steps) == (10, [5, 10, 15])


def test_two_rows_of_a_step_where_an_epoch_begins_reach_a_logger_at_once(tmp_path: Path) -> None:
    log = begun([file := JsonLines(tmp_path / "file.jsonl")], [1, 2], tmp_path)

    log.add(1, 2, {"rate": 0.5})
    log.finish(2)
    log.published(2)

    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert lines == [{"loss": 0.5, "step": 1}, {"loss": 1, "rate": 0.5, "step": 2}]


# --- the ids of trackers ---


def test_a_run_has_one_id_until_its_folder_is_another(tmp_path: Path) -> None:
    first = tracker_variables(tmp_path / "a", "a run/of mine", {})
    second = tracker_variables(tmp_path / "a", "a run/of mine", {"WANDB_NAME": "mine"})
    other = tracker_variables(tmp_path / "b", "a run/of mine", {})

    assert first["WANDB_RUN_ID"].startswith("a-run-of-mine-")
    assert first["WANDB_RESUME"] == "allow"
    assert second == {key: value for key, value in first.items() if key != "WANDB_NAME"}
    assert other["WANDB_RUN_ID"] != first["WANDB_RUN_ID"]


def test_a_second_training_of_a_process_gets_its_own_ids(tmp_path: Path) -> None:
    environment = {"WANDB_RESUME": "must"}
    set_tracker_variables(tmp_path / "a", "a", environment)
    first = dict(environment)

    set_tracker_variables(tmp_path / "b", "b", environment)

    assert (first["WANDB_NAME"], environment["WANDB_NAME"]) == ("a", "b")
    assert first["WANDB_RUN_ID"] != environment["WANDB_RUN_ID"]
    assert environment["WANDB_RESUME"] == "must"


def test_the_run_that_a_script_has_begun_in_mlflow_is_kept_for_the_next_segment(tmp_path: Path, monkeypatch) -> None:
    note_mlflow(tmp_path)
    without = tracker_variables(tmp_path, "run", {})

    class Active:
        info = type("Info", (), {"run_id": "abc"})

    monkeypatch.setitem(sys.modules, "mlflow", type("MLflow", (), {"active_run": lambda: Active}))
    note_mlflow(tmp_path)

    assert "MLFLOW_RUN_ID" not in without
    assert tracker_variables(tmp_path, "run", {})["MLFLOW_RUN_ID"] == "abc"


# --- real trainings, really killed ---


@pytest.mark.slow
@pytest.mark.process
def test_each_step_reaches_a_file_and_tensorboard_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="missing: tensorboard (pip install tensorboard)")

    ends = train_to_the_end(tmp_path, loggers=["json", "board", "printed"])

    each = [(step, step / 2) for step in range(1, 21)]
    lines = [json.loads(line) for line in (tmp_path / "logged.jsonl").read_text().splitlines()]
    printed = [line.split()[1] for line in (tmp_path / "said").read_text().splitlines() if line.startswith("logged ")]
    assert ends == ENDS
    assert [(line["step"], line["loss"]) for line in lines] == each
    assert of_tensorboard(tmp_path / "board", "loss") == each
    assert of_tensorboard(tmp_path / "board", "score") == [(10, 0.0), (20, 1.0)]
    assert list(map(int, printed)) == list(range(1, 21))


@pytest.mark.process
def test_without_a_folder_each_step_is_logged_at_once(tmp_path: Path) -> None:
    assert train(tmp_path, loggers=["json"], folder="", goal=1) == 0

    lines = [json.loads(line) for line in (tmp_path / "logged.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert sorted(os.listdir(tmp_path)) == ["logged.jsonl", "said"]


class Tracked(ProgramEngine):
    """A program that may log to trackers."""

    may_log_to_trackers = True


SAYS = """
import json, os, sys
from pathlib import Path
with open(sys.argv[1], "a") as file:
    found = {name: text for name, text in os.environ.items() if name.startswith(("WANDB", "MLFLOW"))}
    file.write(json.dumps(found) + "\\n")
"""


@pytest.mark.process
def test_all_attempts_at_a_run_receive_the_same_ids_and_what_the_user_has_set(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_NAME", "mine")
    said = tmp_path / "said.jsonl"
    command = [sys.executable, "-c", SAYS, str(said)]

    for engine in (Tracked(command), Tracked(command), ProgramEngine(command)):
        with pytest.raises(SegmentError):  # it has saved nothing
            run_segment(toy_job(tmp_path, 1), engine)

    first, second, other = map(json.loads, said.read_text().splitlines())
    assert first == second
    assert first["WANDB_RUN_ID"].startswith("demo-")
    assert (first["WANDB_NAME"], other) == ("mine", {"WANDB_NAME": "mine"})


def test_a_file_of_wandb_that_is_written_otherwise_is_waited_for_once(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "run.wandb"
    path.write_bytes(b":W&B" + b"\x12\x04step\x82\x01\x013")
    monkeypatch.setattr("unbroken.training.loggers.find_spec", lambda name: name)
    monkeypatch.setattr("unbroken.training.loggers.WANDB_PATIENCE_SECONDS", 0.05)
    logger = WandB()
    logger._run = SimpleNamespace(settings=SimpleNamespace(sync_file=str(path)))

    logger.flush(3)
    with pytest.raises(TimeoutError, match=r"step 4 is not in .*run\.wandb after 0\.05 s; a kill may lose steps"):
        logger.flush(4)
    logger.flush(5)
