"""Images of Apptainer for tests: a shell and a few programs of this machine with their libraries, no more."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Where `make apptainer` puts it: Debian 12 has no package of it.
OURS = ROOT / ".apptainer/usr/bin"
PROGRAMS = ("sh", "cat", "sleep", "env", "mv")
FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "var/tmp")
FILES = ("etc/group", "etc/hosts", "etc/localtime", "etc/passwd", "etc/resolv.conf")


def apptainer() -> Path:
    """The folder of the real program; the test is left out where there is none."""
    found = shutil.which("apptainer", path=f"{OURS}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("missing: apptainer (make apptainer)")
    return Path(found).parent


def make_tree(root: Path, fruit: str) -> Path:
    """An image that is a folder; `/etc/fruit` in it says which."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (root / name).touch()
    for name in PROGRAMS:
        program = Path(shutil.which(name) or name)
        shutil.copy(program, root / "bin" / name)
        for library in re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True)):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "etc/fruit").write_text(f"{fruit}\n")
    return root


def make_image(image: Path, fruit: str) -> Path:
    """The same as a file, written in the place of what was there."""
    tree = make_tree(image.with_suffix(".tree"), fruit)
    words = [apptainer() / "apptainer", "--silent", "build", "--force", image, tree]
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return image
