"""The scripts of docs/batch.md on a real cluster, in jobs of a minute: they go on with no workflow engine around."""

import re
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support.workdir import ROOT

# The first attempt rests at 2 until it is told to leave.
TRAIN = """
import json, os, sys, time
path = "ckpt/state.json"
done = json.load(open(path)) if os.path.exists(path) else 0
open("starts", "a").write(f"{done}\\n")
open("tasks", "a").write(os.environ.get("SLURM_ARRAY_TASK_ID", "none") + "\\n")
os.makedirs("ckpt", exist_ok=True)
while done < 5:
    done += 1
    with open(path, "w") as file:
        json.dump(done, file)
    while done == 2 and len(open("starts").readlines()) == 1:
        time.sleep(0.1)
open(sys.argv[2], "w").write(f"{done}\\n")
"""


def submit(cluster: Cluster, folder: Path, number: int) -> str:
    """Submits one of the page's scripts, with another time limit."""
    blocks = re.findall(r"(?:^    .*\n)+", (ROOT / "docs" / "batch.md").read_text(), re.MULTILINE)
    script = re.sub("^    ", "", blocks[number], flags=re.MULTILINE)
    assert "--time=08:00:00" in script
    (folder / "train.sh").write_text(script.replace("08:00:00", "00:01:00"))
    (folder / "train.py").write_text(TRAIN)
    (folder / "data.tsv").write_text("1\n")
    return cluster.run("sbatch", "--parsable", f"--chdir={folder}", str(folder / "train.sh")).strip()


def output(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*.out")))


@pytest.mark.slow
def test_a_job_puts_itself_back_into_the_queue_until_its_program_is_done(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, 0)
    cluster.wait_until((tmp_path / "model.pt").exists)
    cluster.wait_until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"))

    assert cluster.state(job) == "COMPLETED"
    assert (tmp_path / "starts").read_text() == "0\n2\n"
    assert (tmp_path / "model.pt").read_text() == "5\n"


@pytest.mark.slow
def test_each_task_of_an_array_is_a_segment_and_those_left_over_compute_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = submit(cluster, tmp_path, 1)
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"))

    assert (tmp_path / "starts").read_text() == "0\n2\n"
    assert (tmp_path / "model.pt").read_text() == "5\n"
    assert (tmp_path / "tasks").read_text() == "1\n2\n", "a user's own array is his program's business"
    assert output(tmp_path).count("train: done before, nothing is computed") == 8
    assert len(list(tmp_path.glob(f"train-{job}_*.out"))) == 10
