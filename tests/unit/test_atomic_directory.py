"""Several files as one checkpoint: whole or not there, checked, kept as said, by one process or all ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from protocol.kill_harness import Steps, forked
from support.toyrun import PYTHONPATH, flip_byte, hidden

from unbroken.errors import ForeignFolderError, LeaseError
from unbroken.store.checkpoints import Store
from unbroken.store.select import verify
from unbroken.system import host
from unbroken.training import AtomicDirectory

pytestmark = pytest.mark.process


def write(directory: AtomicDirectory, done: int, **more) -> Path:
    with directory.checkpoint(done, **more) as draft:
        (draft / "model").write_text(f"model {done}")
        (draft / "sub").mkdir()
        (draft / "sub" / "more").write_text(f"more {done}")
    assert directory.newest is not None
    return directory.newest


def test_what_is_written_is_there_as_a_whole_with_both_links(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path / "run") as directory:
        first = directory.newest
        best = write(directory, 5, is_best=True)
        newest = write(directory, 7, unit="epochs")
    with AtomicDirectory(tmp_path / "run") as again:
        found = again.newest

    assert (first, found) == (None, newest)
    assert (tmp_path / "run/checkpoints/latest").resolve() == newest
    assert (tmp_path / "run/checkpoints/best").resolve() == best
    assert ((newest / "model").read_text(), (newest / "sub/more").read_text()) == ("model 7", "more 7")
    assert newest.name.startswith("000002_7-epochs_")


def test_what_is_kept_is_the_newest_the_best_each_nth_and_the_milestones(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path, keep=2, milestone_every=4) as directory:
        for done in range(1, 10):
            write(directory, done, is_best=done == 2, is_milestone=done == 3)

    kept = [checkpoint.passport.progress.done for checkpoint in Store(tmp_path / "checkpoints").readable()]
    assert kept == [2, 3, 4, 8, 9]


def test_all_are_kept_if_that_is_wanted(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path, keep=-1) as directory:
        for done in range(1, 6):
            write(directory, done)
    assert [each.passport.progress.done for each in Store(tmp_path / "checkpoints").readable()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["checkpoints", "final", "lease", "parts"])
def test_a_link_in_the_place_of_one_of_its_folders_is_refused_and_not_followed(tmp_path: Path, name: str) -> None:
    with AtomicDirectory(tmp_path / "run") as directory:
        write(directory, 5)
        write(directory, 7)
    own = tmp_path / "run" / name
    if own.is_dir():
        own.rename(tmp_path / "disk")
    else:
        (tmp_path / "disk").mkdir()
    own.symlink_to(tmp_path / "disk")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(ForeignFolderError, match=f"/{name}: a link to {tmp_path}/disk; nothing there was touched"):
        AtomicDirectory(tmp_path / "run", keep=1)

    assert sorted(tmp_path.rglob("*")) == before


def test_an_error_in_the_block_shows_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path) as directory:
        kept = write(directory, 1)
        with pytest.raises(RuntimeError, match="mine"), directory.checkpoint(2) as draft:
            (draft / "model").write_text("half")
            raise RuntimeError("mine")

        assert directory.newest == kept
    assert hidden(tmp_path / "checkpoints") == []


def test_a_flipped_byte_in_any_file_of_a_checkpoint_is_found_before_it_is_given(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path / "good") as directory:
        before, newest = write(directory, 1), write(directory, 2)
    names = [str(path.relative_to(newest)) for path in newest.rglob("*") if path.is_file()]
    for name in names:
        with AtomicDirectory(tmp_path / name) as directory:
            before, newest = write(directory, 1), write(directory, 2)
        flip_byte(newest / name)
        with AtomicDirectory(tmp_path / name) as directory:
            assert directory.newest == before

    assert sorted(names) == ["manifest.json", "model", "sub/more"]


def test_one_program_writes_a_folder_at_a_time(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path), pytest.raises(LeaseError, match="let it finish"):
        AtomicDirectory(tmp_path)


def test_mistakes_in_the_calls_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"milestones='some'\), allowed: 'any' or 'all'"):
        AtomicDirectory(tmp_path, milestones="some")
    with pytest.raises(ValueError, match=r"keep=0\), allowed: 1 or more, or -1"):
        AtomicDirectory(tmp_path, keep=0)


def test_a_kill_between_or_within_any_steps_leaves_a_whole_checkpoint_and_the_next_process_goes_on(
    tmp_path: Path,
) -> None:
    host.this_host()  # asked once, before the forks

    def second(base: Path, at: int = 0, mode: str = "after") -> list[str]:
        steps = Steps(base, at, mode)
        with AtomicDirectory(base, keep=1) as directory:
            write(directory, 2)
        return steps.names

    def prepared(name: str) -> Path:
        with AtomicDirectory(tmp_path / name, keep=1) as directory:
            write(directory, 1)
        return tmp_path / name

    base = prepared("counted")
    _, status = forked(lambda: (tmp_path / "steps").write_text(json.dumps(second(base))), tmp_path / "screen")
    assert status == 0, (tmp_path / "screen").read_text()
    steps = json.loads((tmp_path / "steps").read_text())
    # Before one step is after the one before it: nothing in between changes the disk.
    kills = [(at, "before") for at in range(1, len(steps) + 1)]
    kills += [(at, "half") for at, name in enumerate(steps, 1) if name == "write"]
    seen = set()
    for at, mode in kills:
        base = prepared(f"{mode}{at}")
        _, status = forked(lambda base=base, at=at, mode=mode: second(base, at, mode), tmp_path / "screen")
        assert os.WIFSIGNALED(status)
        store = Store(base / "checkpoints")
        assert all(verify(store.root / name, "files") for name in store.names())
        for path in (base / "lease").glob(".*"):
            os.utime(path, (1, 1))  # time passes
        with AtomicDirectory(base, keep=1) as directory:
            assert directory.newest is not None
            seen.add((directory.newest / "model").read_text())
            third = write(directory, 3)
        assert store.names() == [third.name], (at, mode, steps[at - 1])
        assert hidden(base) == [], (at, mode, steps[at - 1])

    assert len(kills) > 30
    assert seen == {"model 1", "model 2"}


RANKS = """
import os, sys
import torch.distributed as dist
from pathlib import Path
from unbroken.training import AtomicDirectory
base, rank = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{base}/meet", rank=rank, world_size=2)
said = []
for mode in ("any", "all"):
    with AtomicDirectory(base / mode, keep=1, milestones=mode) as directory:
        for done, votes in ((1, [0]), (2, [0, 1]), (3, []), (4, [])):
            with directory.checkpoint(done, is_milestone=rank in votes) as draft:
                (draft / f"rank{rank}").write_text(f"{done}")
        try:
            with directory.checkpoint(5) as draft:
                if rank == 1:
                    raise ValueError("mine")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        assert (directory.newest / f"rank{1 - rank}").read_text() == "4"
try:
    AtomicDirectory(base / f"rank{rank}")
except Exception as error:
    said.append(f"{type(error).__name__}: {error}")
# The first rank is done with all of its own before the other begins, which a word between them would forbid.
if rank == 1:
    dist.barrier()
with AtomicDirectory(base / f"own{rank}", keep=1, per_rank=True) as directory:
    for done in range(1, 4 - rank):
        with directory.checkpoint(done) as draft:
            (draft / "state").write_text(f"{rank} {done}")
    if rank == 0:
        dist.barrier()
    dist.barrier()
    try:
        AtomicDirectory(base / f"own{1 - rank}", per_rank=True)
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
    dist.barrier()
(base / f"said{rank}").write_text("\\n".join(said))
dist.destroy_process_group()
"""


def test_all_ranks_make_one_checkpoint_and_vote_on_milestones_and_one_that_fails_fails_all(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    command = [sys.executable, "-c", RANKS, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "output").open("wb") as output:
        both = [subprocess.Popen([*command, str(n)], env=environment, stdout=output, stderr=output) for n in (0, 1)]
        codes = [process.wait(280) for process in both]

    assert codes == [0, 0], (tmp_path / "output").read_text()
    found = {mode: Store(tmp_path / mode / "checkpoints").readable() for mode in ("any", "all")}
    kept = {mode: [checkpoint.passport.progress.done for checkpoint in found[mode]] for mode in found}
    assert kept == {"any": [1, 2, 4], "all": [2, 4]}
    told = [(tmp_path / f"said{rank}").read_text().splitlines() for rank in (0, 1)]
    assert told[1][:2] == ["ValueError: mine"] * 2
    assert all("no checkpoint at 5: rank 1: ValueError('mine')" in line for line in told[0][:2])
    for rank, (*_, line, taken) in enumerate(told):
        own, other = (str(tmp_path / f"rank{number}") for number in (rank, 1 - rank))
        assert line.startswith(
            f"CheckpointError: AtomicDirectory({own!r}), and rank {1 - rank} has {other!r}; allowed: one folder for all"
        )
        assert taken.startswith("LeaseError: ")
        with AtomicDirectory(tmp_path / f"own{rank}") as directory:
            assert directory.newest is not None
            assert (directory.newest / "state").read_text() == f"{rank} {3 - rank}"
    assert [path.name for path in tmp_path.glob("rank*")] == []
    assert found["any"][-1].passport.files.keys() == {"rank0", "rank1"}
