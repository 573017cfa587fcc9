"""Real JAX trainings are stopped and killed, each piece a process of its own: the pieces are the whole, bit for bit.

That a lost position, moment or type would be seen is tried too: restarts that are broken on purpose have to differ.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unbroken.program.contract import EXIT_PAUSED, READY

pytest.importorskip("orbax.checkpoint", reason="missing: jax (pip install jax flax optax orbax-checkpoint grain)")
pytestmark = [pytest.mark.frameworks, pytest.mark.process, pytest.mark.xdist_group("jax_kills")]

PROGRAM = Path(__file__).parents[1] / "support" / "jax_program.py"
WAYS = ("nnx", "pytree", "loader")
PATIENCE_SECONDS = 600.0


def begun(way: str, out: Path | None, *words: str, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROGRAM), way, *(["--out", str(out)] if out else []), *words]
    told = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(way: str, out: Path | None, *words: str, **environment: str) -> tuple[int, str]:
    process = begun(way, out, *words, **environment)
    said = process.communicate(timeout=PATIENCE_SECONDS)[0]
    return process.returncode, said


def results(out: Path) -> tuple[str, str]:
    return (out / "final/digests.txt").read_text(), (out / "final/metrics.csv").read_text()


def resumed(way: str, out: Path, *words: str) -> tuple[str, str]:
    """What comes out after one more start, which must not begin anew."""
    code, said = run(way, out, *words)
    assert code == 0, said
    assert ": True" in said
    return results(out)


def checkpoints(out: Path) -> list[Path]:
    return sorted(out.glob("checkpoints/0*"))


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    found = {}
    for way in WAYS:
        out = tmp_path_factory.mktemp(way)
        code, said = run(way, out)
        assert code == 0, said
        found[way] = results(out)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_lets_it_save_and_the_pieces_are_the_whole(
    tmp_path: Path, wholes: dict[str, tuple[str, str]], way: str
) -> None:
    for step, number in ((4, "SIGUSR1"), (10, "SIGTERM")):
        code, said = run(way, tmp_path, "--at", str(step), "--signal", number)
        assert code == EXIT_PAUSED, said
        assert f"_{step + 1}-steps_" in checkpoints(tmp_path)[-1].name

    assert resumed(way, tmp_path) == wholes[way]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_training_goes_on_from_its_last_save_to_the_same_bits(
    tmp_path: Path, wholes: dict[str, tuple[str, str]], way: str
) -> None:
    assert run(way, tmp_path, "--at", "7", "--signal", "SIGKILL")[0] == -signal.SIGKILL
    assert resumed(way, tmp_path) == wholes[way]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--when", "before"), ("--when", "after"), ("--in-front",)])
def test_a_kill_inside_of_orbax_leaves_nothing_that_is_ever_chosen(
    tmp_path: Path, wholes: dict[str, tuple[str, str]], words: tuple[str, ...]
) -> None:
    assert run("nnx", tmp_path, "--dies-in-save", "3", *words)[0] == -signal.SIGKILL
    assert any("state" in path.name for path in tmp_path.glob("checkpoints/.draft*/*"))  # Orbax's own, half done
    assert all((kept / "state.json").exists() for kept in checkpoints(tmp_path))

    assert resumed("nnx", tmp_path) == wholes["nnx"]
    assert not [path for path in tmp_path.rglob("*") if "orbax-checkpoint-tmp" in path.name or ".draft" in path.name]


@pytest.mark.slow
def test_kills_at_any_moment_change_no_bit(tmp_path: Path, wholes: dict[str, tuple[str, str]]) -> None:
    moments = random.Random(5)
    for _ in range(3):
        newest = checkpoints(tmp_path)[-1:]
        process = begun("pytree", tmp_path, "--pause", "0.05", "--save-steps", "1")
        while process.poll() is None and checkpoints(tmp_path)[-1:] == newest:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))  # most of the time it is in a save
        process.kill()
        process.communicate()

    assert resumed("pytree", tmp_path) == wholes["pytree"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "broken"), [("nnx", "position"), ("nnx", "moments"), ("pytree", "position"), ("pytree", "weak")]
)
def test_a_restart_that_loses_something_would_be_seen(
    tmp_path: Path, wholes: dict[str, tuple[str, str]], way: str, broken: str
) -> None:
    assert run(way, tmp_path, "--at", "9")[0] == EXIT_PAUSED
    assert resumed(way, tmp_path, "--broken", broken) != wholes[way]


@pytest.mark.slow
def test_the_stop_file_and_a_near_deadline_end_a_piece(tmp_path: Path, wholes: dict[str, tuple[str, str]]) -> None:
    process = begun("loader", tmp_path, "--pause", "0.3")
    while not checkpoints(tmp_path):
        time.sleep(0.05)
        assert process.poll() is None
    (tmp_path / "stop").touch()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == EXIT_PAUSED
    # All steps that are left take longer, on any machine.
    code, said = run("loader", tmp_path, "--pause", "2", UNBROKEN_DEADLINE=str(time.time() + 20))
    assert code == EXIT_PAUSED, said

    assert resumed("loader", tmp_path) == wholes["loader"]


@pytest.mark.slow
def test_it_still_hears_term_after_jax_has_taken_the_signal(tmp_path: Path, wholes: dict[str, tuple[str, str]]) -> None:
    """`jax.distributed.initialize` starts the preemption service of JAX, which takes TERM for itself."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    words = ("--at", "9", "--signal", "SIGTERM", "--pause", "0.1", "--distributed", str(port))
    code, said = run("loader", tmp_path, *words)
    assert code == EXIT_PAUSED, said
    assert "_10-steps_" in checkpoints(tmp_path)[-1].name

    assert resumed("loader", tmp_path) == wholes["loader"]


@pytest.mark.slow
def test_under_a_workflow_it_hands_over_complete_folders_alone(
    tmp_path: Path, wholes: dict[str, tuple[str, str]]
) -> None:
    (tmp_path / "save").mkdir()
    told = {
        "UNBROKEN_RUN": "demo",
        "UNBROKEN_SAVE": str(tmp_path / "save"),
        "UNBROKEN_STOP": str(tmp_path / "stop"),
        "UNBROKEN_PROGRESS": str(tmp_path / "progress.json"),
        "UNBROKEN_LIVE": str(tmp_path / "live"),
        "UNBROKEN_SAVE_SECONDS": "1000",
        "UNBROKEN_GOAL": "20",
        "UNBROKEN_GOAL_UNIT": "steps",
    }
    code, said = run("nnx", None, "--at", "6", "--save-steps", "1000", **told)
    assert code == EXIT_PAUSED, said
    ready = sorted(path for path in (tmp_path / "save").iterdir() if path.name.endswith(READY))
    (tmp_path / "taken").mkdir()
    ready[-1].rename(tmp_path / "taken/last")
    for path in ready[:-1]:
        path.rename(tmp_path / "taken" / path.name)
    code, said = run("nnx", None, **told, UNBROKEN_RESUME=str(tmp_path / "taken/last"))
    assert code == 0, said
    last = sorted((tmp_path / "save").iterdir())[-1]

    assert results(last) == wholes["nnx"]


@pytest.mark.slow
def test_orbax_alone_reads_a_checkpoint(tmp_path: Path) -> None:
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    assert run("loader", tmp_path, "--goal", "4")[0] == 0
    like = {"params": {"weights": jax.ShapeDtypeStruct((8, 1), np.float32)}}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        kept = checkpointer.restore(checkpoints(tmp_path)[-1] / "state")
        final = checkpointer.restore(tmp_path / "final/state")
    assert kept["params"]["weights"].shape == like["params"]["weights"].shape
    assert np.array_equal(kept["params"]["weights"], final["params"]["weights"])
    assert np.any(kept["params"]["weights"] != 0)


@pytest.mark.slow
def test_of_a_folder_where_orbax_was_killed_in_a_save_the_newest_complete_step_is_found(tmp_path: Path) -> None:
    """`latest_step()` names the step that is being written; the import must not."""
    from unbroken.engines.jax.engine import orbax_steps, why_incomplete

    code = f"""
import glob, os, signal, jax.numpy as jnp, orbax.checkpoint as ocp
manager = ocp.CheckpointManager({str(tmp_path / "steps")!r})
manager.save(10, args=ocp.args.StandardSave({{"weights": jnp.ones(10)}}))
manager.wait_until_finished()
manager.save(20, args=ocp.args.StandardSave({{"weights": jnp.ones(40_000_000)}}))
print(manager.latest_step(), flush=True)
while not glob.glob({str(tmp_path / "steps" / "20*")!r}):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    told = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["20"]

    (newest, torn), *_ = steps = orbax_steps(tmp_path / "steps")
    assert newest == 20 and "is of a save that was killed" in why_incomplete(torn)
    assert [step for step, path in steps if not why_incomplete(path)] == [10]


# --- what is refused ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--seed", "4"), "made with seed=3, and the script has 4"),
        (
            ("--width", "8"),
            "state['model']['first']['bias'].value is float32(16,), and the script's is float32(8,)",
        ),
    ],
)
def test_another_training_than_that_of_the_checkpoint_is_refused(
    tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    assert run("nnx", tmp_path, "--at", "2")[0] == EXIT_PAUSED
    code, said = run("nnx", tmp_path, *words)
    assert code == 1
    assert line in said.strip().splitlines()[-1]
    code, said = run("pytree", tmp_path)
    assert code == 1
    assert "holds no state['key'], which the script has" in said.strip().splitlines()[-1]


@pytest.mark.slow
def test_nan_in_the_state_ends_the_training_and_is_not_saved(tmp_path: Path) -> None:
    code, said = run("loader", tmp_path, "--spoil", "10", "--pause", "0.2")
    assert code == 1
    assert "holds NaN, at step 12" in said or "loss is nan" in said
    assert all(int(kept.name.split("_")[1].split("-")[0]) <= 10 for kept in checkpoints(tmp_path))
