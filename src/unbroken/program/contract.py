"""Exchange data with a child program: the contract, which any program can keep without importing us.

docs/contract.md is the user's description of it.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.store.own_folder import HeldFolder, confirm_own
from unbroken.store.progress import read_told
from unbroken.store.times import FILE_NAME as NOTE
from unbroken.system import fs

EXIT_FINISHED = 0
EXIT_PAUSED = 85  # HTCondor's convention for a job that checkpointed itself
READY = ".ready"
HANDOVER_FILE = "progress.json"
# What a checkpoint's folder of this name holds is what the user came for.
FINAL = "final"
# Of what is no verdict, so much is shown.
LONGEST_SHOWN = 200


def describe_exit(code: int | None) -> str:
    """Return `ended with exit code 1`, `was ended by SIGKILL` or the like."""
    if code is None:
        return "was not started"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@dataclass
class AttemptFolder:
    """The folder that a child works with: it saves there, writes its progress, and finds the request to stop."""

    root: Path
    save_inode: int | None = None  # of the save folder, as the attempt noted it
    # Held open by its maker, so that no other folder gets its inode.
    _save: HeldFolder | None = field(default=None, repr=False, compare=False)

    @property
    def save(self) -> Path:
        return self.root / "save"

    @property
    def progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def verdict(self) -> Path:
        """Return the file of what no exit code can say."""
        return self.root / "verdict.json"

    @property
    def live(self) -> Path:
        """Return the folder of files to look at during the run, which stay when the attempt folder is cleared."""
        return self.root.parents[1] / "live"

    @property
    def deadline(self) -> Path:
        return self.root / "deadline"

    @property
    def note(self) -> Path:
        """Return the file of the times so far, and what a successor must know, should this attempt be killed."""
        return self.root / NOTE

    def prepare(self) -> None:
        """Make the folders of a new attempt folder."""
        self.save.mkdir(parents=True)
        self._save = HeldFolder(self.save)

    def open_save(self) -> HeldFolder:
        """Return the save folder, without following a link; raise ForeignFolderError if something else replaced it."""
        if self._save is not None:
            self._save.confirm()
            return self._save
        found = HeldFolder(self.save)
        confirm_own(self.save, self.save_inode)
        return found

    def close(self) -> None:
        """Close the save folder."""
        if self._save is not None:
            self._save.close()

    def write_deadline(self, unix: float) -> None:
        """Write by when the program should be out, now; never half."""
        fs.write_atomic(self.deadline, f"{unix:.3f}\n")


# --- what no exit code can say: the checkpoint is bad, or continuing makes no sense ---


class Kind(Enum):
    """The words of the file."""

    BAD_CHECKPOINT = "bad_checkpoint"  # the one that it was given to resume from; the one before is taken
    HOPELESS = "hopeless"  # what it computes has gone wrong; trying again would bring the same


@dataclass(frozen=True)
class Verdict:
    """A verdict and, in one line, its reason."""

    kind: Kind
    message: str


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write the file, never half; of several processes (ranks) that do it the last one counts."""
    fs.write_atomic(path, json.dumps({"verdict": verdict.kind.value, "message": verdict.message}) + "\n")


def read_verdict(path: Path) -> Verdict | None:
    """Return the verdict in the file; None if there is none.  SegmentError says what is wrong with the file."""
    if not path.exists():
        return None
    allowed = " or ".join(f'"{kind.value}"' for kind in Kind)
    text = "a folder" if path.is_dir() else repr(path.read_text(errors="replace").strip()[:LONGEST_SHOWN])
    try:
        data = read_told(path)
        message = str(data["message"]).encode(errors="replace").decode()  # type: ignore[index]
        return Verdict(Kind(data["verdict"]), " ".join(message.split()))  # type: ignore[index]
    except (IsADirectoryError, ValueError, KeyError, TypeError) as error:
        raise SegmentError(
            f'the program left the verdict {text}, allowed: {{"verdict": {allowed}, "message": "why"}}'
        ) from error
