"""Makes the drafts of checkpoints from what mdrun left: mdrun's own checkpoint and its pieces, of each simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.leaving import Leaving
from unbroken.engines.gromacs.others import OtherFile, write_others
from unbroken.engines.gromacs.parts import copy_state, move_state, own_names


@dataclass(frozen=True)
class Ended:
    """Hold how one simulation ended: the checkpoint that counts, and the one before it that is kept too."""

    leaving: Leaving
    cpt: Cpt
    earlier: Cpt | None


@dataclass(frozen=True)
class Drafts:
    """Make drafts of how the simulations of a run ended; `is_final`: their last step is done."""

    ended: Sequence[Ended]
    is_final: bool

    def move(self, newest: Path, earlier: Path) -> None:
        """Rename the files, so mdrun must be gone; the pieces go to the earlier draft where there is one."""
        for each in self.ended:
            _move(each, newest, earlier)

    def copy(self, draft: Path) -> None:
        """Copy the files as far as they count: mdrun may still live somewhere."""
        for each in self.ended:
            leaving, cpt, replica = each.leaving, each.cpt, each.leaving.replica
            others, counted = leaving.others(cpt), leaving.counted(cpt)
            copy_state(cpt, leaving.folder, draft, counted, is_final=self.is_final, replica=replica)
            write_others(others, leaving.folder, draft, are_state=leaving.are_state, replica=replica)


def _move(each: Ended, newest: Path, earlier: Path) -> None:
    leaving, folder, replica = each.leaving, each.leaving.folder, each.leaving.replica
    # All of it is counted before a piece is moved away.
    names, others, counted = own_names(each.cpt, folder), leaving.others(each.cpt), leaving.counted(each.cpt)
    before = list[OtherFile]()
    if each.earlier is not None:
        with_it = [name for name in own_names(each.earlier, folder) if not name.endswith(".gro")]
        before, counted_before = leaving.others(each.earlier), leaving.counted(each.earlier)
        move_state(each.earlier, folder, earlier, with_it, counted_before, replica=replica)
        write_others(before, folder, earlier, are_state=leaving.are_state, replica=replica)
        names = [name for name in names if name not in with_it]
    move_state(each.cpt, folder, newest, names, counted, replica=replica)
    write_others(others, folder, newest, before, are_state=leaving.are_state, replica=replica)
