"""The pieces behind unbroken.training.torch: state, data, files."""

import inspect
import pickle
import random
import signal
import sys
import threading
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import numpy as np  # noqa: E402
from torch.utils.data import Dataset, default_collate  # noqa: E402

from unbroken.errors import CheckpointError, StorageError  # noqa: E402
from unbroken.system.digests import digest_file  # noqa: E402
from unbroken.training.core.guard import Guard, MetricsWatch  # noqa: E402
from unbroken.training.core.point import write_result  # noqa: E402
from unbroken.training.torch import (  # noqa: E402
    Training,
    random_state,
    rank_checkpoint,
    save_verified,
    snapshot,
)
from unbroken.training.torch import serialization as torch_save  # noqa: E402
from unbroken.training.torch import state as torch_state  # noqa: E402
from unbroken.training.torch.content import Content  # noqa: E402
from unbroken.training.torch.process_group import Ranks  # noqa: E402
from unbroken.training.torch.put_back import put_back  # noqa: E402
from unbroken.training.torch.samplers import PlannedSampler  # noqa: E402
from unbroken.training.torch.writer import made_with  # noqa: E402


class Noisy(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()])


def mixed_up(samples):
    return default_collate(samples) * random.random()


def batches_of(seed=0, workers=0, epochs=2, **options):
    training = Training(seed=seed)
    loader = training.loader(Noisy(), 4, num_workers=workers, **options)
    return [batch for _ in training.epochs(epochs) for batch in training.batches(loader)]


def global_generators():
    return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()


@pytest.mark.process
def test_batches_are_the_same_in_this_process_and_in_workers() -> None:
    here, there = batches_of(collate_fn=mixed_up), batches_of(collate_fn=mixed_up, workers=2)

    assert [batch.tolist() for batch in here] == [batch.tolist() for batch in there]


def test_seed_and_epoch_decide_the_order_and_each_sample_is_drawn_anew() -> None:
    first, again, other = batches_of(), batches_of(), batches_of(seed=1)
    rows = torch.cat(first)

    assert torch.equal(rows, torch.cat(again))
    assert not torch.equal(rows[:, 0], torch.cat(other)[:, 0])
    assert sorted(rows[:10, 0].tolist()) == sorted(rows[10:, 0].tolist()) == list(range(10))
    assert rows[:10, 0].tolist() != rows[10:, 0].tolist()
    assert len(set(rows[:, 1].tolist())) == 20


def test_reading_data_leaves_no_trace_in_the_global_generators() -> None:
    before = global_generators()
    batches_of()

    assert global_generators() == before


def test_an_order_of_ones_own_and_incomplete_batches() -> None:
    drawn = batches_of(order=lambda generator: torch.randint(3, (7,), generator=generator), epochs=1)
    dropped = batches_of(shuffle=False, drop_last=True, epochs=1)

    assert [len(batch) for batch in drawn] == [4, 3]
    assert torch.cat(drawn)[:, 0].max() < 3
    assert torch.cat(dropped)[:, 0].tolist() == list(range(8))


def test_a_goal_in_steps_ends_inside_an_epoch() -> None:
    training = Training()
    loader = training.loader(Noisy(), 4)
    steps = [(epoch, len(batch)) for epoch in training.epochs(4, "steps") for batch in training.batches(loader)]

    assert [epoch for epoch, _ in steps] == [0, 0, 0, 1]


def test_started_by_hand_it_says_that_nothing_is_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    training = Training()
    training.finish({"model.pt": {}})

    assert capsys.readouterr().out == "unbroken: started by hand without a folder, so nothing is saved\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_mistakes_in_the_calls_are_named() -> None:
    training = Training()
    loader = training.loader(Noisy(), 4)
    with pytest.raises(TypeError, match=r"Training\(state=\{'model': ...\}\) is a int, allowed: what has state_dict"):
        Training(state={"model": 3})
    with pytest.raises(ValueError, match=r"allowed: .name of a metric, 'max' or 'min'."):
        Training(best=("accuracy", "highest"))
    with pytest.raises(TypeError, match="makes sampler itself; for another order of the samples: order="):
        training.loader(Noisy(), 4, sampler=[1, 2])
    with pytest.raises(ValueError, match=r"goal None in 'epochs', allowed: a number"):
        next(training.epochs())
    for _ in training.epochs(1):
        list(training.batches(loader))
        with pytest.raises(RuntimeError, match="called twice"):
            next(training.batches(loader))


def test_a_checkpoint_of_another_seed_or_of_other_data_is_refused(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told / "note").write_text("from a file")
    training = Training(seed=1)
    next(training.batches(training.loader(Noisy(), 4)))  # in an epoch of 3 batches
    training.finish({"other.bin": b"1", "note.txt": "2", "copy.txt": told / "save" / ".." / "note", "m.pt": Odd()})
    monkeypatch.setenv("UNBROKEN_RESUME", str(told / "save" / "000001.ready"))

    with pytest.raises(CheckpointError, match=r"made with seed=1, and Training\(...\) is given 2"):
        Training(seed=2)
    resumed = Training(seed=1)
    with pytest.raises(CheckpointError, match="from the middle of an epoch of 3 batches, and the loader has 10"):
        next(resumed.batches(resumed.loader(Noisy(), 1)))
    files = {path.name for path in (told / "save" / "000001.ready" / "final").iterdir()}
    assert files == {"other.bin", "note.txt", "copy.txt", "m.pt", "metrics.csv", "metrics.json"}


class Odd:
    """Something that only plain pickle can read back."""


def test_a_result_outside_of_final_is_refused(told: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'../state.pt' lies outside of final/"):
        Training().finish({"../state.pt": "mine"})


def test_results_by_the_name_of_safetensors_are_in_that_format(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="missing: safetensors (pip install safetensors)")
    model = torch.nn.Linear(2, 1)

    write_result(tmp_path, "model.safetensors", model.state_dict(), torch_save.save_result)

    found = safetensors.load_file(tmp_path / "model.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    shared = {"a": model.weight, "b": model.weight}
    for wrong in (shared, {"a": 1}, 5):
        with pytest.raises(
            CheckpointError, match=r"finish\(\): model.safetensors: .*; allowed: a dictionary of tensors"
        ):
            write_result(tmp_path, "model.safetensors", wrong, torch_save.save_result)


def test_what_a_restart_repeats_is_not_logged_twice(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Training()
    first.log(setup=1.0)
    first.finish()
    monkeypatch.setenv("UNBROKEN_RESUME", str(told / "save" / "000001.ready"))
    second = Training()
    second.log(setup=1.0)

    assert second._log.metrics.to_csv() == "epoch,step,setup\n0,0,1.0\n"


def test_only_a_better_value_is_the_best() -> None:
    watch = MetricsWatch(Guard(), ("error", "min"))
    found = []
    for value in (float("nan"), 2.0, 3.0, 1.0):
        watch.is_new_best = False
        watch.look({"error": value})
        found.append(watch.is_new_best)

    assert found == [False, True, False, True]


def test_equal_states_have_equal_bytes_whatever_objects_they_share() -> None:
    text = "".join(["be", "ta"])
    shared = (0.9, 0.999)
    one = {"a": shared, "b": shared, "x": [text, "beta"], "n": np.float64(0.5), "i": np.int64(3)}
    other = {"a": (0.9, 0.999), "b": (0.9, 0.999), "x": ["beta"] * 2, "n": 0.5, "i": 3}
    found = [pickle.dumps(torch_state.canonical(value, "s"), 2) for value in (one, other)]

    assert found[0] == found[1]


def test_tensors_go_on_to_share_their_memory() -> None:
    base = torch.zeros(4)
    state = torch_state.canonical({"a": base, "b": base[:2]}, "s")

    assert state["a"].data_ptr() == state["b"].data_ptr() == base.data_ptr()


@pytest.mark.parametrize("value", [np.float32(1), np.zeros(2), Path("x"), defaultdict(list), {"k": [object()]}])
def test_what_could_not_be_read_back_is_refused_by_its_place(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"^mine\.inner\S* is a \S+, which cannot be read back safely"):
        torch_state.canonical({"inner": value}, "mine")


def test_the_format_versions_of_a_module_are_kept() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()

    assert torch_state.canonical(state, "model")._metadata == OrderedDict(state._metadata)


def test_every_generator_comes_back_from_a_file_read_safely(tmp_path: Path) -> None:
    generators = {
        "torch": torch.Generator().manual_seed(1),
        **{kind.__name__: np.random.Generator(kind(2)) for kind in (np.random.MT19937, np.random.Philox)},
        "PCG64": np.random.default_rng(3),
        "legacy": np.random.RandomState(4),
        "python": random.Random(5),
    }

    def draw():
        own = [generators["torch"].get_state().sum().item(), torch.randn(1, generator=generators["torch"]).item()]
        own += [float(generators[name].normal()) for name in ("MT19937", "Philox", "PCG64", "legacy")]
        own.append(generators["python"].gauss(0, 1))
        return [*own, random.gauss(0, 1), float(np.random.randn()), torch.randn(1).item()]

    draw()  # now each of them keeps half of a normal pair
    save_verified(torch_state.canonical(random_state.collect(generators), "random"), tmp_path / "state.pt")
    expected = draw()
    random_state.restore_all(torch_state.load(tmp_path), generators)

    assert draw() == expected


def test_a_generator_of_another_kind_of_device_begins_anew_and_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    generator = torch.Generator().manual_seed(1)
    saved = random_state.collect({"noise": generator})
    saved["generators"] = {"noise": torch.zeros(16, dtype=torch.uint8)}  # so long is the state of one of CUDA
    expected = generator.get_state()

    random_state.restore_all(saved, {"noise": generator})

    assert torch.equal(generator.get_state(), expected)
    assert capsys.readouterr().out == (
        "unbroken: noise was the generator of another kind of device than cpu: it begins anew\n"
    )


def test_a_spoilt_state_file_is_named(tmp_path: Path) -> None:
    for content in (b"", b"junk" * 100):
        (tmp_path / "state.pt").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"state.pt: cannot be read"):
            torch_state.load(tmp_path)
    save_verified(Odd(), tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=r"state.pt: cannot be read"):
        torch_state.load(tmp_path)


def test_the_digest_made_while_writing_is_the_digest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    value = {"large": torch.arange(3_000_000), "small": torch.ones(3)}

    made = save_verified(value, path)

    assert made is not None
    assert (made.size_bytes, made.digest) == (path.stat().st_size, digest_file(path, "xxh3_128"))
    assert torch.equal(torch.load(path, weights_only=True)["large"], value["large"])
    assert torch.serialization.get_crc32_options() is True


def test_other_programs_find_their_checksums_where_they_are_wanted(tmp_path: Path) -> None:
    save_verified({"a": torch.ones(1000)}, tmp_path / "model.pt", zip_checksums=True)

    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        assert archive.testzip() is None


def test_what_the_user_saves_meanwhile_in_another_thread_has_its_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has one switch for them in the whole process, and a save takes seconds."""
    seen, write = [], torch_save._Writer.write

    def looking(writer, data):
        written = write(writer, data)
        seen.append(torch.serialization.get_crc32_options())
        return written

    monkeypatch.setattr(torch_save._Writer, "write", looking)
    save_verified({"weight": torch.ones(1000)}, tmp_path / "state.pt")

    assert seen and all(seen)


def test_without_xxhash_there_is_a_file_and_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_save, "preferred_algorithm", lambda: "blake2b")

    assert save_verified({"a": torch.ones(3)}, tmp_path / "state.pt") is None
    assert torch.load(tmp_path / "state.pt", weights_only=True)["a"].sum() == 3


def test_a_snapshot_of_a_gpu_takes_memory_in_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PINNED_FOR", "meta")
    state = {"cpu": torch.ones(5), "gpu": [torch.empty(5, device="meta"), torch.empty(0, device="meta")]}

    assert snapshot.snapshot_bytes(state) == 5 * 4 + 32
    assert snapshot.snapshot_bytes(torch.empty(8, device="meta")) == 32


def test_a_full_disk_is_one_line_with_the_bytes() -> None:
    with pytest.raises(StorageError, match=r"/dev/full: No space left on device; 4,000,000 bytes needed"):
        save_verified({"a": torch.ones(1_000_000)}, Path("/dev/full"))


def restored(saved: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    put_back({"optimizer": fresh}, {"optimizer": saved.state_dict()}, "ckpt")
    (state,) = fresh.state.values()
    return state


@pytest.mark.process
def test_moments_of_another_type_than_their_parameter_come_back_bit_for_bit() -> None:
    """torch casts them to the type of the parameter when it loads them."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([parameter])
    moments = {"step": torch.tensor(7.0), "exp_avg": torch.tensor([1.0001, float("nan"), 3.0])}
    optimizer.state[parameter] = {**moments, "exp_avg_sq": torch.tensor([1e-9, 2.0, 3.0], dtype=torch.float64)}

    found = restored(optimizer, torch.optim.AdamW([parameter]))

    for key, value in optimizer.state[parameter].items():
        assert found[key].dtype == value.dtype
        assert torch.equal(found[key].nan_to_num(), value.nan_to_num())


def test_an_optimizer_that_does_not_take_its_state_and_a_model_of_another_type_are_refused_in_one_line() -> None:
    class Forgetful(torch.optim.SGD):
        def load_state_dict(self, state_dict):
            super().load_state_dict(state_dict)
            for state in self.state.values():
                state["momentum_buffer"] = torch.zeros(3)

    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], momentum=0.9)
    optimizer.state[parameter]["momentum_buffer"] = torch.ones(3)
    with pytest.raises(CheckpointError, match=r"optimizer\.state\.0\.momentum_buffer has other values"):
        restored(optimizer, Forgetful([parameter], momentum=0.9))

    model = torch.nn.Linear(2, 1)
    with pytest.raises(
        CheckpointError, match=r"model\.weight was saved as torch\.float32, and here it is torch\.float16"
    ):
        put_back({"model": torch.nn.Linear(2, 1).half()}, {"model": model.state_dict()}, "ckpt")


def test_a_sample_that_comes_twice_in_an_epoch_draws_anew() -> None:
    training = Training(seed=3)
    loader = training.loader(Noisy(), 2, order=lambda generator: torch.tensor([4, 1, 4, 4, 0, 1]))
    found = [row.tolist() for _ in training.epochs(1) for batch in training.batches(loader) for row in batch]

    assert [row[0] for row in found] == [4, 1, 4, 4, 0, 1]
    assert len({row[1] for row in found}) == len(found)


def test_batches_that_may_come_in_any_order_are_refused() -> None:
    with pytest.raises(TypeError, match="in_order=False"):
        Training(seed=3).loader(Noisy(), num_workers=1, in_order=False)


def test_ranks_draw_the_same_until_the_first_batch_and_then_each_its_own() -> None:
    """A split of the data that is drawn after Training(...) is that of all ranks, in each segment."""
    splits, later = [], []
    for rank in (0, 1):
        torch.manual_seed(7)
        content = Content({}, {}, notes=dict, take_notes=dict, where=str, leave=sys.exit, seed=3, ranks=Ranks(rank, 2))
        splits.append(torch.randperm(100).tolist())
        content.put_the_rest_back()
        later.append(torch.randperm(100).tolist())

    assert splits[0] == splits[1]
    assert later[0] != later[1]


def test_a_rank_on_another_gpu_has_its_own_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus, at_work = [torch.tensor([10]), torch.tensor([11])], [0]

    def put(state, index=None):
        gpus[at_work[0] if index is None else index] = state

    for name, value in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "get_rng_state_all": lambda: list(gpus),
        "get_rng_state": lambda: gpus[at_work[0]],
        "set_rng_state": put,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    saved = random_state.collect({})
    gpus[:], at_work[0] = [torch.tensor([0]), torch.tensor([0])], 1

    random_state.restore_all(saved, {})

    assert gpus[1] == torch.tensor([10])


class Marked(torch.Tensor):
    """Somebody's own kind of tensor."""


def test_a_tensor_of_ones_own_class_is_refused_before_the_first_step_unless_it_is_to_be_trusted(told: Path) -> None:
    model = torch.nn.Linear(2, 1)
    model.register_buffer("scale", torch.ones(2).as_subclass(Marked))
    with pytest.raises(CheckpointError, match=r"model\.scale is a \S+\.Marked, a kind of tensor .* type torch"):
        Training(state={"model": model})

    with torch.serialization.safe_globals([Marked]):
        state = torch_state.canonical(model.state_dict(), "model")
        save_verified(state, told / "state.pt")
        found = torch_state.load_file(told / "state.pt")
    assert type(found["scale"]) is Marked


def test_outside_of_the_main_thread_it_is_refused_before_anything_is_taken(tmp_path: Path) -> None:
    said: list[str] = []

    def train() -> None:
        try:
            Training(state={"model": torch.nn.Linear(2, 1)}, folder=tmp_path / "ckpt")
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=train, name="trainer")
    thread.start()
    thread.join()

    assert said and said[0].startswith("a training is made in the thread 'trainer'; allowed: the main thread")
    assert not (tmp_path / "ckpt").exists()


def test_the_order_of_an_epoch_takes_four_bytes_a_sample_and_one_without_a_shuffle_none() -> None:
    size = 100_000
    shuffled, straight = (PlannedSampler(size, 0, 1, shuffle=shuffle).draw(0) for shuffle in (True, False))
    assert sorted(shuffled.tolist()) == list(straight)
    assert shuffled.nbytes == 4 * size and isinstance(straight, range)
    for own in ([3, 1, 3], [2**31 - 1, -1], [2**31, 5], []):
        assert PlannedSampler(0, 0, 1, order=lambda generator, own=own: own).draw(0).tolist() == own
    for wrong in ([0.5], torch.tensor([0.5]), torch.tensor([True, False])):
        with pytest.raises(TypeError):
            PlannedSampler(0, 0, 1, order=lambda generator, wrong=wrong: wrong).draw(0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_what_runs_code_in_the_description_of_shards_runs_none(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / ".metadata").write_bytes(pickle.dumps(Evil()))
    note = {"unbroken.shard": "model/weight", "shape": [2], "dtype": torch.float32}

    with pytest.raises(CheckpointError, match="is no part of a description of tensors"):
        rank_checkpoint.put_in({"model": {"weight": note}}, {"model": {}}, tmp_path, Ranks())

    assert not (tmp_path / "ran").exists()


def test_the_passport_names_the_gpu_and_how_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    without = made_with(1, {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)

    found = made_with(1, {})

    assert {name: found[name] for name in found.keys() - without.keys()} == {
        "gpu": "NVIDIA H100",
        "cudnn": "91002",
        "tf32": "matmul highest, cudnn on",
    }


def test_a_list_of_optimizers_is_as_many_parts(told: Path) -> None:
    model = torch.nn.Linear(2, 1)
    ours, others = torch.optim.SGD([model.weight], momentum=0.9), torch.optim.AdamW([model.bias])
    training = Training(state={"model": model, "optimizer": [ours, others]})
    state = training._content.state()["parts"]

    assert list(state) == ["model", "optimizer.0", "optimizer.1"]
    with pytest.raises(TypeError, match=r"Training\(state=\{'optimizer\.1': \.\.\.\}\) is a int"):
        Training(state={"optimizer": [ours, 5]})


def test_parts_may_have_the_names_of_options(told: Path) -> None:
    parts = {"best": torch.nn.Linear(2, 1), "seed": torch.Generator(), "my state": [torch.nn.Linear(1, 1)]}
    training = Training(state={"model": torch.nn.Linear(3, 1), **parts}, seed=3)
    state = training._content.state()

    assert list(state["parts"]) == ["model", "best", "my state.0"]
    assert (state["seed"], list(state["random"]["generators"])) == (3, ["seed"])
    with pytest.raises(TypeError, match=r"Training\(state=\.\.\., per_rank=\.\.\.\): model stands in both"):
        Training(state={"model": parts["best"]}, per_rank={"model": parts["best"], "best": parts["best"]})
    with pytest.raises(TypeError, match=r"Training\(state=\{'best': \.\.\.\}\) is a int"):
        Training(state={"best": 5})
    with pytest.raises(
        TypeError, match=r"Training\(state=\.\.\.\) is a Linear, allowed: a dictionary of parts by name"
    ):
        Training(parts["best"])


def test_what_torch_remarks_on_sparse_tensors_spoils_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.14 and later; warnings are errors here, as with `python -W error`."""
    path, load = tmp_path / "state.pt", torch.load
    save_verified({"rows": torch.eye(3).to_sparse()}, path)

    def remarking(*words, **more):
        warnings.warn("Validating sparse tensor invariants because weights_only=True; this may be slow", stacklevel=2)
        return load(*words, **more)

    monkeypatch.setattr(torch, "load", remarking)

    assert torch.equal(torch_state.load_file(path)["rows"].to_dense(), torch.eye(3))


@pytest.mark.parametrize("can_be_mapped", [True, False])
def test_what_all_ranks_of_a_node_load_is_mapped_where_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_mapped: bool
) -> None:
    path, load = tmp_path / "state.pt", torch.load
    save_verified({"weight": torch.arange(100_000.0)}, path)

    def refusing(*words, mmap: bool = False, **more):
        if mmap and not can_be_mapped:
            raise RuntimeError("mmap: no such device")
        return load(*words, mmap=mmap, **more)

    monkeypatch.setattr(torch, "load", refusing)
    state = torch_state.load_file(path, is_mapped=True)

    assert (str(path) in Path("/proc/self/maps").read_text()) == can_be_mapped
    assert torch.equal(state["weight"], torch.arange(100_000.0))
    state["weight"].zero_()  # of this process alone
    assert torch.equal(load(path)["weight"], torch.arange(100_000.0))


CLASSES = [each for each in vars(torch.optim).values() if isinstance(each, type) and each is not torch.optim.Optimizer]
OPTIONS = ({}, {"fused": True}, {"foreach": True}, {"amsgrad": True}, {"momentum": 0.9}, {"lr": torch.tensor(0.1)})


def trained(kind: type, options: dict[str, object], dtype: torch.dtype, steps: int = 3):
    """An optimizer with its parameters after some steps, and how it makes one more."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(4, 3).to(dtype)) for _ in range(2)]
    optimizer = kind(parameters, **options)

    def step() -> None:
        def closure():
            optimizer.zero_grad()
            loss = sum((parameter.abs() ** 2).sum() for parameter in parameters)
            loss.backward()
            for parameter in parameters if kind is torch.optim.SparseAdam else ():
                parameter.grad = parameter.grad.to_sparse()
            return loss

        optimizer.step(closure)

    for _ in range(steps):
        step()
    return parameters, optimizer, step


@pytest.mark.process
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_every_optimizer_of_torch_goes_on_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    tried = []
    for kind in filter(lambda kind: issubclass(kind, torch.optim.Optimizer), CLASSES):
        for options in OPTIONS:
            if not options.keys() <= inspect.signature(kind).parameters.keys():
                continue
            try:
                parameters, optimizer, step = trained(kind, options, dtype)
            except (RuntimeError, ValueError, NotImplementedError):
                continue  # torch itself cannot
            saved = torch_state.canonical({"optimizer": torch_state.state_of(optimizer)}, "state")
            save_verified(saved, tmp_path / "state.pt")
            others, fresh, step_fresh = trained(kind, options, dtype, steps=0)
            with torch.no_grad():
                for other, parameter in zip(others, parameters, strict=True):
                    other.copy_(parameter)
            put_back({"optimizer": fresh}, torch_state.load_file(tmp_path / "state.pt"), "ckpt")
            step()
            step_fresh()
            assert all(map(torch.equal, parameters, others)), (kind, options)
            tried.append(kind)
    assert len(set(tried)) >= 10, tried


def test_a_generator_that_each_rank_has_for_itself_is_among_the_random_numbers_of_its_file() -> None:
    dice = torch.Generator().manual_seed(7)
    content = Content(
        {"model": torch.nn.Linear(2, 1)},
        {"dice": dice},
        notes=dict,
        take_notes=lambda notes: None,
        where=lambda: "",
        leave=pytest.fail,
        ranks=Ranks(1, 2),
    )
    mine = content.pieces()["ranks/00001.pt"]

    assert torch.equal(mine["random"]["generators"]["dice"], dice.get_state())
    assert mine["parts"] == {}
