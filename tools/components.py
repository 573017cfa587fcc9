"""Name the components that this machine lacks, and install them where that is possible (standard library only)."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("components.txt")


@dataclass(frozen=True)
class Component:
    """Hold one line of components.txt."""

    package: str
    found_at: tuple[str, ...]
    purpose: str

    def is_here(self) -> bool:
        """Return True if one of the places where it may be exists."""
        return any(_exists(place) for place in self.found_at)


def read_components(table: Path = TABLE) -> dict[str, Component]:
    """Return all components by package name; raises ValueError for a line that has not three fields."""
    components = {}
    for number, line in enumerate(table.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{table}:{number}: expected 'package | where it is found | purpose'")
        components[fields[0]] = Component(fields[0], tuple(fields[1].split()), fields[2])
    return components


def missing_components() -> list[Component]:
    """Return what this machine lacks."""
    return [component for component in read_components().values() if not component.is_here()]


def main() -> int:
    """Install what is missing where that is possible, then name what still is; 1 if that is a failure (in CI)."""
    if missing_components() and os.geteuid() == 0 and shutil.which("apt-get"):
        _install([component.package for component in missing_components()])
    still_missing = missing_components()
    for component in still_missing:
        print(f"missing: {component.package}; without it no test can {component.purpose}")
    if still_missing and os.environ.get("UNBROKEN_CI") == "1":
        print("UNBROKEN_CI=1: a missing component is a failure", file=sys.stderr)
        return 1
    return 0


def _exists(place: str) -> bool:
    expanded = os.path.expandvars(place)
    if "$" in expanded:
        return False
    return Path(expanded).exists() if "/" in expanded else shutil.which(expanded) is not None


def _install(packages: list[str]) -> None:
    print(f"installing {' '.join(packages)} (apt)", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "-qq", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(f"{' '.join(command)} failed:\n{done.stdout}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
