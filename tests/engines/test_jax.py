"""The engine `jax`: which scripts it recognizes, what it starts, and what it imports of Orbax's folders."""

import json
import sys
from pathlib import Path

import pytest
from engines.conformance import ROOT, Case
from support.toyrun import toy_job

from unbroken.cli.init_command import choose
from unbroken.engines.base import Task
from unbroken.engines.found import read_checked_runs
from unbroken.engines.imports import ImportSource
from unbroken.engines.jax.engine import JaxEngine
from unbroken.errors import CheckpointError, ConfigError
from unbroken.job.import_export import import_run
from unbroken.program.contract import AttemptFolder
from unbroken.store.checkpoint import Checkpoint

# Where the tests of other engines run there is no JAX.  Each segment compiles again.
MARKS = (pytest.mark.frameworks, pytest.mark.slow)
STEPS = 60
# Long enough for somebody who kills by progress to see each of its moments.
PAUSE = ["--pause-seconds", 0.2]

CASE = Case(
    engine="jax",
    settings={"script": "train.py", "goal": STEPS, "args": PAUSE},
    whole_settings={"args": []},
    segments=4,
    segment_minutes=20,
    save_minutes=0.01,
    final_files=("metrics.csv",),
    per_piece=("model/*", "model/*/*", "model/*/*/*"),  # Orbax names its files anew; test_jax_kills compares weights
    other_settings={"args": [*PAUSE, "--seed", 1]},
    further_goal=STEPS + 30,
    files=(ROOT / "examples" / "jax" / "train.py",),
    kills=3,
    cuts=(0.25, 0.5),
)

SCRIPT = """
import jax
from flax import nnx

def train_step(model, optimizer, batch):
    loss, grads = nnx.value_and_grad(loss_of)(model, batch)
    optimizer.update(model, grads)
"""
RUN = {"engine": "jax", "segments": 1, "segment_minutes": 1, "settings": {"script": "train.py", "goal": 30}}


def run_of(base: Path, **keys: object):  # type: ignore[no-untyped-def]
    (base / "train.py").write_text(SCRIPT)
    return read_checked_runs({"runs": {"demo": {**RUN, **keys}}}, base)[0]


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        "import jax, optax\ngrads = jax.grad(loss)(params)\n",
        "from flax.training import train_state\nimport tensorflow as tf\nstate.apply_gradients(grads=grads)\n",
    ],
)
def test_a_script_of_jax_is_recognized_and_its_lines_are_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)

    choice = choose(tmp_path, [])

    assert choice.engine == "jax"
    assert "goal: 1000  # steps; raise it later and start again" in choice.starter.settings
    assert any("for step in training.steps(1000):" in line for line in choice.starter.todo)


def test_a_script_that_uses_training_needs_no_lines_and_says_how_far_it_goes(tmp_path: Path) -> None:
    text = "from unbroken.training.jax import Training\nSTEPS = 500\nfor step in training.steps(STEPS):\n    pass\n"
    (tmp_path / "train.py").write_text(SCRIPT + text)

    starter = choose(tmp_path, []).starter

    assert "goal: 500  # steps; raise it later and start again" in starter.settings
    assert not any("add these lines" in line for line in starter.todo)


def test_it_starts_the_script_in_one_process(tmp_path: Path) -> None:
    run = run_of(tmp_path, threads=3)
    task = Task(run, 1, None, AttemptFolder(tmp_path), 1e10)

    assert JaxEngine(tmp_path).command(task) == [sys.executable, "train.py"]
    assert JaxEngine(tmp_path).environment(task)["UNBROKEN_GOAL_UNIT"] == "steps"
    assert JaxEngine(tmp_path).environment(task)["OMP_NUM_THREADS"] == "3"


def test_several_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the run has 2 tasks, allowed: one"):
        run_of(tmp_path, tasks=2)


# --- folders of Orbax ---


def orbax_step(folder: Path, *, committed: bool = True, marked: bool = True) -> Path:
    (folder / "default").mkdir(parents=True)
    (folder / "default/manifest.ocdbt").write_bytes(b"arrays")
    (folder / "_CHECKPOINT_METADATA").write_text(json.dumps({"commit_timestamp_nsecs": 5 if committed else None}))
    if marked:
        (folder / "commit_success.txt").write_text("done")
    return folder


def taken(base: Path, source: Path, done: float | None = None) -> Checkpoint:
    return import_run(toy_job(base, goal=4000), JaxEngine(base), ImportSource(source, done))


def killed_folder(root: Path) -> Path:
    """A CheckpointManager's folder: two complete steps, and what kills have left of newer ones."""
    orbax_step(root / "1780", marked=False)  # as earlier releases leave it
    orbax_step(root / "1800")
    orbax_step(root / "1820", committed=False, marked=False)
    orbax_step(root / "1840.orbax-checkpoint-tmp-17", committed=False, marked=False)
    (orbax_step(root / "1860") / "default.orbax-checkpoint-tmp").mkdir()
    return root


@pytest.mark.process
def test_of_a_folder_of_steps_the_newest_complete_one_is_imported(tmp_path: Path) -> None:
    passport = taken(tmp_path, killed_folder(tmp_path / "steps")).passport

    assert passport.progress.done == 1800
    assert passport.imported is not None and passport.imported.step == 1800
    left_out = [line for line in passport.imported.checked if line.startswith("left out")]
    assert [Path(line.split(": ")[1]).name for line in left_out] == ["1860", "1840.orbax-checkpoint-tmp-17", "1820"]
    assert "default/manifest.ocdbt" in passport.files


@pytest.mark.process
@pytest.mark.parametrize("name", ["1820", "1860"])
def test_an_incomplete_step_is_not_imported(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="holds nothing that Orbax has completed"):
        taken(tmp_path, killed_folder(tmp_path / "steps") / name, 1820)
    (tmp_path / "only").mkdir()
    (tmp_path / "only/7.orbax-checkpoint-tmp").mkdir()
    with pytest.raises(CheckpointError, match="is of a save that was killed"):
        taken(tmp_path, tmp_path / "only")


@pytest.mark.process
def test_a_step_that_is_named_is_imported_with_what_was_typed(tmp_path: Path) -> None:
    assert taken(tmp_path, killed_folder(tmp_path / "steps") / "1780", 1780).passport.progress.done == 1780
