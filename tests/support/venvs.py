"""Python environments for tests: real ones, with a package put into them as pip leaves one (pip takes seconds)."""

import shutil
import sys
import venv
from pathlib import Path


def make_venv(folder: Path, version: str) -> None:
    """A new environment with the package `fruit`."""
    venv.create(folder, symlinks=True)
    install(folder, version)


def install(folder: Path, version: str) -> None:
    """The package `fruit` of that version in the place of the one before."""
    place = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for old in place.glob("fruit-*.dist-info"):
        shutil.rmtree(old)
    info = place / f"fruit-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fruit\nVersion: {version}\n")
    (place / "fruit.py").write_text(f"__version__ = '{version}'\n")
