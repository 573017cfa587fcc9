"""Where the files of a run stand: the one map from names to paths, relative to the working directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RESULTS = Path("results")
LOGS = Path("logs")
# What a start of snakemake notes about runs, outside of their folders.
NOTES = Path(".snakemake/unbroken")
# Below it, a folder for each run that was sent to Slurm: what its jobs need to know, and which were submitted.
CHAINS = NOTES / "chains"
# Below it, what jobs with `unbroken exec` in them note of themselves.
EXEC_NOTES = NOTES / "exec"
# The runs of `unbroken exec`, each in a folder of its name.
STORES = Path(".unbroken")
# What unbroken put into `final/` of a run, in its folder.
FILES_NOTE = "final_files.json"
# Where the Slurm plugin puts Slurm's logs.
SLURM_LOGS = Path(".snakemake/slurm_logs")


def top_folder(called_in: Path) -> Path:
    """The folder that holds `.snakemake`, here or above; else the one where it was called."""
    here = called_in.absolute()
    return next((folder for folder in (here, *here.parents) if (folder / ".snakemake").is_dir()), here)


@dataclass(frozen=True)
class RunFolder:
    """`results/<run>` and what is in it; of a run of `unbroken exec` its `store`, which has the logs too."""

    name: str
    base: Path = Path()
    store: Path | None = None

    @property
    def root(self) -> Path:
        return self.base / RESULTS / self.name if self.store is None else self.store

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def archive(self) -> Path:
        """Where the parts of pruned checkpoints lie, each beside its passport."""
        return self.root / "parts"

    @property
    def segments(self) -> Path:
        return self.root / "segments"

    @property
    def lease(self) -> Path:
        return self.root / "lease"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def final(self) -> Path:
        return self.root / "final"

    @property
    def final_files(self) -> Path:
        """Return where it stands what unbroken put into `final/`, to see what the user has changed."""
        return self.root / FILES_NOTE

    @property
    def replaced(self) -> Path:
        """Return the folder for what had to make room and is not unbroken's."""
        return self.root / "replaced"

    @property
    def live(self) -> Path:
        return self.root / "live"

    @property
    def output(self) -> Path:
        """The program's folder between two attempts, with all that it has written."""
        return self.root / "output"

    @property
    def history(self) -> Path:
        return self.root / "history.jsonl"

    @property
    def accepted(self) -> Path:
        return self.root / "accepted.json"

    @property
    def own(self) -> tuple[Path, ...]:
        """The folders in which things are moved and removed: a link in the place of one is refused."""
        others = (self.root / name for name in ("sick", "failed", "output", "pieces", "replaced"))
        return (self.work, self.checkpoints, self.archive, self.lease, self.segments, self.final, *others)

    def record(self, segment: int) -> Path:
        return self.segments / f"{segment:03d}.json"

    def log(self, segment: int) -> Path:
        folder = self.base / LOGS / self.name if self.store is None else self.store / LOGS
        return folder / f"{segment:03d}.log"
