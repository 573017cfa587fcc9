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
from support.workdir import ROOT, Done, WorkDir, until

EXAMPLE = ROOT / "examples" / "interruptible"
RESULTS = ("digits.npz", "reads.fasta", "model.pt", "losses.csv", "contigs.fasta", "report.png")
EPOCHS, KMERS = 3, "9,11,15,21"
# A rest after each step that lasts longer than any test: whatever happens meanwhile, happens after a step.
FOR_EVER = 3600.0


class Interruptible:
    """The example in a folder; `pace` and other settings are those of its config.yaml."""

    def __init__(self, folder: Path) -> None:
        self.work = WorkDir(folder, folder / "Snakefile")
        self.settings: dict[str, object] = {"epochs": EPOCHS, "kmers": KMERS, "save_minutes": 0}
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("results", "ckpt", "assembly", ".*"))
        # A `python` that writes down what it is called with: the programs themselves are as they are in the example.
        (folder / "bin").mkdir()
        python = folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\necho "$*" >> {folder}/starts\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        self.work.added_environment["PATH"] = f"{python.parent}:{os.environ['PATH']}"
        self.configure()

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
        """How often a program was started."""
        path = self.work.root / "starts"
        return path.read_text().count(f"scripts/{program}.py") if path.exists() else 0

    def store(self, name: str) -> Path:
        return self.work.root / ".unbroken" / name

    def checkpoints(self, name: str) -> int:
        """How many were published; two of them stay."""
        numbers = [path.name.partition("_")[0] for path in self.store(name).glob("checkpoints/0*")]
        return max(map(int, numbers), default=0)

    def wait_for_checkpoint(self, name: str, number: int) -> None:
        until(lambda: self.checkpoints(name) >= number)

    def shell(self, line: str, folder: Path) -> subprocess.Popen[bytes]:
        """Starts a line in a folder, as another workflow engine would."""
        return subprocess.Popen(["bash", "-c", line], cwd=folder, env=self.work.environment(), stdin=subprocess.DEVNULL)

    def program(self, name: str) -> list[int]:
        """The processes of one of the example's programs."""
        return self._processes(lambda words: words[1:2] == [f"scripts/{name}.py"])

    def exec(self, name: str) -> list[int]:
        """The processes of `unbroken exec --name NAME`."""
        return self._processes(lambda words: words[2:5] == ["exec", "--name", name])

    def send(self, pids: list[int], number: signal.Signals) -> None:
        assert pids != []
        for pid in pids:
            os.kill(pid, number)

    def _processes(self, is_wanted: Callable[[list[str]], bool]) -> list[int]:
        found = []
        for pid in self.work.processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if is_wanted([os.fsdecode(word) for word in words]):
                    found.append(pid)
        return found
