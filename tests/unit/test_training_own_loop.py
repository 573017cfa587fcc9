"""A loop of the user's own with Checkpoints, Loaders and Stop: pieces are the whole, bit for bit, after kills too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import ProgramEngine, toy_job

from unbroken.job.lifecycle import run_segment
from unbroken.store.history import EndKind, SegmentEnd

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.training.torch import Checkpoints, Loaders, Saves, Stop, Variables  # noqa: E402

pytestmark = [
    pytest.mark.process,
    pytest.mark.usefixtures("signals_kept"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
PROGRAM = Path(__file__).parents[1] / "support" / "own_loop.py"
GOAL = 30


def run(folder: Path, *options: object, ranks: int = 1) -> int:
    command = [sys.executable, str(PROGRAM), str(folder), *map(str, options)]
    if ranks > 1:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    print(done.stdout, done.stderr)
    return done.returncode


def result(folder: Path) -> dict:
    return torch.load(folder / "final" / "model.pt", weights_only=True)


def assert_same(one: Path, other: Path) -> None:
    first, second = result(one), result(other)

    assert first["seen"] == second["seen"]
    assert all(torch.equal(first["model"][name], second["model"][name]) for name in first["model"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder) == 0
    return folder


def test_a_loop_that_is_killed_and_asked_to_leave_gives_what_one_piece_gives(whole: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "at", 7, signal.SIGKILL) == -signal.SIGKILL
    assert run(tmp_path, "at", 13, signal.SIGTERM) == 85
    assert run(tmp_path, "at", 21, signal.SIGKILL) == -signal.SIGKILL
    assert run(tmp_path, "at", 24, signal.SIGUSR1) == 85
    assert run(tmp_path) == 0

    assert_same(tmp_path, whole)


def test_a_broken_restore_is_seen_by_the_comparison(whole: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "at", 13, signal.SIGTERM) == 85
    assert run(tmp_path, "broken") == 0

    with pytest.raises(AssertionError):
        assert_same(tmp_path, whole)


def test_segments_of_a_workflow_give_what_one_piece_gives(whole: Path, tmp_path: Path) -> None:
    def segment(number: int, *options: object) -> SegmentEnd:
        command = [sys.executable, str(PROGRAM), "", *map(str, options)]
        return run_segment(toy_job(tmp_path, number, goal=GOAL, segment_minutes=9), ProgramEngine(command))

    first, second = segment(1, "at", 7, signal.SIGUSR1), segment(2)

    assert (first.kind, second.kind) == (EndKind.PAUSED, EndKind.FINISHED)
    assert_same(toy_job(tmp_path).places.final.parent, whole)


def test_a_stateful_data_loader_is_refused_because_its_start_draws_random_numbers() -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="missing: torchdata")

    with pytest.raises(TypeError, match=r"'data'.*StatefulDataLoader.*allowed: Loaders"):
        Checkpoints({"data": torchdata.StatefulDataLoader(Numbers())})


@pytest.mark.slow
def test_ranks_leave_together_and_continue_where_they_were(tmp_path: Path) -> None:
    assert run(tmp_path / "whole", ranks=2) == 0
    assert run(tmp_path / "pieces", "at", 13, signal.SIGTERM, ranks=2) != 0
    assert (tmp_path / "pieces" / "checkpoints" / "latest").exists()
    assert run(tmp_path / "pieces", ranks=2) == 0

    assert_same(tmp_path / "pieces", tmp_path / "whole")


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def test_loaders_keep_their_positions_in_a_checkpoint_of_ones_own() -> None:
    def make() -> tuple[Loaders, list]:
        loaders = Loaders(seed=3)
        made = [loaders.loader(Numbers(), 2), loaders.loader(Numbers(), 3)]
        return loaders, [made[0], loaders.endless(made[1])]

    loaders, (first, second) = make()
    list(first)
    one_pass = iter(first)
    begun = [next(one_pass), next(one_pass), *(next(second) for _ in range(5))]
    state = loaders.state_dict()
    rest = [*one_pass, *first, *(next(second) for _ in range(5))]

    again, (first, second) = make()
    again.load_state_dict(state)
    found = [*first, *first, *(next(second) for _ in range(5))]

    assert len(begun) == 7 and [each.tolist() for each in found] == [each.tolist() for each in rest]


def test_a_pass_whose_last_batch_was_given_is_not_begun_again() -> None:
    loaders = Loaders()
    loader = loaders.loader(Numbers(), 5)
    given = 0
    for _ in loader:
        given += 1
        state = loaders.state_dict()  # after the last batch, the code at the end of the pass is still to come

    again = Loaders()
    loader = again.loader(Numbers(), 5)
    again.load_state_dict(state)

    assert given == 2 and list(loader) == [] and len(list(loader)) == 2


def test_two_passes_at_once_are_refused_when_they_are_saved() -> None:
    loaders = Loaders()
    loader = loaders.loader(Numbers(), 2)
    one, other = iter(loader), iter(loader)
    next(one), next(other)

    with pytest.raises(TypeError, match="an iterator over loader 0 is in use next to another one"):
        loaders.state_dict()


def test_without_a_folder_nothing_is_saved_and_a_signal_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints, stop = Checkpoints({"variables": Variables()}), Stop()
    assert checkpoints.load() == 0 and not checkpoints.resumed and not checkpoints.save(1, force=True)
    assert not stop.requested

    os.kill(os.getpid(), signal.SIGUSR1)

    assert stop.requested and stop.requested
    with pytest.raises(SystemExit, match="85"):
        stop.leave()
    assert "nothing is saved" in capsys.readouterr().out


def test_a_loop_that_does_not_load_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints({"variables": Variables()}, folder=tmp_path)

    with pytest.raises(RuntimeError, match=r"load\(\) was not called"):
        checkpoints.save(1)
    checkpoints.close()


def test_the_policy_says_which_steps_are_saved(tmp_path: Path) -> None:
    checkpoints = Checkpoints({"variables": Variables(a=1)}, folder=tmp_path, saves=Saves(steps=3))
    checkpoints.load()
    saved = [step for step in range(1, 8) if checkpoints.save(step)]
    checkpoints.close()

    assert saved == [3, 6]


def test_a_stop_file_and_a_near_deadline_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stop").touch()  # which ended the process before
    stop = Stop(stop_file=tmp_path / "stop")
    assert not stop.requested
    (tmp_path / "stop").touch()
    stop._pace._next_look = 0.0
    assert stop.requested

    monkeypatch.setenv("UNBROKEN_DEADLINE", "1000")
    assert Stop().requested
