"""What `unbroken.training.jax` takes, gives back exactly, and refuses in one line before the first step."""

import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.disks import mount_small, unmount

for name in ("jax", "flax", "orbax.checkpoint", "grain"):
    pytest.importorskip(name, reason=f"missing: {name} (pip install jax flax orbax-checkpoint grain)")

import grain  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint  # noqa: E402
from flax import nnx  # noqa: E402

from unbroken.errors import CheckpointError, SegmentError, StorageError  # noqa: E402
from unbroken.training.jax import Training  # noqa: E402
from unbroken.training.jax import state as jax_state  # noqa: E402
from unbroken.training.jax.position import Positions, decode, encode  # noqa: E402
from unbroken.training.jax.state import ARRAYS, State, read_tree, write_tree  # noqa: E402

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


# --- the leaves of a state ---


def odd_state() -> dict[str, object]:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return {
        "float": jnp.arange(3.0),
        "weak": jnp.asarray(1) + 1,
        "weak array": jnp.full((2, 2), 0.5),
        "half": jnp.ones(3, jnp.bfloat16) / 3,
        "eighth": jnp.ones(3, jnp.float8_e4m3fn),
        "four bits": jnp.arange(3).astype(jnp.int4),
        "complex": jnp.ones(2, jnp.complex64) * 1j,
        "truth": jnp.array([True, False]),
        "odd/name.": {3: jnp.ones(1), 10: jnp.zeros(1)},
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(7, impl="rbg"), 3),
        "raw key": jax.random.PRNGKey(3),
        "placed": jax.device_put(jnp.ones(2), sharding),
        "double of numpy": np.linspace(0, 1, 3),
        "number of numpy": np.float64(1 / 3),
        "numbers": [1, -0.0, math.inf, True, 2j],
        "none": None,
        "empty": (jnp.zeros((0, 3)), np.zeros(0, "int16"), ()),
    }


def there_and_back(state: State, folder: Path) -> object:
    tree, rows = state.tree, state.table()
    write_tree(folder / ARRAYS, jax.tree.map(jax_state.on_host, tree))
    leaves, structure = jax.tree.flatten(tree)
    read = zip(read_tree(folder, rows, tree), rows, leaves, strict=True)
    return jax.tree.unflatten(structure, [jax_state.restored(*each) for each in read])


def test_every_leaf_comes_back_with_its_bits_type_and_form(tmp_path: Path) -> None:
    state = State(odd_state())

    again = there_and_back(state, tmp_path)

    assert State(again).table() == state.table()
    for one, other in zip(jax.tree.leaves(state.tree), jax.tree.leaves(again), strict=True):
        assert type(one) is type(other)
        assert jax_state.on_host(one).tobytes() == jax_state.on_host(other).tobytes()
        assert getattr(one, "committed", None) == getattr(other, "committed", None)


@pytest.mark.process
def test_arrays_over_several_devices_come_back_to_them() -> None:
    code = """
import jax, jax.numpy as jnp, tempfile, pathlib
from test_training_jax import there_and_back, State
mesh = jax.make_mesh((4,), ("x",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
state = State({"spread": jax.device_put(jnp.arange(8.0), sharding), "free": jnp.ones(2)})
again = there_and_back(state, pathlib.Path(tempfile.mkdtemp()))
assert again["spread"].sharding == sharding and (again["spread"] == state.tree["spread"]).all()
assert not again["free"].committed
"""
    told = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    run_code(code, **told)


def run_code(code: str, **environment: str) -> str:
    told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_held_stays_while_the_original_changes_or_is_donated() -> None:
    step = jax.jit(lambda leaf: leaf + 1, donate_argnums=0)
    for size in (1, 1000, 1_000_000):
        leaf, own = step(jnp.arange(float(size))), np.zeros(3)
        held, of_numpy = jax_state.held([leaf, own])
        was = held.copy()
        for _ in range(5):
            leaf = step(leaf)
        own += 1
        assert np.array_equal(held, was) and not np.array_equal(held, leaf)
        assert not of_numpy.any()


@pytest.mark.parametrize(
    ("saved", "own", "line"),
    [
        ({"a": jnp.ones(2)}, {"a": jnp.ones(3)}, "state['a'] is float32(2,), and the script's is float32(3,)"),
        ({"a": jnp.ones(2)}, {"a": jnp.ones(2, jnp.bfloat16)}, "and the script's is bfloat16(2,)"),
        ({"a": jnp.ones(2)}, {"b": jnp.ones(2)}, "holds no state['b'], which the script has"),
        ({"a": 1, "b": 1}, {"a": 1}, "holds state['b'], which the script does not have"),
        (
            {"a": jax.random.key(0)},
            {"a": jax.random.key(0, impl="rbg")},
            "is key<fry>(), and the script's is key<rbg>()",
        ),
        ({"a": 1.5}, {"a": 1}, "state['a'] is float64(), and the script's is int64()"),
    ],
)
def test_another_tree_is_refused(saved: object, own: object, line: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        jax_state.matched(State(saved).table(), State(own).table(), "here")
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_a_step_makes_of_numbers_is_no_other_tree() -> None:
    """`TrainState.create` begins with the number 0, of which the first step makes a weakly typed array."""
    then = {"step": jnp.asarray(0) + 1, "mean": jnp.zeros(2)}
    rows = jax_state.matched(State(then).table(), State({"step": 0, "mean": np.zeros(2)}).table(), "here")
    assert [row[1] for row in rows] == ["float32", "int32"]


@pytest.mark.parametrize("leaf", ["text", 1 << 70, object(), np.array([None])])
def test_a_leaf_without_numbers_is_refused(leaf: object) -> None:
    with pytest.raises(TypeError, match=r"Training\(state\): state\['a'\] is a .*, allowed: arrays of JAX or numpy"):
        Training({"a": leaf})


def test_objects_and_arrays_are_not_mixed() -> None:
    with pytest.raises(TypeError, match="NNX objects next to a ArrayImpl, whose changes are not seen"):
        Training({"model": nnx.Linear(2, 2, rngs=nnx.Rngs(0)), "key": jnp.ones(1)})


# --- positions ---


def drawn(data_set: grain.MapDataset) -> grain.MapDataset:
    return data_set.shuffle(seed=3).repeat().batch(4)


def loader(workers: int) -> object:
    sampler = grain.samplers.IndexSampler(40, shuffle=True, seed=1, num_epochs=None)
    batch = [grain.transforms.Batch(4)]
    return iter(grain.DataLoader(data_source=range(40), sampler=sampler, operations=batch, worker_count=workers))


GRAIN = {
    "map": lambda: iter(drawn(grain.MapDataset.source(range(40)))),
    "iter": lambda: iter(drawn(grain.MapDataset.source(range(40))).to_iter_dataset()),
    "window": lambda: iter(
        grain.experimental.WindowShuffleIterDataset(
            grain.MapDataset.source(range(40)).repeat().to_iter_dataset(), window_size=8, seed=1
        ).batch(4)
    ),
    "mixed": lambda: iter(
        grain.MapDataset.mix(
            [drawn(grain.MapDataset.source(range(40))), drawn(grain.MapDataset.source(range(100, 140)))], weights=[1, 2]
        ).to_iter_dataset()
    ),
    "loader": lambda: loader(0),
}


@pytest.mark.parametrize("kind", GRAIN)
def test_an_iterator_of_grain_goes_on_where_it_was(kind: str) -> None:
    one, other = GRAIN[kind](), GRAIN[kind]()
    for _ in range(13):
        next(one)
    saved = Positions(one).state()
    expected = [np.asarray(next(one)) for _ in range(20)]

    Positions(other).restore(saved, "here")

    assert all(np.array_equal(batch, next(other)) for batch in expected)


def test_generators_go_on_where_they_were() -> None:
    made = [lambda: random.Random(3), lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)]
    draw = [lambda part: part.random(), lambda part: part.normal(), lambda part: part.normal()]
    for make, number in zip(made, draw, strict=True):
        one, other = make(), make()
        number(one)
        saved = Positions({"it": one}).state()
        expected = number(one)
        Positions({"it": other}).restore(saved, "here")
        assert number(other) == expected


class NoSetter:
    def __init__(self) -> None:
        self.at = 0

    def get_state(self) -> int:
        return self.at

    def set_state(self, state: int) -> None:
        pass


def test_a_position_that_is_not_taken_back_is_refused() -> None:
    one, other = NoSetter(), NoSetter()
    one.at = 5
    with pytest.raises(CheckpointError, match="data has another position after it was put back"):
        Positions(other).restore(Positions(one).state(), "here")
    with pytest.raises(CheckpointError, match=r"has the position of data, and Training\(data=...\) is given noise"):
        Positions({"noise": other}).restore(Positions(one).state(), "here")
    with pytest.raises(CheckpointError, match="data does not take its position back"):
        Positions(GRAIN["loader"]()).restore({"data": {"bytes": ""}}, "here")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (iter([1, 2]), "data is a list_iterator, whose position cannot be saved"),
        ({"train": (number for number in range(3))}, "train is a generator, whose position cannot be saved"),
        (grain.MapDataset.source(range(4)), "type iter"),
        (
            SimpleNamespace(get_state=lambda: Fraction(1, 2), set_state=print),
            "the state of data is a Fraction, allowed",
        ),
        (SimpleNamespace(state_dict=lambda: {"a": [{1}]}, load_state_dict=print), "the state of data.a[0] is a set"),
    ],
)
def test_an_iterator_without_a_state_is_refused(data: object, line: str) -> None:
    with pytest.raises(TypeError) as raised:
        Training({"a": jnp.ones(1)}, data=data)
    assert line in str(raised.value) and "\n" not in str(raised.value)


def test_a_state_of_any_plain_kind_has_a_form_in_json() -> None:
    value = {
        "a": (1, [b"\x00\xff", None, True]),
        3: np.arange(4, dtype="int16").reshape(2, 2),
        "b": {"tuple": 1.5},
        "f": {},
    }
    value |= {"c": np.float32(1 / 3), "d": math.inf, "e": 1 << 90}
    again = decode(json.loads(json.dumps(encode(value, "it"))))
    assert repr(again) == repr(value)
    assert again[3].dtype == np.int16 and type(again["c"]) is np.float32


# --- the loop ---


def test_a_step_without_update_is_refused() -> None:
    training = Training({"a": jnp.ones(1)})
    with pytest.raises(RuntimeError, match=r"step 1 has ended without training.update\(state\)"):
        for step in training.steps(3):
            if step == 0:
                training.update({"a": jnp.ones(1) * 2})


def test_update_is_refused_where_objects_change_in_place() -> None:
    training = Training({"model": nnx.Linear(2, 2, rngs=nnx.Rngs(0))})
    with pytest.raises(TypeError, match="which change in place"):
        training.update({})


def test_without_a_folder_it_trains_from_start_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    training, seen = Training({"a": jnp.zeros(())}), []
    for step in training.steps(4):
        training.update({"a": training.state["a"] + 1})
        seen.append(step)
    training.finish()
    assert (seen, training.step, float(training.state["a"]), training.resumed) == ([0, 1, 2, 3], 4, 4.0, False)
    assert "nothing is saved" in capsys.readouterr().out


@pytest.mark.process
def test_results_are_equal_for_equal_arrays_wherever_they_are_written(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        code = f"""
import jax.numpy as jnp
from unbroken.training.jax import Training
training = Training({{"a": jnp.zeros(())}}, folder={str(tmp_path / folder)!r})
for step in training.steps(2):
    training.update({{"a": training.state["a"] + 1}})
training.finish({{"model": {{"a": training.state["a"], "nothing": jnp.ones((0, 2))}}, "empty": {{}}}})
"""
        run_code(code, JAX_PLATFORMS="cpu")
    one, other = (
        {str(path.relative_to(final)): path.read_bytes() for path in final.rglob("*") if path.is_file()}
        for final in (tmp_path / "one" / "final" / "model", tmp_path / "other" / "final" / "model")
    )
    model = orbax.checkpoint.StandardCheckpointer().restore(tmp_path / "one" / "final" / "model")

    assert one == other
    assert len(one) >= 4
    assert (model["a"], model["nothing"]) == (2.0, None)


@pytest.mark.process
def test_a_higher_goal_goes_on_from_the_end(tmp_path: Path) -> None:
    for goal in (3, 5):
        code = f"""
import jax.numpy as jnp
from unbroken.training.jax import Saves, Training
training = Training({{"a": jnp.zeros(())}}, folder={str(tmp_path / "run")!r}, saves=Saves(steps=2))
for step in training.steps({goal}):
    training.update({{"a": training.state["a"] + 1}})
training.finish({{"a.txt": str(float(training.state["a"]))}})
"""
        run_code(code, JAX_PLATFORMS="cpu")
    assert (tmp_path / "run/final/a.txt").read_text() == "5.0"


@pytest.mark.process
def test_several_processes_of_jax_are_refused() -> None:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    code = f"""
import sys, jax, jax.numpy as jnp
jax.distributed.initialize("localhost:{port}", 2, int(sys.argv[1]))
from unbroken.training.jax import Saves, Training
try:
    Training({{"a": jnp.ones(1)}}, folder="nowhere")
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}", flush=True)
"""
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(rank)], env=told, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in both:
        said = process.communicate(timeout=300)[0]
        assert "SegmentError: Training(): 2 processes of JAX, allowed: one" in said
    assert issubclass(SegmentError, Exception) and not Path("nowhere").exists()


@pytest.mark.process
def test_a_full_disk_is_one_line_with_the_bytes_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    mount_small(tmp_path / "disk", "size=1m")
    try:
        with pytest.raises(StorageError, match=r"No space left on device; 4,000,000 bytes needed, .* missing") as found:
            write_tree(tmp_path / "disk" / "state", {"a": np.zeros(1_000_000, "float32")})
    finally:
        unmount(tmp_path / "disk")
    assert "\n" not in str(found.value)
