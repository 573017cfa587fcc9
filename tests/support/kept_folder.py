"""A run's folder with outputs, checkpoints and attempts, without a program: tests write the files themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path

from support.making import PASSPORT

from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.settings import Program
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import Workspace
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.system import copying, fs

# Names that begin with `state` are restart files.
_PROGRAM = Program(
    (),
    inputs=("input",),
    files=("**/state*",),
    finished_file="DONE",
    rewritten=("*.treefile",),
    continued=("*.samples",),
)
KINDS = FileKinds(_PROGRAM)


class KeptFolder:
    """One run: `attempt()` takes its folder, `save()` makes a checkpoint of it, `leave()` gives it back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "checkpoints")
        self.lines: list[str] = []
        self.token = self.sequence = 0
        self.origin: Checkpoint | None = None

    @property
    def folder(self) -> Path:
        """Where the program works."""
        return self.workspace.folder

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.root, self.root / "work" / f"{self.token:06d}" / "program")

    def take(self, origin: Checkpoint | None = None) -> OutputList:
        """Begin an attempt from a checkpoint."""
        self.token, self.origin = self.token + 1, origin
        (self.root / "work" / f"{self.token:06d}").mkdir(parents=True)
        return self.restore()

    def restore(self) -> OutputList:
        """Make the folder what it was at the checkpoint."""
        self.workspace.take()
        restored = self.workspace.restore(self.origin, read_outputs(self.origin), KINDS.is_output)
        self.tracker = self._tracker(restored)
        self.tracker.begin()
        return restored

    def again(self, origin: Checkpoint | None = None) -> OutputList:
        """End the attempt, and begin another one from a checkpoint."""
        self.leave()
        return self.take(origin)

    def leave(self) -> None:
        """End the attempt, whose program is gone."""
        self.workspace.give_back()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def append(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def save(
        self,
        lengths: Mapping[str, int] | None = None,
        opened: Iterable[str] = (),
        is_at_end: bool = False,
        is_finished: bool = False,
        has_saved_last: bool = False,
    ) -> Checkpoint:
        """Publish a checkpoint of the folder as it is; `lengths` belong to its state."""
        self.sequence += 1
        draft = self.root / "work" / f"draft-{self.sequence}"
        draft.mkdir(parents=True)
        for path in sorted(self.folder.rglob("state*")):
            if path.is_file() and not path.is_symlink():
                (draft / path.relative_to(self.folder)).parent.mkdir(parents=True, exist_ok=True)
                copying.copy_file(path, draft / path.relative_to(self.folder))
        (draft / "state").touch()
        end = ProgramEnd(is_finished=is_finished, has_saved_last=has_saved_last) if is_at_end else None
        self.tracker.list_into(draft, lengths, opened, end)
        passport = replace(PASSPORT, sequence=self.sequence, token=self.token)
        return self.store.publish(draft, passport, lambda: None)

    def files(self) -> dict[str, str]:
        """The content of all files in the program's folder; of a link, where it leads."""
        found = {}
        for name in fs.tree_files(self.folder):
            path = self.folder / name
            found[name.as_posix()] = f"-> {path.readlink()}" if path.is_symlink() else path.read_text(errors="replace")
        return found

    def _tracker(self, listed: OutputList) -> OutputTracker:
        sequence = self.origin.passport.sequence if self.origin else 0
        return OutputTracker(self.workspace, self.token, sequence, listed, copy(KINDS), KINDS.is_rewritten)
