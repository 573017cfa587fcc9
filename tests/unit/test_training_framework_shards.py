"""Which kinds of training with Accelerate are refused before the first step, and when a shard is missing."""

import json
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch
import torch.distributed.checkpoint
from support.making import publish
from support.plain_adapter import PlainAdapter

from unbroken.errors import CheckpointError
from unbroken.store.checkpoints import Store
from unbroken.store.progress import Progress
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.torch.framework_shards import (
    Sharding,
    check_described,
    check_shards,
    check_whole,
    count_ranks,
    files_of,
    sharding_of,
)

ZERO_2 = ["global_step9/mp_rank_00_model_states.pt", "global_step9/zero_pp_rank_0_mp_rank_00_optim_states.pt"]
ZERO_3 = [f"m/zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt" for rank in (0, 1) for kind in ("model", "optim")]


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FSDP", "DEEPSPEED"):
        monkeypatch.delenv(f"ACCELERATE_USE_{name}", raising=False)


def deepspeed(**config: object) -> SimpleNamespace:
    """The state of Accelerate that trains with DeepSpeed, on one rank."""
    whole = {"zero_optimization": {"stage": 2}, **config}
    plugin = SimpleNamespace(deepspeed_config=whole, zero_stage=whole["zero_optimization"].get("stage", 0))
    return SimpleNamespace(num_processes=1, deepspeed_plugins=plugin)


def test_deepspeed_is_taken_in_each_stage_that_shards() -> None:
    found = [sharding_of(deepspeed(zero_optimization={"stage": stage})).zero for stage in (1, 2, 3)]

    assert found == [1, 2, 3]
    assert sharding_of(None) == sharding_of(SimpleNamespace(num_processes=1, deepspeed_plugins=None)) == Sharding()
    assert sharding_of(deepspeed(zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})).zero == 2
    assert sharding_of(deepspeed(checkpoint={"use_node_local_storage": False})).zero == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"zero_optimization": {"stage": 0}}, "trains with ZeRO stage 0, allowed: one process, Dist"),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            r"has zero_optimization\.offload_param\.device\.nvme; the state would be outside of the checkpoint",
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}},
            r"has zero_optimization\.offload_optimizer\.device\.nvme; the state would be outside",
        ),
        ({"checkpoint": {"use_node_local_storage": True}}, r"use_node_local_storage\.True; the shards would be on the"),
        ({"checkpoint": {"load_universal": True}}, r"checkpoint\.load_universal\.True; unbroken resumes from"),
        ({"checkpoint": {"writer": {"type": "FAST"}}}, r"checkpoint\.writer; the shards would be written after the"),
        ({"datastates_ckpt": {"host_cache_size": 1}}, "datastates_ckpt; the shards would be written after the save"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel; a rank would not be a share of the data"),
    ],
)
def test_what_deepspeed_would_keep_outside_of_the_checkpoint_is_refused(config: dict, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        sharding_of(deepspeed(**config))


@pytest.mark.parametrize("name", ["megatron_lm_plugin", "torch_tp_plugin", "device_mesh"])
def test_other_ways_to_share_a_model_are_refused_by_name(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"Accelerate trains with .*, allowed: one process, .*; type no {name}"):
        sharding_of(SimpleNamespace(num_processes=1, **{name: object()}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fsdp_version": 1}, "FSDP1, .*SHARDED_STATE_DICT, cpu_offload=False, allowed: one process, "),
        ({"state_dict_type": "FULL_STATE_DICT"}, "FSDP2, .*FULL_STATE_DICT, cpu_offload=False, allowed"),
        ({"cpu_offload": True}, "FSDP2, .*SHARDED_STATE_DICT, cpu_offload=True, allowed"),
        ({}, ""),
    ],
)
def test_of_fsdp_the_second_with_sharded_checkpoints_is_taken(options: dict, message: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="missing: accelerate (pip install unbroken[adapters])")
    chosen = {"fsdp_version": 2, "state_dict_type": "SHARDED_STATE_DICT", **options}
    plugin = accelerate.utils.FullyShardedDataParallelPlugin(**chosen)
    state = SimpleNamespace(num_processes=1, fsdp_plugin=plugin)

    if message:
        with pytest.raises(CheckpointError, match=message):
            sharding_of(state)
    else:
        assert sharding_of(state) == Sharding(is_fsdp=True)
        assert sharding_of(state).hides_weights


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_what_was_asked_for_and_accelerate_trains_without_is_refused(name: str, monkeypatch) -> None:
    """On a CPU it would take DistributedDataParallel and say nothing."""
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")

    with pytest.raises(CheckpointError, match=rf"(?i){name} was asked for, and Accelerate trains without it, as it"):
        sharding_of(SimpleNamespace(num_processes=1, deepspeed_plugins=None))


def test_fsdp_under_accelerate_on_a_cpu_is_refused(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate", reason="missing: accelerate (pip install unbroken[adapters])")
    from unbroken.training.accelerate import UnbrokenLoop

    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")  # which Accelerate sets, and the test takes back
    plugin = accelerate.utils.FullyShardedDataParallelPlugin()
    accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)

    assert type(accelerator.prepare(torch.nn.Linear(1, 1))) is torch.nn.Linear  # nothing is sharded
    with pytest.raises(CheckpointError, match="FSDP was asked for, and Accelerate trains without it"):
        UnbrokenLoop(accelerator)


def test_ranks_of_which_each_trains_for_itself_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With DeepSpeed, no backend and no GPU, Accelerate says so of each of several ranks."""
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)

    with pytest.raises(CheckpointError, match="Accelerate counts 1 processes, and 2 train together, so each would"):
        sharding_of(deepspeed())


# --- shards ---


def test_a_checkpoint_that_lacks_the_shard_of_a_rank_is_not_accepted() -> None:
    both = [*ZERO_2, ZERO_2[1].replace("pp_rank_0", "pp_rank_1")]

    check_shards(both, 2, 2, Path("here"))
    check_shards(ZERO_3, 2, 3, Path("here"))
    check_shards(["model.safetensors"], 2, 0, Path("here"))
    with pytest.raises(CheckpointError, match=r"shard global_step9/zero_pp_rank_\*_mp_rank_00_opt.* of rank 1 is mis"):
        check_shards(ZERO_2, 2, 2, Path("here"))
    for missing in ZERO_3:
        with pytest.raises(CheckpointError, match=r"of rank [01] is missing"):
            check_shards([name for name in ZERO_3 if name != missing], 2, 3, Path("here"))
    with pytest.raises(CheckpointError, match="no shards of DeepSpeed with ZeRO-3 are in it"):
        check_shards(both, 2, 3, Path("here"))


def test_a_shard_that_a_description_names_has_to_be_there(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this process is alone
        torch.distributed.checkpoint.save({"weight": torch.ones(3)}, checkpoint_id=tmp_path / "model", no_dist=True)

    check_described(tmp_path)
    (tmp_path / "model" / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match=r"model: the shard __0_0\.distcp is missing"):
        check_described(tmp_path)


def test_the_files_of_a_rank_are_known_by_their_names(tmp_path: Path) -> None:
    names = ["state.json", "rng_state_1.pth", "random_states_0.pkl", "ranks/00001.pt", "ranks/00011.pt", *ZERO_3]
    for name in [*names, "global_step1/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = [str(path.relative_to(tmp_path)) for path in files_of(tmp_path, 1)]
    assert found == [
        "global_step1/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
        "m/zero_pp_rank_1_mp_rank_00_model_states.pt",
        "m/zero_pp_rank_1_mp_rank_00_optim_states.pt",
        "ranks/00001.pt",
        "rng_state_1.pth",
    ]
    assert [count_ranks(each) for each in (["rng_state.pth"], ["rng_state_0.pth", "rng_state_1.pth", "x"])] == [1, 2]


def test_weights_that_are_sharded_are_no_result() -> None:
    check_whole({"weight": torch.ones(1), "name": "x"}, "model.pt")
    with pytest.raises(CheckpointError, match=r"weight in model.pt is not whole, because .*get_state_dict\(model\)"):
        check_whole({"weight": torch.ones(0)}, "model.pt")


# --- what all adapters offer ---


def test_a_model_that_is_shared_otherwise_than_in_the_checkpoint_is_refused(told: Path, monkeypatch) -> None:
    store = Store(told / "store" / "checkpoints")
    made = publish(store, 1, versions={"sharding": "ZeRO-2"})
    monkeypatch.setenv("UNBROKEN_RESUME", str(made.folder))

    PlainAdapter()._join(lambda: Sharding(zero=2))
    with pytest.raises(CheckpointError, match="made with ZeRO-2, and now it is FSDP2; type ZeRO-2"):
        PlainAdapter()._join(lambda: Sharding(is_fsdp=True))
    with pytest.raises(CheckpointError, match="made with ZeRO-2, and now it is a whole model on each rank; type"):
        PlainAdapter()._join()


def test_a_checkpoint_that_other_ranks_made_is_refused(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = publish(Store(told / "store" / "checkpoints"), 1, versions={"ranks": "2"})
    monkeypatch.setenv("UNBROKEN_RESUME", str(made.folder))

    with pytest.raises(CheckpointError, match="made by 2 ranks, and now there is 1, which would train other data than"):
        PlainAdapter()._join()


def test_a_finished_training_that_is_started_again_keeps_its_last_row_of_metrics(told: Path, monkeypatch) -> None:
    log = MetricsLog()
    log.metrics.add(0, 1, {"loss": 0.5})
    log.metrics.add(1, 2, {"loss": 0.25})
    log.write(told, 2)
    files = {"state": "x", "unbroken_metrics.json": (told / "unbroken_metrics.json").read_text()}
    made = publish(Store(told / "store" / "checkpoints"), 1, files, is_finished=True)
    monkeypatch.setenv("UNBROKEN_RESUME", str(made.folder))

    PlainAdapter()._join()

    lines = (told / "live" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [0.5, 0.25]


def test_a_checkpoint_that_is_asked_for_comes_between_this_step_and_the_next(told: Path) -> None:
    session = PlainAdapter()
    wishes = [session._is_due(Progress(1, 9), 1)]
    session.save()
    wishes.append(session._is_due(Progress(2, 9), 2))
    session._hand_over(lambda draft: (draft / "state").write_text("x") and None, Progress(2, 9))
    wishes.append(session._is_due(Progress(3, 9), 3))

    assert wishes == [False, True, False]
    assert session.resume is None


def test_an_adapter_says_that_it_was_asked_to_stop(told: Path) -> None:
    adapter = PlainAdapter()
    before = adapter.stop_requested
    signal.raise_signal(signal.SIGUSR1)

    assert (before, adapter.stop_requested) == (False, True)
