"""The presets of Python scripts: what of a script they see, change at a resume, and refuse."""

import re
from pathlib import Path

import pytest

from unbroken.engines.command.edits import edited
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import Edit, program_of
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.presets.preset import presets
from unbroken.store.run import RunSpec

CASES = Path(__file__).parents[1] / "presets" / "cases"
OPTUNA = """\
import optuna
study = optuna.create_study(
    study_name="a", storage="sqlite:///a.db", load_if_exists=True,
    sampler=optuna.samplers.TPESampler(n_startup_trials=5, seed=7),
)
study.optimize(objective, n_trials=100)  # n_trials=100
"""
XGBOOST = """\
import xgboost as xgb
params = {"seed": 3, "subsample": 0.8}
saves = xgb.callback.TrainingCheckPoint(directory="./ckpt/", name="m")
xgb.train(params, xgb.DMatrix("train.libsvm?format=libsvm"), num_boost_round=500, callbacks=[saves])
"""
LIGHTGBM = """\
import lightgbm as lgb
params = {"objective": "binary", "seed": 3, "bagging_fraction": 0.8}
def save(env):
    env.model.save_model(f"ckpt/m_{env.iteration}.txt")
lgb.train(params, lgb.Dataset("train.csv"), num_boost_round=500, callbacks=[save])
"""
SCRIPTS = {"optuna": OPTUNA, "xgboost": XGBOOST, "lightgbm": LIGHTGBM}


def run_of(folder: Path, preset: str, script: str) -> RunSpec:
    (folder / "a.py").write_text(script)
    run = {"engine": "command", "segments": 2, "segment_minutes": 1, "settings": {"preset": preset, "input": "a.py"}}
    found, *_ = read_checked_runs({"runs": {"a": run}}, folder)
    return found


def resumed(folder: Path, preset: str, script: str) -> str:
    """Return the script as it is after a resume from 40 trials or rounds."""
    text = script
    for edit in program_of(run_of(folder, preset, script)).edits:
        text = edited(text, edit, filled(edit.put, {"progress": "40", "file": "/store/m.ubj"})) or text
        assert isinstance(edit, Edit)
    return text


# --- what it sees and changes ---


@pytest.mark.parametrize(
    ("preset", "files"),
    [("optuna", ("a.db",)), ("xgboost", ("ckpt/*_{progress}.[uj]*",)), ("lightgbm", ("ckpt/m_{progress}.txt",))],
)
def test_the_files_of_a_script_are_found_in_it(tmp_path: Path, preset: str, files: tuple[str, ...]) -> None:
    assert run_of(tmp_path, preset, SCRIPTS[preset]).settings["files"] == files


@pytest.mark.parametrize("preset", SCRIPTS)
def test_a_script_is_recognized_by_its_text(tmp_path: Path, preset: str) -> None:
    (tmp_path / "a.py").write_text(SCRIPTS[preset])
    known = presets(tmp_path)

    assert [name for name in SCRIPTS if known[name].inputs_below(tmp_path)] == [preset]


def test_data_and_modules_beside_a_script_are_inputs(tmp_path: Path) -> None:
    for name in ("helper.py", "train.libsvm", "unknown.txt", "m.csv"):
        (tmp_path / name).touch()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/more.py").touch()
    script = f"import helper\nfrom tools.more import x\n{XGBOOST}open('m.csv', 'w')\n"

    found = run_of(tmp_path, "xgboost", script).settings["inputs"]

    assert set(found) == {"a.py", "helper.py", "tools", "train.libsvm"}


def test_of_optuna_the_rest_of_the_trials_is_left_and_no_point_is_drawn_twice(tmp_path: Path) -> None:
    text = resumed(tmp_path, "optuna", OPTUNA)

    assert "seed=7 + 40)" in text
    assert "(objective, n_trials=100 - 40)" in text
    assert "\n[study.tell(t.number, state=type(t.state).FAIL) for t in study.get_trials(" in text
    assert '"RUNNING"]; study.optimize(' in text


@pytest.mark.parametrize(
    "line",
    [
        "study.optimize(objective, n_trials=100 - done)",
        "study.optimize(objective, callbacks=[MaxTrialsCallback(n_trials=100)])",
        "for _ in range(100):\n    study.optimize(objective, n_trials=1)",
    ],
)
def test_trials_that_a_script_counts_by_itself_stay_as_they_are(tmp_path: Path, line: str) -> None:
    script = OPTUNA.replace("study.optimize(objective, n_trials=100)", line)

    assert line.rpartition("study.")[2] in resumed(tmp_path, "optuna", script)


def test_of_xgboost_the_rest_of_the_rounds_is_left_from_the_newest_model(tmp_path: Path) -> None:
    text = resumed(tmp_path, "xgboost", XGBOOST)

    assert 'num_boost_round=500 - 40 - 1, xgb_model="/store/m.ubj", callbacks=' in text
    assert '{"seed": 3 + 40, ' in text


def test_of_lightgbm_the_rest_of_the_rounds_is_left_from_the_saved_model(tmp_path: Path) -> None:
    text = resumed(tmp_path, "lightgbm", LIGHTGBM)

    rest = '500 - lgb.Booster(model_file="/store/m.ubj").current_iteration(), init_model="/store/m.ubj"'
    assert f"num_boost_round={rest}, callbacks=" in text
    assert '"seed": 3 + 40, ' in text


@pytest.mark.parametrize(("preset", "name"), [("xgboost", "xgb_model"), ("lightgbm", "init_model")])
def test_a_script_that_continues_by_itself_stays_as_it_is(tmp_path: Path, preset: str, name: str) -> None:
    script = SCRIPTS[preset].replace("=500", f"=500 - done, {name}=newest").replace('"seed": 3, ', "")
    script = script.replace('"subsample": 0.8', "").replace('"bagging_fraction": 0.8', "")

    assert resumed(tmp_path, preset, script) == script


@pytest.mark.parametrize("preset", ["xgboost", "lightgbm"])
@pytest.mark.parametrize(
    ("was", "now"),
    [
        (", num_boost_round=500", ",\n    # num_boost_round=1\n    num_boost_round = 500  # rounds\n"),
        (".train(", ".train(  # no xgb_model=, no init_model=\n"),
    ],
)
def test_comments_are_no_settings(tmp_path: Path, preset: str, was: str, now: str) -> None:
    text = resumed(tmp_path, preset, SCRIPTS[preset].replace(was, now))

    assert re.search(r"num_boost_round ?= ?500 - .*_model=", text), text


# --- what it refuses ---

REFUSED = [
    ("optuna", 'storage="sqlite:///a.db",', "", "in no file"),
    ("optuna", '"sqlite:///a.db"', 'f"sqlite:///{name}.db"', "in no file"),
    ("optuna", "load_if_exists=True,", "", "load_if_exists=True"),
    ("optuna", 'study_name="a",', "", "without a name is a new one"),
    ("optuna", "n_trials=100)", "timeout=600)", "counted from each resume"),
    ("optuna", "n_trials=100)", "n_trials=count)", "would be added at each resume"),
    ("optuna", "study.optimize(objective, n_trials=100)", "def f(n_trials=9): study.optimize(x)", "would be added"),
    ("optuna", "study.optimize", "study.optimize(other, n_trials=5)\nstudy.optimize", "one optimize"),
    ("optuna", "study.optimize", "while True:\n    print(1)\n    study.optimize", "in a loop"),
    ("optuna", "seed=7", "seed=SEED", "type the number"),
    ("xgboost", "num_boost_round=500", "num_boost_round=500, early_stopping_rounds=9", "best score"),
    ("xgboost", "num_boost_round=500", "num_boost_round=500, evals_result=x", "last segment alone"),
    ("xgboost", "num_boost_round=500", "num_boost_round=500, xgb_model=x", "would be added at each resume"),
    ("xgboost", "num_boost_round=500", "num_boost_round=rounds", "number of all rounds"),
    ("xgboost", "callbacks=", "callbacks=[xgb.callback.LearningRateScheduler(x)] + ", "counts the rounds from 0"),
    ("xgboost", 'name="m"', "as_pickle=True", "pickled"),
    ("xgboost", '"./ckpt/"', '"/scratch/ckpt"', "below that of the script"),
    ("xgboost", '"./ckpt/"', '"."', "below that of the script"),
    ("xgboost", '"./ckpt/"', "where", "below that of the script"),
    ("xgboost", '"seed": 3, ', "", "drawn again at each resume"),
    ("xgboost", "xgb.train(", "split(params['seed'])\nxgb.train(", "used here too"),
    ("xgboost", "xgb.train(", "xgb.train(p, d)\nxgb.train(", "two trainings"),
    ("xgboost", "xgb.train(", "xgb.XGBClassifier().fit(", "only xgb.train"),
    ("lightgbm", "callbacks=[save", "callbacks=[save, lgb.early_stopping(9)", "best score"),
    ("lightgbm", "callbacks=[save", "callbacks=[save, lgb.record_evaluation(x)", "last segment alone"),
    ("lightgbm", "callbacks=[save", "callbacks=[save, lgb.reset_parameter(x)", "counts the rounds from 0"),
    ("lightgbm", '"seed": 3', '"seed": 3, "boosting": "dart"', "never dropped"),
    ("lightgbm", '"seed": 3', '"seed": 3, "boosting": "rf"', "random forest"),
    ("lightgbm", '"seed": 3', '"seed": 3, "n_estimators": 500', "would be added at each resume"),
    ("lightgbm", '"seed": 3, ', "", "drawn again at each resume"),
    ("lightgbm", "num_boost_round=500", "num_boost_round=500, init_model=x", "would be added at each resume"),
    ("lightgbm", "num_boost_round=500", "num_boost_round=rounds", "number of all rounds"),
    ("lightgbm", 'f"ckpt/m_{env.iteration}.txt"', "name", "type its name"),
    ("lightgbm", "lgb.train(", "lgb.LGBMClassifier().fit(", "only lgb.train"),
    ("lightgbm", "lgb.train(", "lgb.train(p, d)\nlgb.train(", "two trainings"),
]


@pytest.mark.parametrize(("preset", "was", "now", "why"), REFUSED)
def test_what_could_not_be_resumed_right_is_refused(tmp_path: Path, preset: str, was: str, now: str, why: str) -> None:
    assert was in SCRIPTS[preset]

    with pytest.raises(ConfigError) as error:
        run_of(tmp_path, preset, SCRIPTS[preset].replace(was, now))

    assert any(why in line for line in error.value.mistakes), error.value.mistakes


@pytest.mark.parametrize("case", ["optuna", "optuna-journal", "xgboost", "xgboost-own", "lightgbm"])
def test_the_scripts_of_the_real_tests_are_not_refused(tmp_path: Path, case: str) -> None:
    [script] = [path for path in (CASES / case).glob("*.py") if path.name != "spirals.py"]

    assert run_of(tmp_path, case.partition("-")[0], script.read_text()).settings["files"]
