"""Images that a program under `dmtcp_launch` left, by hand, become a run's first checkpoint.

DMTCP knows open files, and its copies of files, by whole paths [DMTCP 4.2.0, src/plugin/ipc/file/fileconnection.cpp,
FileConnection::refreshPath and postRestart].  At a restart it opens, and cuts back, what lies under the old path, also
if the program is started in another folder.  So the old path must lead to the folder of the run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.by_contract import is_own
from unbroken.engines.dmtcp.command import LIVE
from unbroken.engines.dmtcp.files import save_files
from unbroken.engines.dmtcp.images import images_in, paths_in
from unbroken.engines.dmtcp.pace import SaveSeconds
from unbroken.engines.dmtcp.state import FILES, IMAGES, DmtcpState
from unbroken.engines.foreign import Foreign, Found, compared_inputs, confirm_steady, copy_steady, stamp
from unbroken.errors import CheckpointError, ConfigError
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import Run
from unbroken.system import fs

SLOT = "adopted"
UNIT = "seconds"
_SCRIPT = "dmtcp_restart_script*.sh"
_NAMED = re.compile(r'given_ckpt_files="([^"]*)"')
# Where no program of a user works, but libraries whose files may be called as his.
_SYSTEM = ("/usr/", "/lib", "/proc/", "/sys/", "/dev/", "/etc/")


@dataclass(frozen=True)
class Images:
    """One checkpoint of a program: an image for each process, DMTCP's copies of files beside them, when it was made."""

    paths: Sequence[Path]
    copies: Sequence[Path]  # folders
    saved_ns: int  # no later than the processes went on
    is_named: bool  # by DMTCP's restart script, which is written once all are whole


def adopted(run: Run, base: Path, foreign: Foreign, draft: Path) -> Found:
    """The images and all files of the folder in which the program ran."""
    folder = foreign.path
    if not folder.is_dir() or is_own(folder):
        what = "a checkpoint of unbroken, which only its own run goes on from" if folder.is_dir() else "a file"
        raise ConfigError([f"{run.name}: --from: found {folder}, {what}; allowed: the folder in which the program ran"])
    live = base.resolve() / RunFolder(run.name).root / LIVE
    images = _images_of(run, folder)
    names = [name.as_posix() for name in fs.tree_files(folder)]
    paths = [folder / name for name in names if not (folder / name).is_symlink()]
    before = [stamp(path) for path in paths]
    known, outside = _known_as(run, images, folder, names, live)
    copy_steady((path, draft / IMAGES / path.name) for path in images.paths)
    left_out = {*images.paths, *folder.rglob(_SCRIPT), *folder.rglob("ckpt_*.dmtcp*")}
    listing = save_files(folder, draft / FILES, left_out)
    confirm_steady(paths, before)
    DmtcpState(
        foreign.done or 0.0,
        listing,
        SaveSeconds(),
        {},
        str(live),
        SLOT,
        tuple(path.name for path in images.paths),
        known_as=tuple(known),
        copies=tuple(path.relative_to(folder).as_posix() for path in images.copies),
    ).write(draft)
    copied = [
        path for path in paths if path not in left_out and not any(each in path.parents for each in images.copies)
    ]
    checked, not_checked = _lines(run, base, foreign, images, copied, known, live)
    if outside:
        not_checked.append(f"{_few(outside)}: known to the program beside its folder; it goes on with what is there")
    lost = ("what it printed so far: output.txt begins here",)
    return Found(Handover(Progress(foreign.done or 0.0, None, UNIT)), tuple(checked), tuple(not_checked), lost)


def _lines(
    run: Run, base: Path, foreign: Foreign, images: Images, copied: Iterable[Path], known: Sequence[str], live: Path
) -> tuple[list[str], list[str]]:
    folder = foreign.path
    checked = [
        f"images, whole to their end marks: {', '.join(path.name for path in images.paths)}",
        f"their program knows {', '.join(known)}, which leads to the run's folder {live}",
    ]
    not_checked = ["by which release of DMTCP, and on which kind of processor, they were made"]
    if images.is_named:
        checked.append("DMTCP's restart script names the same images")
    else:
        not_checked.append("whether there is an image of each process: no restart script of DMTCP names them")
    later = sorted(path.relative_to(folder).as_posix() for path in copied if path.stat().st_mtime_ns > images.saved_ns)
    if later:
        not_checked.append(
            f"{_few(later)}: written on after the images; DMTCP cuts back what the program has open, and in another "
            "file stands twice what it writes again"
        )
    else:
        checked.append("no file was written after the images")
    same, others = compared_inputs(_words(run, "inputs"), base, folder)
    of, program = {_program_of(path) for path in images.paths}, _words(run, "command")[0]
    if {Path(program).name, Path(os.path.realpath(shutil.which(program) or program)).name} & of:
        checked.append(f"one of them is of {program}, as the command is")
    else:
        not_checked.append(f"whether they, of {', '.join(sorted(of))}, are of the run's command {program}")
    if foreign.done is None:
        not_checked.append(
            "how long it has worked: its seconds are counted from here (--done says how many were before)"
        )
    return [*checked, *same], [*not_checked, *others]


# --- the images ---


def _images_of(run: Run, folder: Path) -> Images:
    found = sorted({path.parent for path in folder.rglob("ckpt_*.dmtcp")})
    if not found:
        what = (
            "no ckpt_*.dmtcp in it; name the folder in which the program ran, and copy its images there if they are not"
        )
        raise CheckpointError(f"{run.name}: {folder}: {what}")
    if len(found) > 1:
        names = ", ".join(str(path) for path in found)
        raise ConfigError([f"{run.name}: {folder}: has images in {names}; leave those of one checkpoint there"])
    there = images_in(found[0])
    named = _named_by_script(folder, there)
    paths = there if named is None else named
    if missing := [path.name for path in paths if path not in there]:
        raise CheckpointError(
            f"{run.name}: {found[0]}: has no {missing[0]}, which DMTCP's restart script names; every process has one"
        )
    drafts = sorted(found[0].glob("ckpt_*.dmtcp.temp"))
    if drafts and len(paths) > 1:
        raise CheckpointError(
            f"{run.name}: {drafts[0]}: the program was being saved when it ended, or is now, and the images may be of "
            "two moments; wait, or restart it by hand and save it once more"
        )
    copies = [path for path in sorted(found[0].glob("ckpt_*_files")) if path.is_dir()]
    times = [path.stat().st_mtime_ns for path in (*paths, *(file for copy in copies for file in copy.iterdir()))]
    return Images(paths, copies, min(times), named is not None)


def _named_by_script(folder: Path, there: Sequence[Path]) -> list[Path] | None:
    """Those that the newest script of DMTCP names; None without one, or if it is older than an image that it names."""
    scripts = [path for path in folder.rglob(_SCRIPT) if not path.is_symlink()]
    newest = max(scripts, key=lambda path: path.stat().st_mtime_ns, default=None)
    match = _NAMED.search(newest.read_text(errors="replace")) if newest else None
    if newest is None or match is None:
        return None
    named = [there[0].parent / Path(word).name for word in match[1].split()]
    written = newest.stat().st_mtime_ns
    # gzip, which DMTCP starts, may write on when the image has its name and the script is there.
    is_older = any(path.exists() and path.stat().st_mtime_ns > written + 60 * 10**9 for path in named)
    return None if is_older or not named else sorted(named)


def _program_of(image: Path) -> str:
    """`ckpt_python3.11_98ff-40000-27aa368bcbfa.dmtcp`: the program's file, and who the process is."""
    return image.stem.removeprefix("ckpt_").rpartition("_")[0]


# --- the path under which it ran ---


def _known_as(run: Run, images: Images, folder: Path, names: Sequence[str], live: Path) -> tuple[list[str], list[str]]:
    """The folders that lead to the run's, in which the program knows files of these names; and such files elsewhere.

    ConfigError if a folder where it worked, or its images lay, does not lead there.  The images' own names are among
    those that they know, so this is found even of a program without an open file.
    """
    paths = set[str]()
    for image in images.paths:
        try:
            paths |= paths_in(image)
        except CheckpointError as error:
            raise CheckpointError(f"{run.name}: {error}") from error
    own = {f"/{image.relative_to(folder).as_posix()}" for image in images.paths}
    found, outside = list[str](), list[str]()
    for root, known in sorted(_roots(paths, names).items()):
        if os.path.realpath(root) == os.path.realpath(live):
            found.append(root)
        elif own & known or _is_same(root, folder) or (root in paths and not os.path.lexists(root)):
            confirm_leads_to(run.name, root, live, folder)
        elif root in paths:
            one = min(known).removeprefix("/")
            raise ConfigError(
                [
                    f"{run.name}: the images know {root}/{one}, and the program would go on with that, not with "
                    f"{folder / one}; take {one} out of one of the two folders"
                ]
            )
        else:
            outside += [f"{root}{name}" for name in sorted(known) if os.path.lexists(f"{root}{name}")]
    if not found:
        what = "its images know no file in it; name the folder in which they were made"
        raise CheckpointError(f"{run.name}: {folder}: {what}")
    return found, outside


def _roots(paths: Iterable[str], names: Iterable[str]) -> dict[str, set[str]]:
    """Each folder under which files of these names are known, and those, with a slash before them."""
    by_last_name: dict[str, list[str]] = {}
    for name in names:
        by_last_name.setdefault(name.rpartition("/")[2], []).append(f"/{name}")
    roots: dict[str, set[str]] = {}
    for path in paths:
        for name in by_last_name.get(path.rpartition("/")[2], ()):
            if path.endswith(name) and (root := path.removesuffix(name)) and not path.startswith(_SYSTEM):
                roots.setdefault(root, set()).add(name)
    return roots


def _is_same(root: str, folder: Path) -> bool:
    return os.path.realpath(root) == os.path.realpath(folder)


def confirm_leads_to(run: str, root: str, live: Path, folder: Path | None = None) -> None:
    """ConfigError with what to type if a path that images know is not that of the run's folder."""
    if os.path.realpath(root) == os.path.realpath(live):
        return
    link = f"ln -s {shlex.quote(str(live))} {shlex.quote(root)}"
    if not os.path.lexists(root):
        raise ConfigError([f"{run}: the images know {root}, which must lead to the run's folder; type: {link}"])
    aside = f"{root}.by-hand"
    is_it = folder is not None and _is_same(root, folder)
    then = f" && unbroken adopt {run} --from {shlex.quote(aside)}" if is_it else ""
    raise ConfigError(
        [
            f"{run}: the images know {root}, and DMTCP would write there; type: "
            f"mv {shlex.quote(root)} {shlex.quote(aside)} && {link}{then}"
        ]
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _words(run: Run, name: str) -> list[str]:
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []
