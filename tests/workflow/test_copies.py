"""Copies through real snakemake processes: a run that is lost is restored from them by the command."""

import shutil
import sys

from support.workdir import WorkDir, one_step_segments

from unbroken.store.checkpoints import Store
from unbroken.system import fs


def worked(work: WorkDir) -> None:
    """Three of five segments are done, and copied."""
    (work.root / "backup").mkdir()
    copies = {"folder": "backup", "keep": 1}
    work.configure({"demo": one_step_segments(segments=6, goal=5, copies=copies)})
    done = work.snakemake("-c1", "results/demo/segments/003.json")
    assert done.code == 0, done.text
    assert work.saved("demo") == 3


def test_a_run_that_is_lost_begins_again_only_without_its_copies_and_is_restored_by_the_command(
    work: WorkDir, whole
) -> None:
    worked(work)
    exists = work.unbroken("restore", "demo", "--from", "backup", columns=400)
    shutil.rmtree(work.root / "results")

    refused = work.snakemake("-c1")
    restored = work.unbroken("restore", "demo", "--from", "backup", columns=400)
    done = work.snakemake("-c1")

    assert (exists.code, refused.code) == (1, 1)
    assert "unbroken restart demo (a backup is kept), then: unbroken restore demo --from backup/demo" in exists.text
    assert "and results/demo is not there (is its disk mounted?); nothing there was touched; type: " in refused.text
    assert "type: unbroken restore demo --from backup, or mv backup/demo backup/demo.old" in refused.text
    assert restored.code == 0, restored.text
    first, second = restored.text.splitlines()[-2:]
    assert first.startswith("demo: restored in results/demo from backup/demo: 3 of 5 steps, checkpoint 000003")
    assert second == "demo: it continues with: unbroken run"
    assert done.code == 0, done.text
    assert work.final("demo") == whole(5)
    assert [attempt.progress_from for attempt in work.history("demo")] == [0, 1, 2, 3, 4]
    assert Store(work.root / "backup" / "demo" / "checkpoints").readable()[-1].passport.is_finished


def test_a_run_that_was_restarted_begins_again_where_its_copies_were_moved_away(work: WorkDir, whole) -> None:
    worked(work)
    assert work.unbroken("restart", "demo").code == 0

    refused = work.snakemake("-c1")
    shutil.move(work.root / "backup" / "demo", work.root / "backup" / "demo.old")
    done = work.snakemake("-c1")

    assert refused.code == 1
    assert done.code == 0, done.text
    assert [attempt.progress_from for attempt in work.history("demo")] == [0, 1, 2, 3, 4]
    assert work.final("demo") == whole(5)


WRITER = """
import os, sys
n = int(open("state").read()) if os.path.exists("state") else 0
with open("table", "a") as table, open("log", "w") as log:
    for n in range(n + 1, n + 11):
        print(n, file=table)
        print("step", n, file=log)
open(f"snap_{n}", "w").write(f"snapshot {n}")
open("new", "w").write(str(n))
os.replace("new", "state")
sys.exit(0 if n >= 30 else 85)
"""


def test_a_lost_run_of_a_program_with_outputs_has_the_result_of_an_uninterrupted_one(work: WorkDir) -> None:
    program = work.write("writer.py", WRITER)
    settings = {"start": [sys.executable, str(program)], "files": ["state"], "goal": 30, "exit_paused": [85]}
    settings |= {"progress_file": "state", "progress_pattern": "([0-9]+)"}
    run = {"engine": "command", "segments": 4, "segment_minutes": 0.5, "settings": settings}
    (work.root / "backup").mkdir()
    work.configure({"demo": {**run, "copies": {"folder": "backup"}}, "whole": run})
    begun = work.snakemake("-c1", "results/demo/segments/002.json")

    resumed, again = (restored_and_ended(work) for _ in range(2))

    assert begun.code == 0, begun.text
    assert resumed == again == results(work, "whole")


def restored_and_ended(work: WorkDir) -> dict[str, bytes]:
    """The results after the run was lost, restored and computed to its end."""
    shutil.rmtree(work.root / "results" / "demo")
    restored = work.unbroken("restore", "demo", "--from", "backup", columns=400)
    done = work.snakemake("-c1")
    assert (restored.code, done.code) == (0, 0), restored.text + done.text
    return results(work, "demo")


def results(work: WorkDir, run: str) -> dict[str, bytes]:
    folder = work.root / "results" / run / "final"
    names = [name for name in fs.tree_files(folder) if name.name != "summary.json"]
    assert {"state", "table", "snap_10", "snap_20", "snap_30", "segments/001/log"} <= set(map(str, names))
    return {str(name): (folder / name).read_bytes() for name in names}
