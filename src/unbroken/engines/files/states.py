"""Find the restart files in a program's folder that belong together and are complete, and copy them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from pathlib import Path

from unbroken.engines.files.databases import (
    LOG,
    await_tick,
    copy_database,
    has_journal,
    is_beside,
    is_committed,
    is_database,
)
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.errors import CheckpointError
from unbroken.program.contract import READY
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.system import copying, fs
from unbroken.system.digests import digest_file

# Names of what lies elsewhere: what the program has printed, and the folder that it saves in by the contract.  No file
# of the user has such a name.
ELSEWHERE = "\0"
PRINTED, SAVE = f"{ELSEWHERE}stdout", f"{ELSEWHERE}save"
# Longer than the clock of files rests, and than a program that is at it between two writes.
TICKS_SECONDS = 0.25
_IN_GLOB = re.compile(r"\{progress\}|\*\*/?|\*|\?|\[!?\]?[^]]*\]|.", re.DOTALL)
# Such as 5000, 0.05 or 1e-3.
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_MEANING = {"{progress}": _NUMBER, "**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
# A glob that begins so leaves out what it means.
NOT = "!"
# So many files of a state are held open while they are copied: a process may have 1024 open.
MOST_OPEN = 64
# In a checkpoint: its results, and the list of the output files that belong to it.
FINAL, LISTED = "final", "unbroken-output"
# Inode, size and time of change: what differs if a file was written again.
Stamp = tuple[int, int, int]


# --- which files ---


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return a regular expression for the names that a glob means; `{progress}` is a number."""
    return re.compile("".join(_expression(part[0]) for part in _IN_GLOB.finditer(glob)))


def _expression(part: str) -> str:
    """Return the regular expression of a part of a glob; one of several characters is never a slash."""
    if len(part) > 1 and part.startswith("["):
        return f"(?!/){translate(part)[4:-3]}"  # without what is around it for a whole name: (?s:...)\Z
    return _MEANING.get(part, re.escape(part))


def matches(globs: Sequence[str], name: str) -> bool:
    """Return True for a name that one of the globs means, and none that begins with `!`."""
    return any(glob_pattern(glob).fullmatch(name) for glob in globs) and not is_left_out(globs, name)


def is_left_out(globs: Sequence[str], name: str) -> bool:
    """Return True for a name that a glob with a `!` before it means."""
    return any(glob.startswith(NOT) and glob_pattern(glob[1:]).fullmatch(name) for glob in globs)


def may_hold(folder: str, pattern: str) -> bool:
    """Return True if files below the folder may match: a folder that matches includes everything in it."""
    if pattern.startswith(NOT):
        return False
    globs = Path(os.path.normpath(pattern.replace("{progress}", "*"))).parts
    for part, wanted in zip(Path(folder).parts, globs, strict=False):
        if wanted == "**":
            return True
        if not fnmatchcase(part, wanted):
            return False
    return True


def is_progress_file_kept(program: Program) -> bool:
    """Return True if the file that says how far it is is one of the restart files."""
    return program.progress_file in program.files or matches(program.files, program.progress_file)


def matching(folder: Path, globs: Sequence[str]) -> list[str]:
    """Return the plain files below a folder that match one of the globs."""
    return [name for name in plain_files(folder) if matches(globs, name)]


def plain_files(folder: Path) -> list[str]:
    """Return the names of all files below that are no links: the inputs are links."""
    return [name.as_posix() for name in fs.tree_files(folder) if not (folder / name).is_symlink()]


def is_handed_over(name: str) -> bool:
    """Return True for the name of a state that a program has handed over by the contract."""
    return name.startswith(f"{SAVE}/") and name.endswith(READY)


def restart_files(checkpoint: Checkpoint) -> list[str]:
    """Return the names of a checkpoint's restart files: neither outputs, pieces of tables, nor results."""
    return [name for name in checkpoint.passport.files if name.split("/")[0] not in (PARTS, FINAL, LISTED)]


# --- which belong together ---


@dataclass(frozen=True)
class RestartState:
    """Hold restart files that belong together, by their names in the program's folder; the names contain `number`."""

    folder: Path
    files: tuple[str, ...]
    number: str = ""
    numbered: tuple[str, ...] = ()  # those whose own names have the number
    # How its files were when they were found complete: the program may begin to write them again at any moment.
    complete_stamps: Mapping[str, Stamp] | None = None
    # A marker of the very same time as a file may be that of the save before: the clock of files goes by ticks, of 4 ms
    # and more on a busy machine.  Then the file is being written again just now.
    is_in_doubt: bool = False

    @property
    def stamps(self) -> dict[str, Stamp]:
        """Return how its files are now; those that are gone are left out."""
        return {name: stamp for name in self.files if (stamp := state_stamp_of(self.folder / name)) is not None}


def states_in(folder: Path, globs: Sequence[str]) -> list[RestartState]:
    """Return the states below a folder, each with a file for every glob; the furthest first."""
    names = matching(folder, globs) if folder.is_dir() else []
    plain = [name for name in names if not is_beside(name, lambda each: is_database(folder / each))]
    return states_of(folder, plain, globs, needed=globs)


def states_of(folder: Path, names: Iterable[str], globs: Sequence[str], needed: Collection[str]) -> list[RestartState]:
    """Return the states that these files are, the furthest first; one if the globs have no number.

    To a state belong the files of one number, and all without one.  It has a file for each glob that is `needed`.
    """
    found: dict[str, list[str]] = {"": []}
    met: dict[str, set[str]] = {"": set()}
    for name in names:
        glob, number = glob_of(name, globs)
        found.setdefault(number, []).append(name)
        met.setdefault(number, set()).add(glob)
    needed = {glob for glob in needed if not glob.startswith(NOT)}
    common, is_numbered = found[""], any("{progress}" in glob for glob in globs)
    numbers = sorted(found.keys() - {""}, key=float, reverse=True) if is_numbered else [""]
    return [
        RestartState(folder, tuple(sorted({*found[number], *common})), number, tuple(found[number] if number else ()))
        for number in numbers
        if met[number] | met[""] >= needed and (found[number] or common)
    ]


def glob_of(name: str, globs: Sequence[str]) -> tuple[str, str]:
    """Return the glob that means a file, or a folder that it is in, and the number in it; two empty texts if none."""
    paths = (name, *map(str, Path(name).parents))[:-1]
    if is_left_out(globs, name):
        return "", ""
    hits = ((glob, hit) for path in paths for glob in globs if (hit := glob_pattern(glob).fullmatch(path)))
    glob, hit = next(hits, ("", None))
    return glob, hit[1] if hit is not None and hit.re.groups else ""


def complete_states(states: Iterable[RestartState], program: Program) -> Iterator[RestartState]:
    """Yield those that are complete by the program's own word while it runs, or was killed; the furthest first."""
    for position, state in enumerate(states):
        stamps = state.stamps
        if program.saved_by is SavedBy.NEXT and position > 0:
            yield replace(state, complete_stamps=stamps)
        elif program.saved_by is SavedBy.MARKER and len(stamps) == len(state.files):
            marked = stamp_of(state.folder / program.saved_marker.replace("{progress}", state.number))
            written_ns = max(stamp[2] for stamp in stamps.values())
            if marked is not None and marked[2] >= written_ns:  # files that are written again are younger
                yield replace(state, complete_stamps=stamps, is_in_doubt=marked[2] == written_ns)


# --- copies ---


def copied(state: RestartState, draft: Path) -> bool:
    """Copy the files of a state to a new folder; return False, without a folder, if they changed.

    A change counts from the moment at which the files were found complete.
    """
    before = state.stamps if state.complete_stamps is None else state.complete_stamps
    if state.is_in_doubt:
        time.sleep(TICKS_SECONDS)
    if len(before) == len(state.files) and are_copied(state.folder, before, {name: draft / name for name in before}):
        return True
    fs.remove_tree(draft)
    return False


def are_copied(folder: Path, stamps: Mapping[str, Stamp], targets: Mapping[str, Path]) -> bool:
    """Copy files that must be as `stamps` say, each to its target; return False if one of them was changed.

    Of a database with a journal all that is committed is copied.
    """
    databases = {name: stamp for name, stamp in stamps.items() if has_journal(folder / name)}
    plain = {name: stamp for name, stamp in stamps.items() if name not in databases}
    await_tick(newest_ns({name: stamp for name, stamp in plain.items() if is_database(folder / name)}))
    for name in stamps:
        targets[name].parent.mkdir(parents=True, exist_ok=True)
    for name, stamp in databases.items():
        path = folder / name
        is_between = state_stamp_of(path) == stamp and is_committed(path)  # two transactions, at this moment
        if not (is_between and copy_database(path, targets[name]) and state_stamp_of(path) == stamp):
            return False
    return _are_plain_copied(folder, plain, targets)


def _are_plain_copied(folder: Path, stamps: Mapping[str, Stamp], targets: Mapping[str, Path]) -> bool:
    """Copy plain files; up to 64 are opened first, and compared: a program may replace them while they are copied."""
    with ExitStack() as stack:
        opened: dict[str, int] = {}
        try:
            for name in stamps if len(stamps) <= MOST_OPEN else ():
                opened[name] = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, opened[name])
            if any(stamp_of(folder / name) != stamp for name, stamp in stamps.items()):
                return False
            for name in stamps:
                if name in opened:
                    copying.copy_open_file(folder / name, opened[name], targets[name])
                else:
                    copying.copy_file(folder / name, targets[name])
        except FileNotFoundError:
            return False
        seen = {name: stamp_in(os.fstat(descriptor)) for name, descriptor in opened.items()}
        return all((seen.get(name) or stamp_of(folder / name)) == stamp for name, stamp in stamps.items())


def linked(state: RestartState, draft: Path) -> None:
    """Make the same folder by hard links, of a program that is gone; copies where links are not possible.

    The program's folder stays as it is, so that a successor finds all of it if this process dies now.
    Raise CheckpointError if a process still writes to a database of it.
    """
    for name in state.files:
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        if not has_journal(state.folder / name):
            copying.link_or_copy(state.folder / name, draft / name)
        elif not copy_database(state.folder / name, draft / name):
            raise CheckpointError(f"{state.folder / name}: the program has left, and its database cannot be read")


# --- how a file is ---


def stamp_of(path: Path) -> Stamp | None:
    """Return inode, size and time of change; None if the file is not there."""
    try:
        return stamp_in(path.stat())
    except OSError:
        return None


def state_stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a state file; of a database with a write-ahead log, where commits go, that of both."""
    stamp, log = stamp_of(path), stamp_of(path.with_name(f"{path.name}{LOG}"))
    if stamp is None or log is None or not is_database(path):
        return stamp
    return stamp[0], stamp[1] + log[1], max(stamp[2], log[2])


def is_as_in(origin: Checkpoint, name: str, path: Path) -> bool:
    """Return True if a plain file has the bytes that the checkpoint has under that name."""
    entry = origin.passport.files.get(name)
    if entry is None or path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size_bytes:
        return False
    return digest_file(path, origin.passport.algorithm) == entry.digest


def plain_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a state file; None for what is no plain file: no link is followed."""
    return None if path.is_symlink() or not path.is_file() else state_stamp_of(path)


def newest_ns(stamps: Mapping[str, Stamp]) -> int:
    """Return when the last of the files was changed, in nanoseconds; 0 if there are none."""
    return max((stamp[2] for stamp in stamps.values()), default=0)


def stamp_in(found: os.stat_result) -> Stamp:
    """Return the stamp of a file that was looked at."""
    return found.st_ino, found.st_size, found.st_mtime_ns
