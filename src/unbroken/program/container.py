"""An image of Apptainer (or Singularity, its elder name): how a program enters it, and which one it is."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.errors import Mistake, OutageError, SegmentError
from unbroken.program import process
from unbroken.store.layout import NOTES, RunFolder, parse_json
from unbroken.store.run import RunSpec
from unbroken.system import fs
from unbroken.system.digests import sha256_of

IMAGES = NOTES / "images"
# What each image that was read looked like, and its digest: an image of 10 GB takes half a minute to read.
_KNOWN = "digests.json"
_REFERENCE = re.compile(r"(docker|oras|library|shub|https?)://\S+")
# What a registry calls an image, such as ubuntu:24.04 or ghcr.io/me/tool.
_NAMED = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)*(:[A-Za-z0-9._-]+)?")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")
_RUNTIMES = ("apptainer", "singularity")
PULL_SECONDS = 3600.0
ANSWER_SECONDS = 60.0
# They would remove what the program receives in its environment, or hide it from our signals.
REFUSED = {"-e", "--cleanenv", "-C", "--containall", "-p", "--pid"}


def is_reference(image: str) -> bool:
    """Return True for what is to be fetched, such as docker://ubuntu:24.04; false for a path."""
    return _REFERENCE.fullmatch(image) is not None


def runtime() -> str:
    """Return the program that enters images; the name of the usual one if none is found here: a module may bring it."""
    return next((name for name in _RUNTIMES if shutil.which(name)), _RUNTIMES[0])


def image_of(image: str, base: Path) -> Path:
    """Return where the image lies; one that is fetched has a place of its own, the same for all runs of the folder."""
    if is_reference(image):
        short = hashlib.sha256(image.encode()).hexdigest()[:8]
        return Path(os.path.abspath(base / IMAGES / f"{_OTHERS.sub('-', image)}-{short}.sif"))
    return Path(os.path.abspath(base / Path(image).expanduser()))


def inside(command: Sequence[str], run: RunSpec, base: Path, folders: Sequence[Path]) -> list[str]:
    """Return the command in the run's image, which sees the working directory, the run's own folder, and `folders`."""
    if run.environment.container is None:
        return list(command)
    words = [runtime(), "exec"]
    if run.resources.gpus:
        words.append("--rocm" if Path("/dev/kfd").exists() else "--nv")
    for folder in _seen(run, base, folders):
        words += ["--bind", str(folder)]
    return [*words, *run.environment.container_options, str(image_of(run.environment.container, base)), *command]


def _seen(run: RunSpec, base: Path, folders: Sequence[Path]) -> list[Path]:
    """Return what must be there inside as it is outside, without what lies in another one of them."""
    wanted = [base.resolve(), RunFolder(run.name, base).root.resolve(), *folders]
    if temporary := os.environ.get("TMPDIR"):
        wanted.append(Path(temporary))
    there = list(dict.fromkeys(folder for folder in wanted if folder.is_dir() and folder != Path("/")))
    return [folder for folder in there if not any(other in folder.parents for other in there)]


def fetch(run: RunSpec, base: Path) -> None:
    """Fetch the image of a run that names a reference, once for its folder: what a tag means may change meanwhile.

    Raise OutageError if it cannot be had now.
    """
    if run.environment.container is None or not is_reference(run.environment.container):
        return
    path = image_of(run.environment.container, base)
    if path.exists():
        return
    with fs.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _turn(path.with_suffix(".lock")):
        if not path.exists():
            _pull(run, run.environment.container, path)


@contextlib.contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Let one after the other fetch, as far as the file system has locks: a hundred runs must not fetch at once.

    Nothing depends on it.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            fcntl.flock(held.enter_context(lock.open("w")), fcntl.LOCK_EX)
        yield


def _pull(run: RunSpec, reference: str, path: Path) -> None:
    draft = path.with_name(fs.unique_name("image"))
    words = process.entered([runtime(), "pull", str(draft), reference], run.environment.modules, ())
    try:
        answer = process.ask(words, seconds=PULL_SECONDS)
        if answer.code != 0 or not draft.exists():
            said = next((line for line in reversed(answer.lines) if line.strip()), "it said nothing")
            pull = f"{runtime()} pull {reference}"
            raise OutageError(f"runs.{run.name}.container: {pull}: exit code {answer.code}: {said.strip()}")
        with contextlib.suppress(FileExistsError):  # another run was faster
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def mistakes(run: RunSpec, base: Path) -> Iterator[tuple[str, Mistake]]:
    """Yield what is wrong with the image that the run names, or with its options."""
    image = str(run.environment.container)
    path = image_of(image, base)
    if is_reference(image):
        pass
    elif not path.exists():
        hint = f"to fetch it, type docker://{image}" if _is_named(image) else f"looked in {path.parent}"
        yield "container", Mistake(f"found '{image}', but there is no such file", todo=hint, is_absent=True)
    elif not path.is_dir() and not _is_image(path):
        allowed = "a .sif file, or a folder as image"
        yield "container", Mistake(f"found '{image}', which is no image of Apptainer", allowed)
    if words := [word for word in run.environment.container_options if word in REFUSED]:
        why = "the program would not hear what unbroken tells it"
        yield "container_options", Mistake(f"found {words[0]}, with which {why}", todo="leave it out")


def _is_named(image: str) -> bool:
    """Return True for the name of an image in a registry, which is never the name of a file."""
    return _NAMED.fullmatch(image) is not None and not image.endswith((".sif", ".simg", ".img"))


def _is_image(path: Path) -> bool:
    """Return True for a SIF (by what follows its first line), a squashfs (by its beginning), or an ext3."""
    with path.open("rb") as file:
        head = file.read(2048)
    return b"SIF_MAGIC" in head[:64] or head.startswith(b"hsqs") or head[1080:1082] == b"\x53\xef"


def described(image: str, base: Path) -> dict[str, object]:
    """Return what the run calls the image, and its digest; raise OSError if it cannot be read."""
    path = image_of(image, base)
    return {"path": image, "digest": _of_tree(path) if path.is_dir() else _of_file(path, base)}


def runtime_version(run: RunSpec) -> str:
    """Return the version of what enters images; empty if it does not say."""
    with contextlib.suppress(SegmentError):
        answer = process.ask(
            process.entered([runtime(), "--version"], run.environment.modules, ()), seconds=ANSWER_SECONDS
        )
        if answer.code == 0 and answer.lines:
            return answer.lines[-1].replace(" version", "")
    return ""


def _of_file(path: Path, base: Path) -> str:
    """Return a file's digest, read again only if size, time or inode have changed since any job read it."""
    state = path.stat()
    look = [state.st_size, state.st_mtime_ns, state.st_ino]
    known = _known(base / IMAGES / _KNOWN)
    entry = known.get(str(path))
    if isinstance(entry, dict) and entry.get("look") == look:
        return str(entry["digest"])
    digest = f"sha256:{sha256_of(path)}"
    with contextlib.suppress(OSError):
        (base / IMAGES).mkdir(parents=True, exist_ok=True)
        note = {**known, str(path): {"look": look, "digest": digest}}
        fs.write_atomic(base / IMAGES / _KNOWN, json.dumps(note, indent=2) + "\n")
    return digest


def _known(path: Path) -> dict[str, object]:
    try:
        data = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _of_tree(root: Path) -> str:
    """Return the digest of an image that is a folder, by names, sizes and times: it may hold 100,000 files."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            state = os.lstat(path)
            line = f"{os.path.relpath(path, root)}\0{state.st_size}\0{state.st_mtime_ns}\n"
            digest.update(line.encode(errors="surrogateescape"))
    return f"sha256:{digest.hexdigest()}"
