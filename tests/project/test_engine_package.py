"""An engine in a package of its own: installed beside unbroken, killed, resumed, shown; nothing of ours changes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.toyrun import until
from support.workdir import ROOT

pytestmark = pytest.mark.xdist_group("engine_package")  # one process, one installed package

EXAMPLE = ROOT / "examples" / "engine_package"
STEPS = 500


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that sees what is installed here, and has the package."""
    fresh = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    python = fresh / "bin" / "python"
    (folder,) = fresh.glob("lib/*/site-packages")
    (folder / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    source = tmp_path_factory.mktemp("source") / "package"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("results", "logs", ".snakemake"))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", str(source)], check=True)
    return python


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that no clock cuts."""
    config = tmp_path / "work" / "config" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        re.sub(r"segment_minutes: .*", "segment_minutes: 30", (EXAMPLE / "config/config.yaml").read_text())
    )
    return tmp_path / "work"


def snakemake(python: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [str(python), "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--cores", "1", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def walks_in(folder: Path) -> list[int]:
    """The walking programs whose working directory lies below the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_walk = b"unbroken_walk.walk" in (path / "cmdline").read_bytes().split(b"\0")
            if is_walk and Path(os.readlink(path / "cwd")).is_relative_to(folder):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def steps_of(folder: Path) -> int:
    files = sorted((folder / "results" / "walk" / "work").glob("*/walk/state.json"))
    return json.loads(files[-1].read_text())["step"] if files else 0


@pytest.mark.slow
def test_an_engine_of_another_package_is_killed_and_comes_to_the_result_of_one_piece(
    python: Path, folder: Path
) -> None:
    driver = snakemake(python, folder, "--retries", "0")
    until(lambda: steps_of(folder) >= 20)
    (walk,) = walks_in(folder)
    os.kill(walk, signal.SIGKILL)
    first, _ = driver.communicate()
    again = snakemake(python, folder)
    second, _ = again.communicate()
    alone = folder / "alone"
    alone.mkdir()
    subprocess.run([python, "-m", "unbroken_walk.walk", str(STEPS), "1", "0"], cwd=alone, check=True)
    status = subprocess.run([python, "-m", "unbroken", "status"], cwd=folder, capture_output=True, text=True)

    assert driver.returncode == 1, first
    assert "rule outside_segment" in first
    assert again.returncode == 0, second
    assert "resuming from results/walk/checkpoints/" in second
    assert (folder / "results/walk/final/state.json").read_bytes() == (alone / "state.json").read_bytes()
    assert f"{STEPS}/{STEPS} steps" in status.stdout


def test_its_settings_are_checked_by_its_schema_and_by_itself(python: Path, folder: Path) -> None:
    config = folder / "config" / "config.yaml"
    good = config.read_text()

    def said(line: str) -> str:
        config.write_text(f"{good}      {line}\n")
        driver = snakemake(python, folder, "-n")
        text, _ = driver.communicate()
        assert driver.returncode == 1, text
        return text

    assert "runs.walk.settings.sed: unknown key; did you mean `seed`?" in said("sed: 3")
    assert "runs.walk.settings.seed: is the goal, which is most likely a slip" in said(f"seed: {STEPS}")
