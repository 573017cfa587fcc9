"""The own tests of snakemake-executor-plugin-slurm, run on a real cluster with `PlainJobs` in the plugin's place."""

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support.needs import skip_or_fail
from support.workdir import ROOT

NAME = "snakemake-executor-plugin-slurm"
SUITE_SECONDS = 3000
# Those of `tests/tests.py` of release 2.8.0, and the workflows on Slurm among them, array jobs included.
TESTS, WORKFLOWS = 81, 20


def suite(folder: Path) -> Path:
    """Return the unpacked source of the installed release, which contains its tests; skip where no registry answers."""
    words = ["download", "--quiet", "--no-deps", "--no-binary", NAME, "--no-build-isolation"]
    wanted = f"{NAME}=={version(NAME)}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--dest", str(folder), wanted], capture_output=True, text=True
    )
    if done.returncode != 0:
        skip_or_fail(f"missing: the source of {wanted} (pip download: {done.stderr.strip().splitlines()[-1]})")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.mark.slow
@pytest.mark.timeout(SUITE_SECONDS)
def test_the_slurm_plugins_own_tests_pass_with_plain_jobs_in_its_place(cluster: Cluster, tmp_path: Path) -> None:
    foreign = ("SLURM_", "SNAKEMAKE_", "UNBROKEN_", "PYTEST_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "support.slurm_suite", "tests/tests.py"],
        cwd=suite(tmp_path),
        env={**clean, **cluster.environment, "PYTHONPATH": str(ROOT / "tests")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert re.search(rf"\b{TESTS} passed", done.stdout), done.stdout[-2_000:]
    assert f"\n{WORKFLOWS} workflows through PlainJobs" in done.stdout, done.stdout[-2_000:]
