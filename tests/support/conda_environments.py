"""Real conda environments for tests: rattler, the installer of pixi, puts packages into them that are made here."""

import asyncio
import importlib.util
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from support.needs import skip_or_fail

ACTIVATE = "etc/conda/activate.d/fruit.sh"


def make_package(channel: Path, version: str, files: Mapping[str, str], name: str = "fruit") -> None:
    """A package of the old format (.tar.bz2) in a channel that is a folder."""
    members = {
        "info/index.json": json.dumps(
            {
                "name": name, "version": version, "build": "h1_0", "build_number": 0, "depends": [],
                "arch": "x86_64", "platform": "linux", "subdir": "linux-64",
            }
        ),
        "info/paths.json": json.dumps(
            {"paths": [{"_path": path, "path_type": "hardlink"} for path in files], "paths_version": 1}
        ),
        "info/files": "".join(f"{path}\n" for path in files),
        **files,
    }  # fmt: skip
    (channel / "linux-64").mkdir(parents=True, exist_ok=True)
    with tarfile.open(channel / "linux-64" / f"{name}-{version}-h1_0.tar.bz2", "w:bz2") as archive:
        for path, text in members.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(text.encode()), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))


def install_packages(channel: Path, prefix: Path, *specs: str) -> None:
    """What `conda install` does: solves for the specs, and links the packages into the environment."""
    if importlib.util.find_spec("rattler") is None:
        skip_or_fail("missing: rattler (pip install py-rattler)")
    import rattler
    from rattler.index import index_fs

    async def work() -> None:
        await index_fs(channel, force=True)
        subdirs = [rattler.Subdir("linux-64"), rattler.Subdir("noarch")]
        gateway = rattler.Gateway(cache_dir=channel.parent / "cache")
        records = await rattler.solve([rattler.Channel(channel.as_uri())], list(specs), gateway, subdirs)
        await rattler.install(records, target_prefix=prefix, cache_dir=channel.parent / "packages")

    asyncio.run(work())
