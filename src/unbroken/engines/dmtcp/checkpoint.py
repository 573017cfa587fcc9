"""Make and read one checkpoint of this engine: images/, files/ and state.json; say on what machine it resumes.

DMTCP does not save files.  At a restart it truncates an open file to where the program was, fills a missing one with
NUL bytes up to there, and ignores those that were closed.  So all of the program's folder is saved next to the images.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unbroken.engines.dmtcp.programs import ENDED
from unbroken.errors import CheckpointError
from unbroken.system import copying

FILE_NAME = "state.json"
IMAGES, FILES = "images", "files"

# Before anything is measured: what a slow file server takes.
_FIRST_BYTES_PER_SECOND = 50e6
_SAFETY, _LEAST_SECONDS = 1.5, 0.5

# gzip at its quickest, on a slow core; measured figures are in docs/engines/dmtcp.md.
BYTES_PER_SECOND = 30e6
_GZIP, _BLOCK = b"\x1f\x8b", 1 << 20

# Libraries look once, at their start, which of these there are, and keep to that after a restart.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|bmi|f16c|aes|pclmul|vpclmul|sha|vaes|gfni|popcnt|abm|lzcnt|movbe|adx|amx|rdrand|rdseed|asimd|sve"
    r"|neon|crc32|atomics|i8mm|bf16).*"
)
_SWITCH = "settings.machine_may_differ: true"


@dataclass(frozen=True)
class Listing:
    """Describe what a checkpoint of plain files cannot hold: folders, links and modes."""

    folders: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DmtcpState:
    """Hold the content of `state.json`: how long the program has worked, and its folder and saves."""

    done_seconds: float
    listing: Listing
    saves: Sequence[tuple[int, float]]  # the last few: the bytes in memory and files before, and the seconds
    machine: Mapping[str, str]
    live: str  # the absolute path of the program's folder
    slot: str  # the folder that the images must lie in when they are brought back
    images: Sequence[str]  # one for each process

    def write(self, folder: Path) -> None:
        """Write it into the draft of a checkpoint."""
        (folder / FILE_NAME).write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_state(folder: Path) -> DmtcpState:
    """Read the state of a checkpoint; raise CheckpointError if it is not one of this engine."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text())
        slot, listing = Path(data["slot"]).name, Listing(**data["listing"])
        return DmtcpState(**{**data, "slot": slot, "listing": listing})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no state of this engine ({error!r})") from error


def seconds_to_allow(saves: Sequence[tuple[int, float]], size_bytes: int) -> float:
    """Return the time to allow for a save of this size, by the last saves: each with its bytes and its seconds.

    More bytes take longer; fewer do not take less.
    """
    times = [seconds * max(1.0, size_bytes / max(before, 1)) for before, seconds in saves]
    return _SAFETY * max(times, default=size_bytes / _FIRST_BYTES_PER_SECOND) + _LEAST_SECONDS


# --- files ---


def save_files(live: Path, target: Path) -> Listing:
    """Copy the folder's files with their times; the program must not run."""
    target.mkdir()
    folders, links, modes = [], {}, {}
    for path in walk(live):
        name = str(path.relative_to(live))
        if path.is_symlink():
            links[name] = os.readlink(path)
        elif path.is_dir():
            folders.append(name)
            (target / name).mkdir()
        elif path.is_file() and name != ENDED:
            modes[name] = path.stat().st_mode & 0o7777
            copying.copy_file(path, target / name)
    return Listing(folders, links, modes)


def put_back(source: Path, listing: Listing, live: Path) -> None:
    """Create the folder `live` as it was when the files were saved."""
    live.mkdir()
    for name in listing.folders:
        (live / name).mkdir()
    for name, mode in listing.modes.items():
        copying.copy_file(source / name, live / name)
        (live / name).chmod(mode)
    for name, target in listing.links.items():
        (live / name).symlink_to(target)


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below, a folder before its content; links are not followed."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from walk(path)


# --- images ---


def images_in(folder: Path) -> list[Path]:
    """Return the images of a checkpoint, one for each process."""
    return sorted(folder.glob("ckpt_*.dmtcp"))


def link_images(source: Path, target: Path) -> None:
    """Copy a folder of images without its symbolic links, each file by `copying.link_or_copy`."""
    shutil.copytree(source, target, ignore=_links, copy_function=copying.link_or_copy)


def _links(folder: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if os.path.islink(os.path.join(folder, name))}


def compress(folder: Path, left_seconds: float) -> int:
    """Compress the images that fit into the time left; return how many.  DMTCP reads gzip by itself."""
    done = 0
    for image in images_in(folder):
        seconds = image.stat().st_size / BYTES_PER_SECOND
        with image.open("rb") as source:
            if seconds > left_seconds or source.peek(2)[:2] == _GZIP:
                continue
            draft = image.with_suffix(".gz")
            with gzip.open(draft, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target, _BLOCK)
        os.replace(draft, image)
        left_seconds -= seconds
        done += 1
    return done


# --- the machine ---


def this_machine(dmtcp: str) -> dict[str, str]:
    """Return what a restarted program depends on: DMTCP's release, the C library's, the processor's features."""
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    return {"dmtcp": dmtcp, "glibc": glibc, "cpu_features": " ".join(sorted(cpu_features()))}


def mismatch(here: Mapping[str, str], origin: Mapping[str, str]) -> str:
    """Return why images from `origin` cannot resume here, and what to do, or "".  More features do no harm."""
    for name in ("dmtcp", "glibc"):
        if origin.get(name, here[name]) != here[name]:
            return (
                f"the images were made with {name} {origin[name]}, here is {here[name]}; ask for a node as before "
                f"(constraint), load the same release (modules), or try it at your own risk with {_SWITCH}"
            )
    missing = sorted(set(origin.get("cpu_features", "").split()) - set(here["cpu_features"].split()))
    if not missing:
        return ""
    return (
        f"the processor here lacks {', '.join(missing)}, which the program may have chosen to use when it was "
        "started; ask for a node as before (constraint), or start on the oldest kind of node; at your own risk: "
        f"{_SWITCH}"
    )


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction sets of this processor; empty if it does not list them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flag for flag in flags.split() if _INSTRUCTIONS.fullmatch(flag))
