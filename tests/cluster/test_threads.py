"""What people asked for in public threads about Slurm, rebuilt on a real cluster: one test for each thread."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support.dmtcp_here import PROGRAMS
from support.workdir import ROOT, WorkDir

PATIENCE_SECONDS = 900.0
ORBIT = ROOT / "examples" / "dmtcp" / "orbit.py"
STEPS = 1500

# One epoch after the other, each saved; it knows nothing of jobs, and needs three of them.
TRAIN = """
import os, sys, time
done = int(open("ckpt/epoch").read()) if os.path.exists("ckpt/epoch") else 0
open("starts", "a").write(f"{done}\\n")
starts = len(open("starts").readlines())
os.makedirs("ckpt", exist_ok=True)
while done < 3:
    done += 1
    with open("ckpt/epoch", "w") as file:
        file.write(str(done))
    while done == starts < 3:
        time.sleep(0.1)
open(sys.argv[1], "w").write(f"{done} epochs\\n")
"""


@pytest.mark.slow
def test_slurm_plugin_179_checkpointing_jobs(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    """A script that does no checkpointing of its own gets past the time limit of its jobs.

    https://github.com/snakemake/snakemake-executor-plugin-slurm/issues/179; DMTCP is its stand-in where it is not here.
    """
    slurm_work.profile = None
    shutil.copyfile(ORBIT, slurm_work.root / "orbit.py")
    slurm_work.added_environment["PATH"] = f"{PROGRAMS}:{slurm_work.added_environment['PATH']}"
    slurm_work.snakefile = slurm_work.write(
        "Snakefile",
        f"""
rule orbit:
    output: "orbit.csv"
    retries: 9
    resources: runtime=1
    shell:
        "unbroken exec --name orbit --engine dmtcp --outputs {{output}} --save-minutes 0.1"
        " -- python orbit.py {STEPS} 0.05"
""",
    )
    plugin = ("--executor", "slurm", "--jobs", "2", "--latency-wait", "60", "--default-resources", "mem_mb=900")

    done = slurm_work.start(*plugin, "--slurm-init-seconds-before-status-checks", "3").wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert done.text.count("Trying to restart job") >= 1
    (tmp_path / "whole").mkdir()
    subprocess.run([sys.executable, ORBIT, str(STEPS), "0"], cwd=tmp_path / "whole", check=True)
    assert (slurm_work.root / "orbit.csv").read_bytes() == (tmp_path / "whole" / "orbit.csv").read_bytes()


@pytest.mark.slow
def test_mozilla_translations_54_checkpointing_training(cluster: Cluster, tmp_path: Path) -> None:
    """`--array=1-7%1` gives a training up to seven jobs, and those left over end at once.

    https://github.com/mozilla/translations/issues/54
    """
    (tmp_path / "train.py").write_text(TRAIN)
    line = "unbroken exec --name train --outputs model.npz --keep 'ckpt/*' -- python train.py model.npz"

    job = cluster.sbatch(line, "--array=1-7%1", "--time=1", f"--output={tmp_path}/%a.out", cwd=tmp_path)
    cluster.wait_until(lambda: not cluster.jobs("pending,running,completing"), PATIENCE_SECONDS)

    texts = [(tmp_path / f"{task}.out").read_text() for task in range(1, 8)]
    assert (tmp_path / "starts").read_text() == "0\n1\n2\n"
    assert (tmp_path / "model.npz").read_text() == "3 epochs\n"
    assert [cluster.state(f"{job}_{task}") for task in (1, 2, 3, 7)] == ["FAILED", "FAILED", "COMPLETED", "COMPLETED"]
    assert ["done before, nothing is computed" in text for text in texts] == [False] * 3 + [True] * 4
