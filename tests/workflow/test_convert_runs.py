"""`unbroken convert` as it is typed: what it writes runs, and comes to the same result in pieces."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.site_jobs import WALK, whole_walk
from support.workdir import BIN, WorkDir

from unbroken.store.history import EndKind, History

CHOSEN = """#!/bin/bash
#SBATCH --job-name=walk
#SBATCH --time=1
set -u
goal=200
trap 'kill -TERM $pid' USR1
newest=$(ls walk.*.rst 2>/dev/null | tail -n 1)
if [ -n "$newest" ]; then
    python3 walk.py $goal 0.02 "$newest" &
else
    python3 walk.py $goal 0.02 &
fi
pid=$!
wait
[ -f walk.000200.rst ] || sbatch $0
"""
NAMED = """#!/bin/bash
#SBATCH --job-name=walk
timeout 3h python3 walk.py 200 0.02 $(ls walk.*.rst 2>/dev/null | tail -n 1) > log || exit
cp walk.000200.rst result
"""


@pytest.mark.parametrize("script", [CHOSEN, NAMED])
def test_a_script_with_unbroken_exec_comes_to_the_result_of_one_walk(work: WorkDir, script: str) -> None:
    work.write("walk.py", WALK)
    work.write("job.sh", script)

    done = work.unbroken("convert", "job.sh")
    codes = [job(work.root, seconds=3), job(work.root)]

    assert done.code == 0, done.text
    assert done.lines("type: sbatch job.unbroken.sh")
    attempts = History(work.root / ".unbroken" / "walk" / "history.jsonl").attempts()
    assert [attempt.kind for attempt in attempts] == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert codes[0] == 85
    whole = whole_walk(work.root.parent / "alone", 200)
    assert (work.root / "walk.000200.rst").read_bytes() == whole
    assert script is CHOSEN or (work.root / "result").read_bytes() == whole


def job(folder: Path, seconds: float = 0.0) -> int:
    """One job of the script, which is asked to leave after so many seconds; its exit code."""
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder)}
    process = subprocess.Popen(["bash", "job.unbroken.sh"], cwd=folder, env=environment, start_new_session=True)
    if seconds:
        time.sleep(seconds)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            os.kill(child, signal.SIGTERM)
    return process.wait(120)


def test_a_command_with_the_number_of_the_task_is_a_run_that_comes_to_its_end(work: WorkDir) -> None:
    work.write("walk.py", WALK)
    work.write(
        "job.sh", "#SBATCH -J walk -t 1 -a 1-4%1\ngoal=$((50 * SLURM_ARRAY_TASK_ID))\npython3 walk.py $goal 0.02\n"
    )

    done = work.unbroken("convert", "job.sh")
    config = work.root / "config" / "config.yaml"
    text = re.sub("segment_minutes: 1 ", "segment_minutes: 0.04 ", config.read_text()).replace(
        "segments: 4", "segments: 9"
    )
    resume = "      resume: [python3, walk.py, '200', '0.02', '{file}']\n      files: ['walk.{progress}.rst']\n"
    config.write_text(text.replace("    settings:\n", f"    settings:\n{resume}"))
    made = work.snakemake()

    assert done.code == made.code == 0, done.text + made.text
    assert done.lines("nothing says from which files python3 walk.py resumes")
    assert not done.lines("type: ")
    assert [attempt.kind for attempt in work.history("walk")].count(EndKind.PAUSED) >= 1
    assert work.final("walk") == {"walk.000200.rst": whole_walk(work.root.parent / "alone", 200)}


def test_a_script_that_is_none_for_slurm_writes_nothing(work: WorkDir) -> None:
    work.write("job.sh", "#!/bin/csh\n./one\n")

    done = work.unbroken("convert", "job.sh")

    assert done.code == 1
    assert done.text.startswith("unbroken: job.sh line 1: a script of csh; convert reads bash")
    assert [path.name for path in work.root.iterdir()] == ["job.sh"]


def test_what_is_there_is_left_and_what_would_be_written_is_printed(work: WorkDir) -> None:
    work.write("job.sh", CHOSEN)
    work.write("job.unbroken.sh", "mine\n")
    work.write("array.sh", "#SBATCH -t 1 -a 1-2%1\n./walk $SLURM_ARRAY_TASK_ID\n")
    work.write("config/config.yaml", "runs: {}\n")

    script = work.unbroken("convert", "job.sh")
    printed = work.unbroken("convert", "--print", "--name", "other", "job.sh")
    config = work.unbroken("convert", "array.sh")

    assert (work.root / "job.unbroken.sh").read_text() == "mine\n"
    assert script.lines("job.unbroken.sh: yours, left as it is; the script would be:")
    assert printed.lines("unbroken exec --name other ")
    assert (work.root / "config/config.yaml").read_text() == "runs: {}\n"
    assert config.lines("config/config.yaml: yours, left as it is; to add this run, put these lines into it:")
