"""Scripts of the bed on a cluster: as their users run them, and converted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.lab import Cluster
from support.workdir import BIN, ROOT, WorkDir

from unbroken.store.history import EndKind, History

PATIENCE_SECONDS = 600.0
SCRIPTS = ROOT / "tests" / "site_scripts"
# A job to which a signal is on its way is not `running`.
IN_QUEUE = "pending,configuring,running,signaling,suspended,stopped,completing,requeued,requeue_hold"
MODULES_INIT = "/usr/share/modules/init/bash"
MODULES = (
    *("cuda/10.2", "gcc/7.3.0", "openmpi/4.0.5", "gromacs/2020.3-gpu-mpi", "lammps", "miniconda3", "anaconda/3"),
    *("cuda/11.7", "cuda/12.4", "intel-compilers/2022.0.1", "impi/2021.5.0", "GROMACS/2021-fosscuda-2019b", "r/4.3"),
    *("mamba/latest", "QuantumESPRESSO/7.2"),
)


@dataclass
class Site:
    """A working directory on the cluster with modules, a scratch folder and the disk of a node.

    The script runs by itself in `alone`, and is converted in the folder above.
    """

    work: WorkDir
    cluster: Cluster

    @property
    def root(self) -> Path:
        return self.work.root

    @property
    def alone(self) -> Path:
        return self.root / "alone"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def make(self) -> Site:
        """Its folders and modules."""
        for name in MODULES:
            self.work.write(f"modulefiles/{name}", "#%Module\n")
        more = {"MODULEPATH": str(self.root / "modulefiles"), "SCRATCH": str(self.scratch)}
        more |= {"SLURM_TMPDIR": str(self.root / "disk"), "OMPI_MCA_mpi_yield_when_idle": "1"}
        self.work.added_environment = {**self.work.added_environment, **more}
        for name in ("scratch", "disk", "alone"):
            (self.root / name).mkdir()
        return self

    def put(self, stem: str, scaled: Mapping[str, str], **files: str) -> None:
        """The script, scaled down, and its files: once where it runs by itself, once where it is converted."""
        (path,) = SCRIPTS.rglob(f"{stem}.sh")
        text = path.read_text()
        for old, new in scaled.items():
            assert old in text, old
            text = text.replace(old, new.replace("@scratch@", str(self.scratch)))
        for name, content in {f"{stem}.sh": text, **files}.items():
            for folder in (self.root, self.alone):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    def program(self, name: str, text: str) -> Path:
        """A program below the scratch folder."""
        path = self.work.write(f"scratch/{name}", text)
        path.chmod(0o755)
        return path

    def module(self, name: str, folder: Path, within: str = "modulefiles") -> None:
        """A module that brings the programs of a folder."""
        self.work.write(f"{within}/{name}", f"#%Module\nprepend-path PATH {folder}\n")

    def first_mdrun_is_cut(self, gmx: str, steps: int) -> Path:
        """The folder of a gmx that ends the first piece of a converted run after so many steps, on any machine."""
        is_first = f'case "$*" in *mdrun*-cpi*) ;; *mdrun*-noappend*) set -- "$@" -nsteps {steps} ;; esac'
        return self.program(f"bin/{gmx}", f'#!/bin/sh\n{is_first}\nexec {shutil.which(gmx)} "$@"\n').parent

    def venv(self, name: str) -> None:
        """A Python environment with the packages of ours, in both folders."""
        ours = sysconfig.get_path("purelib")
        for folder in (self.root, self.alone):
            words = [sys.executable, "-m", "venv", "--without-pip", str(folder / name)]
            subprocess.run(words, check=True)
            (packages,) = (folder / name).glob("lib/python*/site-packages")
            (packages / "ours.pth").write_text(f"{ours}\n")

    # --- the script itself ---

    def by_itself(self, stem: str, *, is_submitter: bool = False, times: int = 1) -> Path:
        """Runs the script as its user does, until nothing of it is left in the queue."""
        for _ in range(times):
            self.submit(f"{stem}.sh", self.alone, is_submitter=is_submitter)
        self.until_idle()
        return self.alone

    def submit(self, name: str, folder: Path, *, is_submitter: bool = False) -> None:
        """Types what submits a script."""
        # A batch script is no login shell: where sites define `module` is their own matter.
        environment = {**self.work.environment(), "BASH_ENV": MODULES_INIT}
        environment["PATH"] = f"{environment['PATH']}:{BIN}"
        words = ["bash" if is_submitter else "sbatch", name]
        subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def until_idle(self) -> None:
        """Waits until nobody has a job."""
        self.cluster.wait_until(lambda: not self.cluster.jobs(IN_QUEUE), PATIENCE_SECONDS)

    # --- and what was made of it ---

    def converted(self, stem: str, minutes: float, **settings: str) -> None:
        """Converts the script to a config, adds settings, cuts the run into segments, and runs it to its end."""
        done = self.work.unbroken("convert", f"{stem}.sh")
        assert done.code == 0, done.text
        config = self.root / "config" / "config.yaml"
        lines = "".join(f"      {key}: {value}\n" for key, value in settings.items())
        text = config.read_text().replace("    settings:\n", f"    settings:\n{lines}")
        config.write_text(re.sub(r"segment_minutes: (\{.*?\}|\S+)", f"segment_minutes: {minutes}", text))
        made = self.work.start().wait(PATIENCE_SECONDS)
        assert made.code == 0, made.text

    def with_exec(self, stem: str, minutes: float, options: str = "", elsewhere: tuple[str, str] = ("", "")) -> Path:
        """Converts the script to one with `unbroken exec`, adds options of it, and runs it until no job is left.

        Returns the folder, in which its results are.
        """
        done = self.work.unbroken("convert", f"{stem}.sh")
        assert done.code == 0, done.text
        (script,) = self.root.glob("*.unbroken.*")
        text = script.read_text().replace("unbroken exec ", f"unbroken exec --minutes {minutes} {options} ")
        script.write_text(text.replace(*elsewhere) if elsewhere[0] else text)
        is_submitter = not script.name.startswith(stem)
        if is_submitter:
            submitter = self.root / f"{stem}.sh"
            submitter.write_text(submitter.read_text().replace(script.name.replace(".unbroken", ""), script.name))
        self.submit(f"{stem}.sh" if is_submitter else script.name, self.root, is_submitter=is_submitter)
        self.until_idle()
        return self.root

    def pauses(self, run: str) -> int:
        """How many segments ended before the goal and left a checkpoint; the run has reached it in the end."""
        called = self.root / ".unbroken" / run / "history.jsonl"
        attempts = History(called).attempts() if called.exists() else self.work.history(run)
        outcomes = [attempt.kind for attempt in attempts]
        assert outcomes[-1] is EndKind.FINISHED
        return outcomes.count(EndKind.PAUSED)

    def final(self, run: str) -> Path:
        """The results of a run."""
        return self.work.places(run).final
