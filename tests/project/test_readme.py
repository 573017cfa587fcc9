"""The README's commands, as written, in a clean clone.

The environment is the one that these tests run in: that `make setup` makes one in a clean clone is what CI shows before
it comes to any test.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unbroken.config.package_files import root_folder

ROOT = root_folder()
# `make test` is what runs this; a cluster is not at hand here (tests/cluster will be).
ELSEWHERE = ("make test", "snakemake --profile slurm", "unbroken run --detached")


def commands(heading):
    """What the section's bash blocks say."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", section, re.DOTALL)).splitlines()
    return [line for line in lines if line.strip() and not line.startswith(ELSEWHERE)]


def script_of_the_start():
    (script,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/start.md").read_text(), re.MULTILINE | re.DOTALL)
    return script


def test_the_readme_fits_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_every_page_and_file_that_the_pages_name_exists():
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "config" / "README.md",
    ]
    texts = {page: re.sub(r"`[^`\n]*`", "", page.read_text()) for page in pages}  # a pattern may look like a link
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", texts[page])]

    broken = [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not (page.parent / link).exists()]

    assert broken == []


def use_this_environment(clone):
    """Lets `make setup` find all done in the clone."""
    environment = clone / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    (environment / "setup-done").touch()


@pytest.mark.slow
@pytest.mark.needs("git")
@pytest.mark.timeout(900)
def test_the_readme_commands_work_in_a_clean_clone(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    use_this_environment(clone)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text(script_of_the_start())
    outside = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    demo, *others = commands("Try it")
    shown = f"{demo.partition('#')[0]} 2>&1 | tee {tmp_path}/demo.txt"
    script = ["set -euo pipefail", shown, *others, "source .venv/bin/activate", f"cd {mine}", *commands("Use it")]

    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=clone,
        env={
            **outside,
            "UNBROKEN_CONSOLE": "",
            "EDITOR": "true",
            "PYTHONPATH": str(clone / "src"),
        },  # the code of the clone, not ours
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:]
    assert demo.startswith("make demo")
    assert len((tmp_path / "demo.txt").read_text().splitlines()) <= 40
    assert (clone / "examples/torch/results/digits/final/model.pt").is_file()
    assert (mine / "results/train/final/model.pt").is_file()
    assert "checkpoints are whole" in done.stdout
