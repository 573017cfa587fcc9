"""A Python environment of `venv` or virtualenv: how a program enters it, and what is installed in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

CONFIG = "pyvenv.cfg"
# As the environment's own `activate` does it; the words of the command stay arguments, and the process stays the same.
_ACTIVATE = 'VIRTUAL_ENV=$1 PATH=$1/bin:$PATH; export VIRTUAL_ENV PATH; unset PYTHONHOME; shift; exec "$@"'
_SEPARATORS = re.compile(r"[-_.]+")
# Where Debian's Python has its packages, in place of the usual folder.
_DEBIAN = ("lib/python3/dist-packages", "local/lib/python{version}/dist-packages")


def activated(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command inside the environment."""
    return ["sh", "-c", _ACTIVATE, "unbroken", str(folder), *command]


def described(folder: Path) -> dict[str, object]:
    """Return the path, and the versions of Python and packages; raise OSError if it cannot be read."""
    settings = _settings(folder)
    version = settings.get("version") or settings.get("version_info", "")
    found: dict[str, str] = {}
    if settings.get("include-system-site-packages", "").lower() == "true" and (home := settings.get("home")):
        short = ".".join(version.split(".")[:2])
        names = (f"lib/python{short}/site-packages", *(name.format(version=short) for name in _DEBIAN))
        for name in names:
            found |= packages_in(Path(home).parent / name)
    for place in sorted(folder.glob("lib/python*/site-packages")):
        found |= packages_in(place)
    return {"path": str(folder), "python": version, "packages": dict(sorted(found.items()))}


def packages_in(folder: Path) -> dict[str, str]:
    """Return names (as PEP 503 writes them) and versions by what pip leaves in a `site-packages`; none without one.

    The names of its folders say it: a file server that would have to open each package's metadata takes seconds.
    """
    if not folder.is_dir():
        return {}
    found = {}
    for path in folder.iterdir():
        stem, _, kind = path.name.rpartition(".")
        if kind not in {"dist-info", "egg-info"}:
            continue
        name, _, version = stem.partition("-")
        found[_SEPARATORS.sub("-", name).lower()] = version.partition("-py")[0] if kind == "egg-info" else version
    return found


def _settings(folder: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in (folder / CONFIG).read_text().splitlines())
    return {key.strip().lower(): value.strip() for key, sign, value in lines if sign}
