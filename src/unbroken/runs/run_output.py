"""Files that belong to a checkpoint and lie outside of it, once per run: what its program has written so far."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.runs.checkpoint import Checkpoint

OUTPUT, PIECES = "output", "pieces"


@dataclass(frozen=True)
class RunOutput:
    """An output as it belongs to a checkpoint.

    `name` is that in the program's folder.  The first `size_bytes` of the file are needed; a resumed program goes on
    behind `resume_bytes`.  `content` is equal for equal content, as far as that is known.  `piece` is the number of the
    checkpoint at which a segment began the file again; None if it is the one that the program goes on with.  `head` are
    first bytes that change while the file grows, as they were then.
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


# What an engine knows of a checkpoint.
OutputsOf = Callable[[Checkpoint], Sequence[RunOutput]]


@dataclass(frozen=True)
class OutputPlace:
    """The outputs of a run below `root`; while its program works, in one of the folders that `working` returns."""

    root: Path
    working: Callable[[], Iterable[Path]] = tuple

    def find(self, output: RunOutput) -> Path | None:
        """Return where an output lies as it belongs to its checkpoint; None if it does not."""
        return next((path for path in self._candidates(output) if output.is_whole(path)), None)

    def lacking(self, outputs: Iterable[RunOutput]) -> list[str]:
        """Return the names of those that are not there."""
        return [output.name for output in outputs if self.find(output) is None]

    def _candidates(self, output: RunOutput) -> Iterator[Path]:
        yield self.root / output.place
        if output.piece is None:
            yield from (folder / output.name for folder in self.working())
            pieces = sorted((self.root / PIECES).glob("[0-9]*"), reverse=True)
            yield from (folder / output.name for folder in pieces)


def piece_place(number: int, name: str) -> str:
    """Return where, below the run's folder, an output lies as it was at the checkpoint of that number."""
    return f"{PIECES}/{number:06d}/{name}"
