"""Say where the files of a run stand: the one map from names to paths, relative to the working directory."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass, field
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
# In a run's folder, what its program has written so far, once per run: as it continues, and where it restarted a file.
OUTPUT, PIECES = "output", "pieces"


def top_folder(called_in: Path) -> Path:
    """Return the folder that holds `.snakemake`, here or above; else the one where it was called."""
    here = called_in.absolute()
    return next((folder for folder in (here, *here.parents) if (folder / ".snakemake").is_dir()), here)


class RunFolder:
    """Map the files of a run in `results/<run>`; a run of `unbroken exec` has its `store`, with the logs too."""

    def __init__(self, name: str, base: Path = Path(), store: Path | None = None) -> None:
        self.name, self.base, self.store = name, base, store
        self.root = root = base / RESULTS / name if store is None else store
        self.checkpoints = root / "checkpoints"
        self.archive = root / "parts"  # of pruned checkpoints, each next to its passport
        self.segments = root / "segments"
        self.lease = root / "lease"
        self.work = root / "work"
        self.output = root / OUTPUT
        self.pieces = root / PIECES
        self.live = root / "live"
        self.final = root / "final"
        self.replaced = root / "replaced"  # what had to be moved and is not unbroken's
        self.history = root / "history.jsonl"
        self.accepted = root / "accepted.json"

    @property
    def own(self) -> tuple[Path, ...]:
        """Return the folders in which things are moved and removed: a link in the place of one is refused."""
        left = (self.root / "sick", self.root / "failed")
        inner = (self.output, self.pieces, self.replaced)
        return (self.work, self.checkpoints, self.archive, self.lease, self.segments, self.final, *left, *inner)

    def attempt(self, token: int) -> Path:
        """Return the folder of an attempt."""
        return self.work / f"{token:06d}"

    def record(self, segment: int) -> Path:
        """Return the record of a segment."""
        return self.segments / f"{segment:03d}.json"

    def log(self, segment: int) -> Path:
        """Return the log of a segment."""
        folder = self.base / LOGS / self.name if self.store is None else self.store / LOGS
        return folder / f"{segment:03d}.log"


@dataclass(frozen=True)
class RunOutput:
    """Describe an output as it belongs to a checkpoint; it lies outside of the checkpoint's folder.

    `name` is that in the program's folder.  The first `size_bytes` of the file are needed; a resumed program continues
    after `resume_bytes`.  `content` is equal for equal content, as far as that is known.  `piece` is the number of the
    checkpoint at which a segment began the file again; None for the file that the program continues.  `head` are first
    bytes that change while the file grows, as they were then.
    """

    name: str
    size_bytes: int
    resume_bytes: int = 0
    content: str = ""
    piece: int | None = None
    head: bytes = b""
    mtime_ns: int | None = None
    is_as_listed: Callable[[Path], bool] = field(default=Path.is_file, compare=False)

    @property
    def place(self) -> str:
        """Return where it lies below the run's folder."""
        return f"{OUTPUT}/{self.name}" if self.piece is None else piece_place(self.piece, self.name)

    def is_whole(self, path: Path) -> bool:
        """Return True if a plain file has what belongs to the checkpoint."""
        try:
            state = path.lstat()
            return stat.S_ISREG(state.st_mode) and state.st_size >= self.size_bytes and self.is_as_listed(path)
        except (FileNotFoundError, NotADirectoryError):
            return False


def piece_place(number: int, name: str) -> str:
    """Return where, below the run's folder, an output lies as it was at the checkpoint of that number."""
    return f"{PIECES}/{number:06d}/{name}"
