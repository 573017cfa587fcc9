"""Several ranks: pieces are the whole, on as many ranks byte for byte, on others with every sample exactly once."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.toyrun import until
from support.training_parent import TrainingParent

from unbroken.store import lease
from unbroken.store.history import History
from unbroken.system.digests import digest_file

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support import fsdp2, ranks_program  # noqa: E402
from support.forked_ranks import ForkedRanks  # noqa: E402

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("training_torch_ranks")]  # one process, one `whole`

SAMPLES = list(range(ranks_program.SAMPLES))
TEXT = Path(ranks_program.__file__).read_text()
EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_ddp" / "train.py"
BESIDE = Path(ranks_program.__file__).with_name("ranks_beside.py").read_text()


def ranks(folder: Path, *arguments: object, count: int = 2, **seconds: float) -> TrainingParent:
    return TrainingParent(folder, TEXT, list(map(str, arguments)), ranks=count, **seconds)


def seen_in(parent: TrainingParent, epoch: int) -> Counter[int]:
    """How often each sample was trained in an epoch, whatever rank did it."""
    lines = [line for path in parent.root.glob("seen-*") for line in path.read_text().splitlines()]
    return Counter(int(word) for line in lines if line.split()[0] == str(epoch) for word in line.split()[1:])


def every_sample_once() -> Counter[int]:
    return Counter(SAMPLES)


@pytest.fixture(scope="module", params=["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrainingParent:
    parent = ForkedRanks(tmp_path_factory.mktemp("whole") / "run", TEXT, [request.param], ranks=2)
    parent.run_to_the_end()
    assert parent.codes == [0], parent.log
    return parent


def files_of(parent: TrainingParent) -> dict[str, bytes]:
    """All but the one file into which torch writes a new identifier at each save."""
    return {name: data for name, data in parent.result().items() if name != "shards/.metadata"}


@pytest.mark.slow
def test_a_stop_of_two_ranks_changes_no_byte_of_the_result(whole: TrainingParent, tmp_path: Path) -> None:
    pieces = ranks(tmp_path / "run", *whole.arguments, "--workers", 2, "--signals", 8)

    pieces.run_to_the_end()

    assert pieces.codes == [85, 0]
    assert files_of(pieces) == files_of(whole)
    assert [seen_in(pieces, epoch) for epoch in range(3)] == [every_sample_once()] * 3


@pytest.mark.slow
def test_the_shipped_example_evaluates_and_saves_its_best_with_sharded_parameters(tmp_path: Path) -> None:
    fsdp2.require_on_the_cpu()
    example = ForkedRanks(tmp_path / "run", EXAMPLE.read_text(), ["--sharded"], ranks=2)

    example.run_to_the_end()

    assert example.codes == [0], example.log
    assert example.latest is not None
    model = torch.load(example.latest / "final" / "model.pt", weights_only=True)
    assert {name: (type(value), tuple(value.shape)) for name, value in model.items()} == {
        "0.weight": (torch.Tensor, (128, 64)),
        "0.bias": (torch.Tensor, (128,)),
        "3.weight": (torch.Tensor, (10, 128)),
        "3.bias": (torch.Tensor, (10,)),
    }


def test_saves_beside_the_training_of_two_ranks_change_no_byte_of_the_result(
    whole: TrainingParent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKS_MISHAP", "waits")
    arguments = [*whole.arguments, "--beside", "1", "--signals", "8"]
    pieces = ForkedRanks(tmp_path / "run", BESIDE + TEXT, arguments, ranks=2)

    pieces.run_to_the_end()

    assert pieces.codes == [85, 0]
    assert files_of(pieces) == files_of(whole)
    assert "2 steps while unbroken-save wrote\n" in pieces.log
    assert "parameter" not in pieces.log


class OwnFolder(ForkedRanks):
    """The same without unbroken's own process: a folder of the user's."""

    @property
    def environment(self) -> dict[str, str]:
        return {"UNBROKEN_FOLDER": str(self.root / "own"), "OMP_NUM_THREADS": "1"}


def test_a_folder_that_another_process_holds_ends_every_rank_with_the_same_line(tmp_path: Path) -> None:
    """The first alone takes it; the others would wait for it until their connection breaks."""
    parent = OwnFolder(tmp_path / "run", TEXT, ["ddp"], ranks=2)
    with lease.take(parent.root / "own" / "lease", 1, 0.0):
        code = parent.run()

    assert code == 1
    assert parent.log.count("LeaseError: ") == 2
    assert parent.log.count(f"held, segment 1 by process {os.getpid()}") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_stop_after_every_batch_changes_no_byte_of_the_result(kind: str, tmp_path: Path) -> None:
    whole = ForkedRanks(tmp_path / "whole", TEXT, [kind], ranks=2)
    whole.run_to_the_end()
    # What the ranks agree on is done a step later, so none stops after the first of an epoch.
    pieces = ForkedRanks(tmp_path / "run", TEXT, [kind, "--signals", "1", "3", "5", "8", "10"], ranks=2)
    pieces.run_to_the_end()

    assert pieces.codes == [85, 85, 85, 85, 85, 0]
    lines = [path.read_text().splitlines() for path in sorted(pieces.root.glob("seen-*"))]
    stops = {round(handover["done"] * 11) for handover in pieces.handovers if handover["done"] < 2}
    assert stops == {4, 8, 11, 11 + 6, 11 + 10}  # batches, two a step, the last of an epoch alone
    assert [len(each) for each in lines] == [18, 18]
    assert files_of(pieces) == files_of(whole)


@pytest.mark.slow
def test_ranks_of_torchrun_stop_and_go_on_in_a_folder_of_their_own(tmp_path: Path) -> None:
    whole = ForkedRanks(tmp_path / "whole", TEXT, ["ddp"], ranks=2)
    whole.run_to_the_end()
    program = tmp_path / "program.py"
    program.write_text(TEXT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--",
        program,
        "ddp",
    ]
    told = {**os.environ, "UNBROKEN_FOLDER": str(tmp_path / "run"), "OMP_NUM_THREADS": "1"}
    first, second = (
        subprocess.run([*map(str, command), *more], env=told, capture_output=True, text=True, timeout=280)
        for more in (["--signals", "8"], [])
    )
    latest = tmp_path / "run" / "checkpoints" / "latest"
    found = {name: (latest / name).read_bytes() for name in files_of(whole)}

    assert (first.returncode, second.returncode) == (1, 0), first.stderr + second.stderr  # torchrun knows no 85
    assert "exitcode  : 85" in first.stderr
    assert found == files_of(whole)
    assert (tmp_path / "run" / "final" / "model.pt").read_bytes() == found["final/model.pt"]
    lines = History(tmp_path / "run" / "history.jsonl").attempts()
    assert [line.kind.value for line in lines] == ["interrupted", "finished"], "the first rank alone writes them"


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "counts"), [(("fsdp", "plain"), (2, 0)), (("plain", "ddp"), (0, 2))])
def test_other_ranks_go_on_with_every_sample_exactly_once(
    kinds: tuple[str, str], counts: tuple[int, int], tmp_path: Path
) -> None:
    parent = ranks(tmp_path / "run", kinds[0], "--signals", 3, count=counts[0])
    codes = [parent.run()]
    parent.arguments, parent.ranks = [kinds[1], "--without-average"], counts[1]
    parent.run_to_the_end()

    assert [*codes, parent.codes[-1]] == [85, 0], parent.log
    assert "random generators are reseeded" in parent.log
    assert [seen_in(parent, epoch) for epoch in range(3)] == [every_sample_once()] * 3


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launcher", "group"])
def test_a_signal_to_launcher_or_group_lets_all_ranks_save(whom: str, whole: TrainingParent, tmp_path: Path) -> None:
    pieces = ranks(tmp_path / "run", *whole.arguments, "--workers", 2, "--pause", 0.3)
    child = pieces.start()
    until((pieces.attempt_folder / "progress.json").exists)
    if whom == "launcher":
        os.kill(child.pid, signal.SIGUSR1)
    else:
        os.killpg(child.pid, signal.SIGTERM)
    child.wait(200)
    pieces.take_last(child)
    pieces.arguments = list(whole.arguments)
    pieces.run_to_the_end()

    assert pieces.codes == [85, 0], pieces.log
    assert "exited unexpectedly" not in pieces.log
    assert files_of(pieces) == files_of(whole)


@pytest.mark.slow
def test_one_rank_is_killed_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    parent = ranks(tmp_path / "run", "ddp", "--dies-at", 9)
    parent.run()
    parent.arguments = ["ddp"]
    parent.run_to_the_end()

    assert parent.codes == [137, 0]  # 128 and the signal, as a shell says it
    assert "unbroken: rank 1 was ended by SIGKILL; the others here have 10 s to leave by themselves" in parent.log
    assert parent.handovers[0]["done"] == 1  # the best value of the first epoch was saved, and nothing after it


@pytest.mark.slow
def test_a_flipped_byte_in_any_file_is_found_before_use(tmp_path: Path) -> None:
    parent = ranks(tmp_path / "run", "fsdp", "--signals", 3)
    parent.run()
    digests = parent.handovers[0]["digests"]
    names = {str(path.relative_to(parent.latest)) for path in parent.latest.rglob("*") if path.is_file()}
    found = []
    for name in sorted(names):
        path = parent.latest / name
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 50)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            found.append(digest_file(path, digests["algorithm"]) != digests["files"][name]["digest"])
        path.write_bytes(whole)

    # The digests are those that the store checks before it gives a checkpoint to anybody.
    assert names == set(digests["files"])
    assert {"state.pt", "ranks/00001.pt", "shards/.metadata", "shards/__1_0.distcp"} <= names
    assert all(found)
    assert len(found) >= 50 * len(names)


@pytest.mark.slow
def test_a_stateful_loader_goes_on_on_each_rank_and_on_no_other_number_of_them(tmp_path: Path) -> None:
    pytest.importorskip("torchdata", reason="missing: torchdata (pip install torchdata)")
    arguments = ["ddp", "--torchdata"]
    whole, pieces = ranks(tmp_path / "whole", *arguments), ranks(tmp_path / "run", *arguments, "--signals", 7)
    whole.run_to_the_end()
    first = pieces.run()
    other = ranks(tmp_path / "other", "plain", "--torchdata", count=0)
    shutil.copytree(pieces.latest, other.root / "checkpoint-0001")
    refused = other.run()
    pieces.run_to_the_end()

    assert (first, pieces.codes) == (85, [85, 0])
    assert files_of(pieces) == files_of(whole)
    assert refused == 1
    assert "made by 2 ranks, each with a state of its own for loader, which 1 cannot share; allowed: 2" in other.log
