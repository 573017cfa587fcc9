"""Images of Apptainer for tests: a shell and a few programs of this machine with their libraries, no more."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from support.needs import skip_or_fail

ROOT = Path(__file__).parents[2]
# Where `make apptainer` puts it: Debian 12 has no package of it.
OURS = ROOT / ".apptainer/usr/bin"
PROGRAMS = ("sh", "cat", "sleep", "env", "mv")
FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "var/tmp")
FILES = ("etc/group", "etc/hosts", "etc/localtime", "etc/passwd", "etc/resolv.conf")

# Says each of 200 steps in a table, saves after 20 of them and when it is told to leave.
COUNTING = """
read fruit < /etc/fruit
n=0; [ -f state ] && read n < state
trap 'told=1' TERM
save() { echo $n > state.new; mv state.new state; }
while [ $n -lt 200 ] && [ -z "$told" ]; do
    sleep 0.05; n=$((n + 1))
    echo $n $fruit >> rows.txt
    [ $((n % 20)) -ne 0 ] || save
done
save
[ $n -ge 200 ] || exit 85
"""
COUNTED = "".join(f"{step} apple\n" for step in range(1, 201)).encode()


def apptainer() -> Path:
    """The folder of the real program; the test is left out where there is none."""
    found = shutil.which("apptainer", path=f"{OURS}:{os.environ['PATH']}")
    if found is None:
        skip_or_fail("missing: apptainer (make apptainer)")
    return Path(found).parent


def make_tree(root: Path, fruit: str) -> Path:
    """An image that is a folder; `/etc/fruit` in it says which."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (root / name).touch()
    for name in PROGRAMS:
        _copy_program(Path(shutil.which(name) or name), root / "bin" / name)
    (root / "etc/fruit").write_text(f"{fruit}\n")
    return root


def _copy_program(program: Path, target: Path) -> None:
    """A program, and its libraries below the same folder where the program expects them."""
    shutil.copy(program, target)
    root = target.parents[1]
    for library in re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True)):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


def make_image(image: Path, fruit: str) -> Path:
    """The same as a file, written in the place of what was there."""
    return _built(image, make_tree(image.with_suffix(".tree"), fruit))


def _built(image: Path, tree: Path) -> Path:
    words = [apptainer() / "apptainer", "--silent", "build", "--force", image, tree]
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return image


def make_python_image(image: Path) -> Path:
    """An image with this machine's Python and its standard library."""
    tree = make_tree(image.with_suffix(".tree"), "apple")
    program = Path(sys.base_prefix) / "bin" / "python3"
    _copy_program(program.resolve(), tree / "bin" / "python3")
    library = Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns(
        "site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__", "*.a"
    )
    shutil.copytree(library, tree / str(library).lstrip("/"), ignore=left_out)
    return _built(image, tree)


def counting_run(folder: Path, **keys: object) -> dict[str, object]:
    """A run of the command engine that counts to 200 in a new image, in segments of six seconds."""
    make_image(folder / "fruit.sif", "apple")
    (folder / "program.sh").write_text(COUNTING)
    settings = {
        "start": ["sh", "{base}/program.sh"],
        "files": ["state"],
        "saved_by": "rename",
        "progress_file": "state",
        "progress_pattern": r"(\d+)",
        "goal": 200,
        "exit_paused": [85],
        "stop_signal": "TERM",
        "outputs": {"rows.txt": "rows"},
    }
    times = {"segments": 9, "segment_minutes": 0.1, "save_minutes": 0.001}
    return {"engine": "command", **times, "settings": settings, "container": "fruit.sif", **keys}


def counted(folder: Path, attempt: int) -> int:
    """How far an attempt of the run `demo` at it is."""
    table = folder / f"results/demo/work/{attempt:06d}/program/rows.txt"
    return table.read_text().count("\n") if table.exists() else 0
