"""A copy of examples/interruptible in a test's folder, with an account of each start of one of its programs."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import yaml
from support import gmx_systems
from support.workdir import ROOT, Done, WorkDir, until

EXAMPLE = ROOT / "examples" / "interruptible"
WATER = ("water.gro", "water.xtc") if gmx_systems.is_here() else ()
RESULTS = ("digits.npz", "reads.fasta", "model.pt", "losses.csv", "contigs.fasta", "report.png", *WATER)
EPOCHS, KMERS, STEPS = 3, "9,11,15,21", 30000
# A rest after each step that lasts longer than any test: whatever happens meanwhile, happens after a step.
FOR_EVER = 3600.0


class Interruptible:
    """The example in a folder; `pace` and other settings are those of its config.yaml."""

    def __init__(self, folder: Path) -> None:
        self.work = WorkDir(folder, folder / "Snakefile")
        self.settings: dict[str, object] = {"epochs": EPOCHS, "kmers": KMERS, "steps": STEPS, "save_minutes": 0}
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("results", "ckpt", "assembly", ".*"))
        (folder / "bin").mkdir()
        self._count_starts("python", sys.executable)
        if WATER:
            self._count_starts("gmx", str(shutil.which("gmx")))
        self.work.added_environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.configure()

    def _count_starts(self, name: str, program: str) -> None:
        """One that writes down what it is called with: the programs themselves are as they are in the example."""
        path = self.work.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho "$*" >> {self.work.root}/starts\nexec {shlex.quote(program)} "$@"\n')
        path.chmod(0o755)

    def configure(self, pace: float = 0, **settings: object) -> None:
        text = yaml.safe_dump({**self.settings, **settings, "pace": pace})
        (self.work.root / "config.yaml").write_text(text)

    def without_retries(self) -> None:
        """What the rule says counts more than an option of snakemake's."""
        text = self.work.snakefile.read_text()
        self.work.snakefile.write_text(text.replace("    retries: 20\n", ""))

    def snakemake(self, *words: str) -> Done:
        return self.work.snakemake("-c2", *words)

    def results(self) -> dict[str, bytes]:
        return {name: (self.work.root / "results" / name).read_bytes() for name in RESULTS}

    def starts(self, program: str) -> int:
        """How often a program was started; `simulate` is GROMACS."""
        path = self.work.root / "starts"
        words = "mdrun -s" if program == "simulate" else f"scripts/{program}.py"
        return path.read_text().count(words) if path.exists() else 0

    def store(self, name: str) -> Path:
        return self.work.root / ".unbroken" / name

    def checkpoints(self, name: str) -> int:
        """How many were published; two of them stay."""
        numbers = [path.name.partition("_")[0] for path in self.store(name).glob("checkpoints/0*")]
        return max(map(int, numbers), default=0)

    def wait_for_checkpoint(self, name: str, number: int) -> None:
        until(lambda: self.checkpoints(name) >= number)

    def wait_for_mdrun(self, start: int) -> None:
        """Until it has saved after this start; unbroken takes that when it has left."""

        def has_saved() -> bool:
            newest = max(self.store("simulate").glob("work/*"), key=lambda path: path.stat().st_mtime_ns, default=None)
            return self.starts("simulate") == start and newest is not None and (newest / "mdrun" / "md.cpt").exists()

        until(has_saved)

    def shell(self, line: str, folder: Path) -> subprocess.Popen[bytes]:
        """Starts a line in a folder, as another workflow engine would."""
        return subprocess.Popen(["bash", "-c", line], cwd=folder, env=self.work.environment(), stdin=subprocess.DEVNULL)

    def program(self, name: str) -> list[int]:
        """The processes of one of the example's programs."""
        if name == "simulate":
            return _processes(self.work, lambda words: words[1:3] == ["-quiet", "mdrun"])
        return _processes(self.work, lambda words: words[1:2] == [f"scripts/{name}.py"])

    def exec(self, name: str) -> list[int]:
        """The processes of `unbroken exec --name NAME`."""
        return exec_processes(self.work, name)

    def send(self, pids: list[int], number: signal.Signals) -> None:
        assert pids != []
        for pid in pids:
            os.kill(pid, number)


def exec_processes(work: WorkDir, name: str) -> list[int]:
    """The processes of `unbroken exec --name NAME` below a folder."""
    return _processes(work, lambda words: words[2:3] == ["exec"] and words[words.index("--name") + 1] == name)


def _processes(work: WorkDir, is_wanted: Callable[[list[str]], bool]) -> list[int]:
    found = []
    for pid in work.processes():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if is_wanted([os.fsdecode(word) for word in words]):
                found.append(pid)
    return found


def without_unbroken(folder: Path) -> dict[str, bytes]:
    """What the same workflow leaves without unbroken, in one piece."""
    plain = Interruptible(folder)
    fake = plain.work.root / "bin" / "unbroken"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    done = plain.snakemake()
    assert done.code == 0, done.text
    assert not (plain.work.root / ".unbroken").exists()
    return plain.results()
