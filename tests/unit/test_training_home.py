"""A training by hand, in a folder of its own: `python train.py` stops well, goes on, and has one writer."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.telling import begin_as_a_new_process
from support.toyrun import flip_byte

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import nn  # noqa: E402

from unbroken.errors import LeaseError, NoCheckpointError  # noqa: E402
from unbroken.store.checkpoints import Store  # noqa: E402
from unbroken.store.history import EndKind, History  # noqa: E402
from unbroken.store.select import verify  # noqa: E402
from unbroken.training.core.run_directory import Home  # noqa: E402
from unbroken.training.torch import Saves, Training, seed_everything  # noqa: E402

OFTEN = Saves()
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.randn(6) + index


def train(
    folder, stop_at=None, number=signal.SIGTERM, width=8, epochs=2, saves=OFTEN, best=None, each_step=None, workers=0
):
    """4 batches an epoch; returns the exit code."""
    begin_as_a_new_process()
    torch.set_num_threads(1)
    seed_everything(1)
    model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    try:
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=saves, best=best)
        loader = training.loader(Noisy(), 5, num_workers=workers)
        step = 0
        for _ in training.epochs(epochs):
            for batch in training.batches(loader):
                step = training._course.position.step + 1
                loss = (model(batch) + torch.randn(1)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                if each_step:
                    each_step(step, model)
                optimizer.step()
                training.log(loss=loss.item())
                if step == stop_at:
                    os.kill(os.getpid(), number)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        return leaving.code
    return 0


def content(folder: Path) -> dict[str, bytes]:
    """Every byte of what the last checkpoint and the result hold, without the words about them."""
    files = [*(folder / "checkpoints" / "latest").rglob("*"), *(folder / "final").rglob("*")]
    words = ("manifest.json", "summary.json")
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in files if path.suffix and path.name not in words
    }


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("in_background", [False, True])
def test_a_stop_by_any_signal_changes_no_byte_of_the_result(tmp_path: Path, number: int, in_background: bool) -> None:
    saves = Saves(steps=1, in_background=in_background)
    whole = train(tmp_path / "whole")
    first = train(tmp_path / "pieces", stop_at=3, number=number, saves=saves)
    second = train(tmp_path / "pieces", stop_at=4, number=number, saves=saves)
    third = train(tmp_path / "pieces", saves=saves)

    assert (whole, first, second, third) == (0, 85, 85, 0)
    assert content(tmp_path / "pieces") == content(tmp_path / "whole")
    assert set(content(tmp_path / "whole")) == {
        "checkpoints/latest/state.pt",
        "checkpoints/latest/final/model.pt",
        "checkpoints/latest/final/metrics.csv",
        "checkpoints/latest/final/metrics.json",
        "final/model.pt",
        "final/metrics.csv",
        "final/metrics.json",
    }


def test_a_term_to_all_processes_ends_no_worker_that_is_just_starting(tmp_path: Path) -> None:
    is_on = [True]
    os.register_at_fork(after_in_child=lambda: is_on and os.kill(os.getpid(), signal.SIGTERM))
    try:
        code = train(tmp_path / "run", workers=2)
    finally:
        is_on.clear()

    train(tmp_path / "whole")
    assert code == 0
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_the_folder_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_FOLDER", str(tmp_path / "here"))

    assert train(None) == 0
    assert (tmp_path / "here" / "final" / "model.pt").exists()


def test_a_deadline_and_the_end_of_a_slurm_job_are_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_DEADLINE", str(time.time() - 5))
    told = train(tmp_path / "told")
    monkeypatch.delenv("UNBROKEN_DEADLINE")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) - 5))
    in_slurm = train(tmp_path / "slurm")
    passport = Store(tmp_path / "slurm" / "checkpoints").readable()[-1].passport

    assert (told, in_slurm) == (85, 85)
    assert passport.slurm_job is not None
    assert passport.slurm_job["job_id"] == "1"


def test_a_finished_training_goes_on_to_a_later_goal(tmp_path: Path) -> None:
    train(tmp_path / "whole", epochs=3)
    train(tmp_path / "longer", epochs=2)
    train(tmp_path / "longer", epochs=3)

    assert content(tmp_path / "longer") == content(tmp_path / "whole")


KILLED_BEFORE_ITS_RESULTS = """
import os, signal, sys
import torch
from unbroken.store import results
from unbroken.training.torch import Training

model = torch.nn.Linear(1, 1)
training = Training(state={"model": model}, folder=sys.argv[1])
for step in training.steps(2):
    training.log(loss=1.0)
results.write = lambda *given, **options: os.kill(os.getpid(), signal.SIGKILL)
training.finish({"model.pt": model.state_dict()})
"""


def test_a_kill_between_the_last_checkpoint_and_the_results_loses_no_results(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_ITS_RESULTS, tmp_path / "run"])
    was_there = (tmp_path / "run" / "final").exists()
    Home(tmp_path / "run", "training", OFTEN, has_history=True).close()

    assert (killed.returncode, was_there) == (-signal.SIGKILL, False)
    kinds = [attempt.kind for attempt in History(tmp_path / "run" / "history.jsonl").attempts()]
    assert kinds == [EndKind.DIED, EndKind.FINISHED]
    assert {"model.pt", "metrics.csv"} < {path.name for path in (tmp_path / "run" / "final").iterdir()}


def test_results_that_the_user_took_away_are_not_made_again(tmp_path: Path) -> None:
    train(tmp_path)
    shutil.rmtree(tmp_path / "final")
    begin_as_a_new_process()
    Home(tmp_path, "training", OFTEN, has_history=True).close()

    assert not (tmp_path / "final").exists()


def test_a_stop_file_ends_the_process_that_runs_and_not_the_next(tmp_path: Path) -> None:
    def ask(step, model):
        if step == 2:
            (tmp_path / "stop").touch()
            time.sleep(0.25)  # the file is looked for five times a second

    first = train(tmp_path, each_step=ask)
    second = train(tmp_path)

    assert (first, second) == (85, 0)


def test_a_checkpoint_with_a_flipped_byte_in_any_file_is_set_aside_and_the_one_before_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "whole")
    for name in ("state.pt", "manifest.json"):
        folder = tmp_path / name
        train(folder, stop_at=5, saves=Saves(steps=2))
        store = Store(folder / "checkpoints")
        newest = store.names()[-1]
        flip_byte(store.root / newest / name)
        code = train(folder)

        assert code == 0
        assert f"bad checkpoint {newest}: " in capsys.readouterr().out
        assert (store.root / ".quarantine" / newest / name).exists()
        assert content(folder) == content(tmp_path / "whole")


def test_no_good_checkpoint_left_is_an_error_and_not_a_start_from_zero(tmp_path: Path) -> None:
    train(tmp_path, stop_at=2)
    flip_byte(tmp_path / "checkpoints" / "latest" / "state.pt")

    with pytest.raises(NoCheckpointError, match=r"no good checkpoint is left.*or begin anew with: mv "):
        train(tmp_path)


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    refused = []

    def second(step, model):
        if step == 1:
            with pytest.raises(LeaseError, match=r"held, segment 1 by process \d+ .*; let it finish") as caught:
                Training(folder=tmp_path)
            refused.append(caught)

    code = train(tmp_path, each_step=second)

    assert (code, len(refused)) == (0, 1)


def test_a_checkpoint_that_predicts_otherwise_is_set_aside_and_the_only_one_left_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = [1.0]

    def begin(folder):
        return Training(folder=folder, saves=Saves(steps=1), validate=lambda: torch.tensor(number))

    def save_twice(folder):
        training = begin(folder)
        for _ in range(2):
            training._save(1.0, is_best=False)
        training._link.place.close()

    save_twice(tmp_path)
    store = Store(tmp_path / "checkpoints")
    first, second = store.names()
    number[0] = 2.0
    said = []
    for _ in range(2):
        with pytest.raises(SystemExit, match="the prediction differs"):
            begin(tmp_path)
        said.append(capsys.readouterr().out)

    assert f"bad checkpoint {second}: the prediction differs" in said[0]
    assert "there is no other checkpoint to go on from, so this one was not set aside" in said[1]
    assert store.names() == [first]


def test_what_cannot_be_a_rule_for_saves_is_named() -> None:
    with pytest.raises(ValueError, match=r"Saves\(minutes=0\), allowed: a number above 0"):
        Saves(minutes=0)
    with pytest.raises(ValueError, match=r"Saves\(milestone_every=-1\), allowed: 0 \(none\) or more"):
        Saves(milestone_every=-1)


PROGRAM = """
import sys, torch
from unbroken.training.torch import Saves, Training, seed_everything

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 90
    def __getitem__(self, index):
        return torch.randn(6) + index

torch.set_num_threads(1)
seed_everything(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 200_000), torch.nn.Linear(200_000, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
training = Training(state={"model": model, "optimizer": optimizer}, folder=sys.argv[1], saves=Saves(steps=1))
loader = training.loader(Numbers(), 1, num_workers=2)
for epoch in training.epochs(int(sys.argv[2])):
    for batch in training.batches(loader):
        loss = (model(batch) + torch.randn(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
training.finish({"model.pt": model.state_dict()})
"""


def start(base: Path, folder: Path, epochs: int = 1) -> "subprocess.Popen[bytes]":
    program = base / "train.py"
    program.write_text(PROGRAM)
    with (base / "output").open("wb") as output:
        command = [sys.executable, str(program), str(folder), str(epochs)]
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def wait_until(is_so, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 280
    while not is_so() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.001)


def is_writing(folder: Path) -> bool:
    """True while a state of 19 MB is on its way to the disk."""
    try:
        sizes = [path.stat().st_size for path in folder.glob("checkpoints/.draft-*/state.pt")]
    except FileNotFoundError:  # shown in between
        return False
    return any(0 < size < 19_000_000 for size in sizes)


def kill_while_writing(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Looks while it stands still, so that it is so when it dies."""
    while True:
        os.killpg(process.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]), "it came to its end"
        if is_writing(folder):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.002)


@pytest.mark.slow
def test_kills_while_a_save_is_written_beside_the_training_leave_whole_checkpoints_and_change_no_byte(
    tmp_path: Path,
) -> None:
    whole, pieces, torn = tmp_path / "whole", tmp_path / "pieces", 0
    assert start(tmp_path, whole).wait(280) == 0, (tmp_path / "output").read_text()
    store = Store(pieces / "checkpoints")
    for _ in range(2):
        first = store.last_sequence() if store.root.exists() else 0
        process = start(tmp_path, pieces)
        wait_until(lambda first=first: store.root.exists() and store.last_sequence() > first, process)
        kill_while_writing(process, pieces)
        torn += len(list(store.root.glob(".draft-*")))
        assert all(verify(store.root / name, "training") for name in store.names())

    assert torn == 2
    assert start(tmp_path, pieces).wait(280) == 0, (tmp_path / "output").read_text()
    assert content(pieces) == content(whole)


def test_ctrl_c_at_the_terminal_lets_it_save_and_leave(tmp_path: Path) -> None:
    process = start(tmp_path, tmp_path / "run", epochs=10_000)  # it does not come to its end before
    wait_until(lambda: (tmp_path / "run" / "checkpoints" / "latest").exists(), process)
    os.killpg(process.pid, signal.SIGINT)  # the workers get it too
    code = process.wait(280)

    assert (code, "Traceback" in (tmp_path / "output").read_text()) == (85, False)
