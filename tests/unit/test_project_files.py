import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from components import Component, read_components
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import unbroken

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]


def test_importing_unbroken_needs_no_other_package() -> None:
    assert PROJECT["dependencies"] == []


def test_the_version_stands_in_one_file() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert version("unbroken") == unbroken.__version__


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"\n## {unbroken.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_constraint_is_one_exact_version_that_any_index_may_have() -> None:
    exact = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*")

    assert [line for line in CONSTRAINTS if not exact.fullmatch(line)] == []


def test_everything_that_the_project_names_is_pinned_within_its_range() -> None:
    pinned = {canonicalize_name(name): number for name, number in (line.split("==") for line in CONSTRAINTS)}
    extras = PROJECT["optional-dependencies"].values()
    named = [Requirement(line) for extra in extras for line in extra]

    loose = [str(need) for need in named if pinned.get(canonicalize_name(need.name), "0") not in need.specifier]

    assert loose == []


@pytest.mark.process
def test_make_help_names_every_target_that_a_person_types() -> None:
    wanted = (
        "setup",
        "demo",
        "test",
        "quick",
        "check",
        "lint",
        "format",
        "test-slow",
        "bench",
        "docs-keys",
        "lock",
        "clean",
    )

    shown = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout

    assert [target for target in wanted if f"make {target} " not in shown] == []


@pytest.mark.process
def test_setup_with_too_old_a_python_says_so_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.9.2' && exit 0\nexit 1\n")
    old.chmod(0o755)

    done = subprocess.run(
        [ROOT / "tools/setup.sh"], env={"PATH": "/usr/bin:/bin", "PYTHON": str(old)}, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr == (
        "unbroken setup: Python 3.9.2 is too old, 3.11 or later is needed; name one: make setup PYTHON=python3.12\n"
    )


def test_a_missing_component_is_recognised() -> None:
    ghost = Component("ghost", ("no-such-command-here", "$NO_SUCH_VARIABLE/init/bash", "/no/such/file"), "x")
    shell = Component("shell", ("no-such-command-here", "sh"), "x")

    assert [ghost.is_here(), shell.is_here()] == [False, True]


def test_every_component_says_what_it_is_for() -> None:
    assert all(component.purpose and component.found_at for component in read_components().values())


def test_a_component_line_without_a_purpose_is_refused_with_its_number(tmp_path: Path) -> None:
    table = tmp_path / "components.txt"
    table.write_text("# comment\nstrace | strace\n")

    with pytest.raises(ValueError, match=r"components\.txt:2: expected 'package"):
        read_components(table)
