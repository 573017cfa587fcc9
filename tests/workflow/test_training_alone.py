"""A rule whose own script uses `unbroken.training.torch`, with plain snakemake and `retries`: no command, no config."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.alone import BATCHES, EPOCHS, KINDS, batches, prepare, uninterrupted
from support.workdir import BIN, WorkDir

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.store.history import Attempt, History

pytestmark = pytest.mark.xdist_group("training_alone")  # one process, one `whole`

ALL = list(range(EPOCHS * BATCHES))


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDir]:
    found = WorkDir(tmp_path / "work", added_environment={"PATH": f"{BIN}:{os.environ['PATH']}"})
    found.root.mkdir()
    yield found
    found.kill_everything()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return uninterrupted(tmp_path_factory.mktemp("whole") / "work")


def history(work: WorkDir) -> list[Attempt]:
    return History(work.root / "ckpt" / "history.jsonl").attempts()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "script")) for kind in KINDS])
def test_a_signal_an_error_and_a_kill_are_retried_and_change_no_byte(work: WorkDir, whole: bytes, kind: str) -> None:
    prepare(work, kind, "retries: 3")
    for step, number in {5: signal.SIGTERM, 10: 0, 15: signal.SIGKILL}.items():
        work.write(f"accident-{step}", str(int(number)))

    done = work.snakemake("-c1")

    assert done.code == 0, done.text
    assert (work.root / "model.pt").read_bytes() == whole
    assert (work.root / "plotted.txt").read_text() == "plotted\n"
    # What was not saved is trained again, and nothing else.
    assert batches(work) == sorted([*ALL, 10, 15])
    assert [line.kind.value for line in history(work)] == ["interrupted", "failed", "died", "finished"]
    assert history(work)[1].message == "ValueError: no such luck"


def test_a_finished_training_makes_its_output_again_and_trains_nothing(work: WorkDir, whole: bytes) -> None:
    prepare(work, "script", "retries: 1")
    first = work.snakemake("-c1")
    (work.root / "model.pt").unlink()

    again = work.snakemake("-c1", "model.pt")

    assert (first.code, again.code) == (0, 0), again.text
    assert (work.root / "model.pt").read_bytes() == whole
    assert batches(work) == ALL
