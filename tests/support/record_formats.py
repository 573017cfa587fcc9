"""Record runs in mid-life, as unbroken leaves them on disk: tests/recorded/formats.

    python tests/support/record_formats.py        # those that are not there yet
    python tests/support/record_formats.py toy    # this one again

Whoever changes the format of a file records them again.  Each is made in namespaces of its own (unshare, util-linux),
so that neither this machine's name nor its paths are in it; next to it lie the digests of what it comes to.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FORMATS = ROOT / "tests" / "recorded" / "formats"
RUN, HOST, USER = "count", "recorder", "recorder"
# Where the inside works, whatever the folder is called outside.
INSIDE = Path("/mnt")
# What is none of a run's state: Snakemake's own notes, logs with the paths of programs.
LEFT_OUT = re.compile(r"logs/|\.snakemake/(?!unbroken/)")

TOY = {"engine": "toy", "segments": 20, "segment_minutes": 0.001, "settings": {"goal": 5, "step_seconds": 0}}
COUNTER = """\
#!/bin/sh
# Integers from a linear congruential generator; goes on where done.txt says.
set -eu
goal=$1 stop=$2
trap '' TERM
n=0 x=1
if [ -e done.txt ]; then read -r n x <done.txt; fi
while [ "$n" -lt "$goal" ]; do
    n=$((n + 1))
    x=$(((x * 1103515245 + 12345) % 2147483648))
    echo "$n $x" >>numbers.txt
    echo "$n $x" >done.tmp
    mv done.tmp done.txt
    [ ! -e "$stop" ] || break
    sleep 0.02
done
[ "$n" -ge "$goal" ] || exit 85
"""
COUNT = {
    "engine": "command",
    "segments": 20,
    "segment_minutes": 0.02,
    "save_minutes": 0.005,
    "settings": {
        "start": ["sh", "numbers.sh", "{goal}", "{stop}"],
        "goal": 100,
        "goal_unit": "numbers",
        "inputs": ["numbers.sh"],
        "files": ["done.txt"],
        "saved_by": "rename",
        "progress_file": "done.txt",
        "progress_pattern": r"^(\d+) ",
        "outputs": {"numbers.txt": "rows"},
    },
}


@dataclass(frozen=True)
class Recording:
    """A run, and how many of its segments were done."""

    run: Mapping[str, Any]
    segments: int
    files: Mapping[str, str] = field(default_factory=dict)
    after: Callable[[Recorder], None] = lambda recorder: None


class Recorder:
    """Makes one recording, inside."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording, self.folder = recording, folder
        folder.mkdir()
        config = folder / "config" / "config.yaml"
        config.parent.mkdir()
        config.write_text(yaml.safe_dump({"runs": {RUN: dict(recording.run)}}, sort_keys=False))
        for name, text in recording.files.items():
            (folder / name).write_text(text)

    def python(self, *words: str) -> None:
        told = {"UNBROKEN_CONSOLE": "off", "UNBROKEN_REPORT": "off", "LOGNAME": USER, "HOME": str(INSIDE)}
        environment = {**os.environ, **told, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run([sys.executable, *words], cwd=self.folder, env=environment, check=True)

    def snakemake(self, *targets: str) -> None:
        self.python("-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", *targets)

    def record(self) -> None:
        """So many segments."""
        self.snakemake(f"results/{RUN}/segments/{self._recording.segments:03d}.json")
        self._recording.after(self)

    def finish(self) -> dict[str, str]:
        """All of it; the digests of its results."""
        self.snakemake()
        final = self.folder / "results" / RUN / "final"
        names = sorted(path.name for path in final.iterdir() if path.name != "summary.json")
        return {name: hashlib.sha256((final / name).read_bytes()).hexdigest() for name in names}


def write_spec(recorder: Recorder) -> None:
    """As a driver on Slurm leaves it for the next jobs, with a script of a path that is the same everywhere."""
    code = (
        "from pathlib import Path\n"
        "from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions\n"
        "from unbroken.plan.plan import Plan\n"
        "from unbroken.report.known import runs_of\n"
        "plan = Plan(tuple(runs_of(Path(), Path('config/config.yaml'), must_exist=True)))\n"
        f"found = plan.assignment({RUN!r})\n"
        "job = RuleJob('toy_segment', 'toy_segment.py', resources={'runtime': 1}, latency_seconds=1.0)\n"
        "queue = SubmitOptions(('-p', 'short'), 'python -m unbroken.job', 'logs', 100)\n"
        f"JobSpec({RUN!r}, found.run, found.keys, job, queue, found.run.segments, 2, '').write()\n"
    )
    path = recorder.folder / "write_spec.py"
    path.write_text(code)
    recorder.python(path.name)
    path.unlink()


RECORDINGS = {
    "toy": Recording(TOY, 3, after=write_spec),
    "command": Recording(COUNT, 2, files={"numbers.sh": COUNTER}),
}


def record(name: str) -> None:
    """One of them, outside: a folder, and the namespaces."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) / "work"
        work.mkdir()
        inside = f'hostname {HOST} && mount --bind {work} {INSIDE} && cd {INSIDE} && exec "$@"'
        words = [sys.executable, __file__, "--inside", name]
        subprocess.run(
            ["unshare", "--user", "--map-root-user", "--uts", "--mount", "sh", "-c", inside, "sh", *words], check=True
        )
        files = _kept(work / name)
        _refuse_paths(files, [temporary, str(ROOT), str(Path.home()), sys.prefix, f'"{platform.node()}"'])
        FORMATS.mkdir(exist_ok=True)
        (FORMATS / f"{name}.tar.gz").write_bytes(_archive(files))
        (FORMATS / f"{name}.json").write_bytes((work / "digests.json").read_bytes())
    print(f"{name}: {(FORMATS / f'{name}.tar.gz').stat().st_size} bytes, {len(files)} files")


def record_inside(name: str) -> None:
    """The same, where nothing says which machine it is."""
    assert platform.node() == HOST
    recording = RECORDINGS[name]
    digests = Recorder(recording, INSIDE / f"{name}-whole").finish()
    (INSIDE / "digests.json").write_text(json.dumps(digests, indent=2) + "\n")
    Recorder(recording, INSIDE / name).record()


def _kept(folder: Path) -> dict[str, Path]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in found.items() if not LEFT_OUT.match(name) and _is_kept(path)}


def _is_kept(path: Path) -> bool:
    """Return False for the links to inputs in the program's folder: each attempt makes them again."""
    return not os.readlink(path).startswith("/") if path.is_symlink() else path.is_file()


def _refuse_paths(files: Mapping[str, Path], ours: list[str]) -> None:
    """A path or a name of this machine in a recording ends it."""
    for name, path in files.items():
        text = os.readlink(path) if path.is_symlink() else path.read_text()
        if found := [word for word in ours if word in text]:
            sys.exit(f"{name}: has {found[0]} in it; nothing was recorded")


def _archive(files: Mapping[str, Path]) -> bytes:
    """The times of the files stay: Snakemake orders records by them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files.items():
            entry = tar.gettarinfo(path, name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if entry.isfile():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    return gzip.compress(packed.getvalue(), mtime=int(time.time()))


def main() -> None:
    """The recordings that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECORDINGS))
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        record_inside(given.inside)
        return
    for name in given.names or [name for name in RECORDINGS if not (FORMATS / f"{name}.tar.gz").exists()]:
        record(name)


if __name__ == "__main__":
    main()
