"""What several ranks say when something is wrong with them: each line provoked and read."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.engines.testing.chain import is_alive
from unbroken.engines.testing.kills import children_of
from unbroken.errors import CheckpointError, SegmentError
from unbroken.store.progress import Progress
from unbroken.training.launch import rendezvous
from unbroken.training.launch.rendezvous import Meeting

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.fsdp2 import require_on_the_cpu  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from unbroken.training.core.environment import SavePlace, read_contract  # noqa: E402
from unbroken.training.core.save_policy import Saves  # noqa: E402
from unbroken.training.core.session import BACKGROUND_BYTES  # noqa: E402
from unbroken.training.torch import rank_checkpoint  # noqa: E402
from unbroken.training.torch.content import Content  # noqa: E402
from unbroken.training.torch.process_group import Ranks  # noqa: E402
from unbroken.training.torch.writer import Point, TorchWriter  # noqa: E402

PATIENCE_SECONDS = 600

# A rank that does not leave by itself is given a second here instead of ten.
LAUNCHER = """
import sys
from unbroken.training.launch import ranks as launch_ranks
launch_ranks.LEAVE_SECONDS = 1.0
sys.exit(launch_ranks.main(sys.argv[1:]))
"""


def started(*command: str, tasks: int = 1, **environment: str) -> "subprocess.Popen[str]":
    """A launcher of as many ranks as make two, each of which runs the command."""
    arguments = [sys.executable, "-c", LAUNCHER, "--ranks", str(2 // tasks), "--tasks", str(tasks), *command]
    return subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)


def end_of(launcher: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = launcher.communicate(timeout=PATIENCE_SECONDS)
    return launcher.returncode, said.strip()


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("exit $((RANK * 85))", (1, "unbroken: the ranks left with [0, 85]; they must agree")),
        ("exit 85", (85, "")),
        (
            "[ $RANK = 1 ] && exit 3; exec sleep 1000",
            (3, "unbroken: rank 1 ended with exit code 3; the others here have 1 s to leave by themselves"),
        ),
        (
            "[ $RANK = 0 ] && kill -9 $$; trap '' TERM; while true; do sleep 1; done",
            (137, "unbroken: rank 0 was ended by SIGKILL; the others here have 1 s to leave by themselves"),
        ),
    ],
)
def test_the_launcher_says_how_its_ranks_ended_and_ends_the_others(script: str, end: tuple[int, str]) -> None:
    assert end_of(started("sh", "-c", script, PATH="/usr/bin:/bin")) == end


@pytest.mark.process
def test_a_rank_that_was_killed_is_the_cause_although_the_others_have_failed_too_when_it_is_found(
    tmp_path: Path,
) -> None:
    script = 'echo > "$PLACE/$RANK"; until [ -e "$PLACE/go" ]; do sleep 0.02; done; [ $RANK = 1 ] && kill -9 $$; exit 1'
    launcher = started("sh", "-c", script, PATH="/usr/bin:/bin", PLACE=str(tmp_path))
    until(lambda: all((tmp_path / rank).exists() for rank in "01"))
    ranks = children_of(launcher.pid)

    launcher.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, launcher.pid, os.WSTOPPED | os.WNOWAIT)
    (tmp_path / "go").touch()
    until(lambda: not any(is_alive(pid) for pid in ranks))
    launcher.send_signal(signal.SIGCONT)

    assert end_of(launcher) == (137, "unbroken: rank 1 was ended by SIGKILL")


@pytest.mark.process
def test_no_rank_outlives_a_killed_launcher() -> None:
    """Two of them with the ranks of the next attempt would be four that write."""
    launcher = started("sleep", "1000", PATH="/usr/bin:/bin")
    ranks = until(lambda: len(found := children_of(launcher.pid)) == 2 and found)

    launcher.kill()
    launcher.communicate(timeout=PATIENCE_SECONDS)

    until(lambda: not any(is_alive(pid) for pid in ranks))


@pytest.mark.process
def test_a_program_that_cannot_be_started_is_named() -> None:
    assert end_of(started("/no/such/python")) == (
        1,
        "unbroken: cannot start /no/such/python: No such file or directory",
    )


@pytest.mark.process
def test_a_rank_that_fails_elsewhere_ends_those_here(tmp_path: Path) -> None:
    script = "[ $RANK = 1 ] && exit 3; exec sleep 1000"
    more = {"SLURM_NTASKS": "2", "UNBROKEN_STOP": str(tmp_path / "stop"), "PATH": "/usr/bin:/bin"}
    launchers = [started("sh", "-c", script, tasks=2, SLURM_PROCID=str(task), **more) for task in range(2)]

    assert [end_of(launcher) for launcher in launchers] == [
        (1, "unbroken: task 1 has failed; the others here have 1 s to leave by themselves"),
        (3, "unbroken: rank 1 ended with exit code 3"),
    ]


def test_launchers_that_cannot_find_each_other_say_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"UNBROKEN_STOP": str(tmp_path / "stop")}
    monkeypatch.setattr(rendezvous, "PATIENCE_SECONDS", 0.0)

    with pytest.raises(SegmentError, match=r"tasks is 2, and only unbroken can start so many \(UNBROKEN_STOP is not"):
        Meeting(2, 1, {})
    with pytest.raises(SegmentError, match=r"tasks is 2, but no variable says which of them this is \(SLURM_PROCID, "):
        Meeting(2, 1, told)
    with (
        Meeting(2, 1, {**told, "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}) as alone,
        pytest.raises(SegmentError, match="tasks 1 of 2 did not come in 0 s"),
    ):
        alone.environments(lambda: False)


def test_ranks_without_a_process_group_are_told_what_to_type() -> None:
    with pytest.raises(CheckpointError, match=r"WORLD_SIZE is 2, and torch.distributed is not started; type torch\."):
        Ranks.here({"WORLD_SIZE": "2"})


def test_a_checkpoint_of_ranks_that_lacks_something_is_refused_before_use(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    state = {"format": rank_checkpoint.FORMAT, "seed": 0, "ranks": 2, "own": ["loader"], "parts": {}}
    torch.save(state, tmp_path / "state.pt")

    with pytest.raises(CheckpointError, match=r"made by 2 ranks, and ranks/00001\.pt is missing"):
        rank_checkpoint.read(tmp_path, Ranks(), 0)
    torch.save({}, tmp_path / "ranks" / "00001.pt")
    with pytest.raises(CheckpointError, match="each with a state of its own for loader, which 1 cannot share"):
        rank_checkpoint.read(tmp_path, Ranks(), 0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_tensors_that_were_spread_and_are_gone_are_named(tmp_path: Path) -> None:
    weight = torch.zeros(4)
    note = {"unbroken.shard": "model/weight", "shape": [5], "dtype": torch.float32}
    states, parts = {"model": {"weight": note}, "other": {"gone": {**note, "unbroken.shard": "other/gone"}}}, {}

    def fails(name: str) -> str:
        with pytest.raises(CheckpointError, match="shards: rank 0: ") as caught:
            rank_checkpoint.put_in({name: states[name]}, {name: parts}, tmp_path, Ranks())
        return str(caught.value)

    assert ".metadata" in fails("model")
    torch.distributed.checkpoint.state_dict_saver.save(
        {"model/weight": weight}, checkpoint_id=tmp_path / "shards", no_dist=True
    )
    assert "other/gone" in fails("other")
    assert "model/weight" in fails("model")


def test_a_spread_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Linear(2, 4)
        torch.distributed.fsdp.fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        note = {"unbroken.shard": "model/weight", "shape": [5, 2], "dtype": torch.float32}
        with pytest.raises(CheckpointError, match=r"model/weight: saved with shape \[5, 2\], and has \[4, 2\] now"):
            rank_checkpoint.put_in({"model": {"weight": note}}, {"model": model}, tmp_path, Ranks())
    finally:
        torch.distributed.destroy_process_group()


def test_torchs_own_tools_read_what_is_spread(tmp_path: Path) -> None:
    require_on_the_cpu()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Linear(2, 4)
        torch.distributed.fsdp.fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        shards: rank_checkpoint.Shards = {}
        rank_checkpoint.taken_out(model.state_dict(), "model", shards)
        rank_checkpoint.taken_out(optimizer.state_dict(), "optimizer", shards)
        rank_checkpoint.write({"shards": shards, "state.pt": {}}, tmp_path, Ranks.here())
        expected = {name: tensor.full_tensor() for name, tensor in shards.items()}
    finally:
        torch.distributed.destroy_process_group()

    dcp_to_torch_save(tmp_path / "shards", tmp_path / "whole.pt")

    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert {"model/weight", "model/bias", "optimizer/state/0/exp_avg"} < whole.keys() == expected.keys()
    assert all(torch.equal(whole[name], tensor) for name, tensor in expected.items())


def link_of(ranks: Ranks, folder: Path) -> TorchWriter:
    told = {"RUN": "demo", "SAVE": str(folder), "STOP": str(folder / "stop"), "SAVE_SECONDS": "60"}
    told |= {"PROGRESS": str(folder / "progress.json")}
    contract = read_contract({f"UNBROKEN_{name}": value for name, value in told.items()})
    assert contract is not None
    content = Content({}, {}, notes=dict, take_notes=dict, where=str, leave=sys.exit, ranks=ranks)
    return TorchWriter(contract, SavePlace(), Saves(), content)


def test_ranks_without_memory_for_copies_say_it_once_and_stop_the_training_for_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, signals_kept: None
) -> None:
    asked = []
    for link in [link_of(Ranks(rank, 2), tmp_path) for rank in (0, 1)]:
        for size in (BACKGROUND_BYTES // 2, BACKGROUND_BYTES, BACKGROUND_BYTES):
            offers = [(size, True), (size // 2, False)]
            monkeypatch.setattr(Ranks, "all_gather", lambda self, value, offers=offers: offers)
            asked.append(link._may_be_in_background(size))
    monkeypatch.setattr(Ranks, "all_gather", lambda self, value: [(BACKGROUND_BYTES, True), (1, True)])

    assert asked == [False] * 6
    assert link_of(Ranks(1, 2), tmp_path)._may_be_in_background(BACKGROUND_BYTES)
    line = "unbroken: no async checkpoints, saves stop the training: not enough free memory for copies of 16 MB\n"
    assert capsys.readouterr().out == line


def test_a_rank_that_left_before_all_had_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_kept: None
) -> None:
    def closed(self: Ranks, value: object) -> list[object]:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(Ranks, "all_gather", closed)
    link = link_of(Ranks(1, 2), tmp_path)

    line = r"a rank left before all had said that their part is written \(Connection closed by peer\)"
    with pytest.raises(CheckpointError, match=line):
        pieces = {"shards": {}, "ranks/00001.pt": {}}
        link._write(Point(pieces=pieces, weights={}, progress=Progress(1.0), step=1, draft=tmp_path))


@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
def test_a_description_of_tensors_is_read_whichever_python_wrote_it(module):
    pickled = f"c{module}\nPosixPath\n(Vshards\ntR.".encode()

    assert rank_checkpoint._Unpickler(io.BytesIO(pickled)).load() == Path("shards")
