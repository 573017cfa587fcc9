"""The contract for a framework on several ranks: what one is told all do at the same step, and one hands over."""

from pathlib import Path

import pytest
from support.training_parent import TrainingParent

pytestmark = pytest.mark.process

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

PROGRAM = """
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist

from unbroken.store.progress import Progress
from unbroken.training.torch.framework_session import Adapter


class Plain(Adapter):
    _library = {"framework": "1"}


first_save_at, told_at = map(int, sys.argv[1:])
rank = int(os.environ["RANK"])
keeper = Plain()
dist.init_process_group("gloo")
keeper._join()
seen = Path(__file__).with_name(f"seen-{rank}")
for step in range(1, 9):
    if step == told_at and rank == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
    is_due = keeper._is_due(Progress(step, 8, "steps"), step)
    with seen.open("a") as file:
        file.write(f"{step} {is_due}\\n")
    if is_due and step >= first_save_at:
        keeper._hand_over(lambda draft: (draft / f"rank-{rank}").write_text(f"{step}"), Progress(step, 8, "steps"))
"""


def wishes(parent: TrainingParent, rank: int) -> list[str]:
    return [line.split()[1] for line in (parent.root / f"seen-{rank}").read_text().splitlines()]


def of_ranks(parent: TrainingParent) -> dict[str, bytes]:
    return {name: content for name, content in parent.result().items() if name.startswith("rank-")}


def test_all_ranks_leave_after_the_step_that_follows_the_one_in_which_a_rank_is_told(tmp_path: Path) -> None:
    parent = TrainingParent(tmp_path / "run", PROGRAM, ["1", "3"], ranks=2)

    code = parent.run()

    assert code == 85, parent.log
    assert wishes(parent, 0) == wishes(parent, 1) == ["False", "False", "False", "True"]
    assert of_ranks(parent) == {"rank-0": b"4", "rank-1": b"4"}
    found = [(row["done"], row["versions"]["framework"], row["versions"]["ranks"]) for row in parent.handovers]
    assert found == [(4, "1", "2")]


def test_a_save_that_is_put_off_is_still_wished_by_all_ranks(tmp_path: Path) -> None:
    parent = TrainingParent(tmp_path / "run", PROGRAM, ["4", "5"], ranks=2, save_seconds=0.0)

    code = parent.run()

    assert code == 85, parent.log
    assert wishes(parent, 0) == wishes(parent, 1) == ["False", "True", "True", "True", "False", "True"]
    assert [row["done"] for row in parent.handovers] == [4, 6]
    assert of_ranks(parent) == {"rank-0": b"6", "rank-1": b"6"}
