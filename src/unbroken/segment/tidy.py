"""What killed attempts left half done, and an attempt's own folder: removed, and never a reason to end work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import ForeignFolderError
from unbroken.runs import results as final
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.runs.store import Store
from unbroken.system import fs


@dataclass(frozen=True)
class Tidy:
    """Of one run, by whoever holds it with this token."""

    places: RunFolder
    store: Store
    token: int
    tell: Callable[[str], None]

    def make_folders(self) -> None:
        """Those of the run, without what killed attempts left half done in them."""
        with fs.storage_errors(self.places.root):
            self.places.work.mkdir(parents=True, exist_ok=True)
            self.places.checkpoints.mkdir(parents=True, exist_ok=True)
            self.places.segments.mkdir(parents=True, exist_ok=True)
        confirm_all_own(self.places.own)
        try:
            self._tell_removed(self.store.remove_leftovers() + final.remove_leftovers(self.places))
        except OSError as error:
            self._tell_not_removed(self.places.root, str(error))

    def remove_attempt_folders(self) -> None:
        """Those of killed attempts, once what was complete in them is saved."""
        left = []
        confirm_own(self.places.work)
        try:
            for attempt_folder in self.places.work.iterdir():
                if attempt_folder.name >= f"{self.token:06d}":
                    continue  # our own, or that of a successor, should we have slept here
                if why := fs.remove_tree(attempt_folder):
                    self._tell_not_removed(attempt_folder, why)
                else:
                    left.append(f"work/{attempt_folder.name}")
        except OSError as error:
            self._tell_not_removed(self.places.work, str(error))
        self._tell_removed(left)

    def remove_attempt_folder(self, root: Path) -> None:
        """The one that this attempt worked in."""
        try:
            confirm_own(root.parent)
        except (ForeignFolderError, OSError) as error:
            self._tell_not_removed(root, str(error))
            return
        if why := fs.remove_tree(root):
            self._tell_not_removed(root, why)

    def _tell_removed(self, left: list[str]) -> None:
        if left:
            self.tell(f"removed the unfinished files of a killed attempt: {', '.join(sorted(left))}")

    def _tell_not_removed(self, folder: Path, why: str) -> None:
        """Tidying up may fail; it never ends work."""
        self.tell(f"{folder}: not removed yet ({why}); nobody needs it, and a later segment tries again")
