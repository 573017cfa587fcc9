"""What a release holds: wheel and sdist built from this tree, looked through; and what else names the version."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from support.needs import skip_or_fail

import unbroken

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PACKAGES = {"unbroken", "snakemake_executor_plugin_unbroken", "snakemake_logger_plugin_unbroken"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both; without the network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def tracked(*places: str) -> set[str]:
    """The files that git keeps below these; all of the tree where this is no clone."""
    done = subprocess.run(["git", "ls-files", "-z", *places], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        skip_or_fail("no clone of git")
    return {name for name in done.stdout.split("\0") if name}


def in_wheel(built: Path) -> set[str]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def in_sdist(built: Path) -> set[str]:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    found = {member.name.partition("/")[2] for member in members}
    for member in filter(tarfile.TarInfo.issym, members):
        target = os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname))
        assert target.partition("/")[2] in found, f"{member.name} leads to {target}"
    return found


def metadata(built: Path) -> Metadata:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def test_the_wheel_holds_the_packages_and_the_workflow_and_nothing_else(built: Path) -> None:
    found = in_wheel(built)
    own = {name for name in found if not name.startswith(f"unbroken-{unbroken.__version__}.dist-info/")}

    assert {name.partition("/")[0] for name in own} == PACKAGES
    assert {name.removeprefix("src/") for name in tracked("src")} <= own
    assert {f"unbroken/_workflow/{name}" for name in tracked("workflow", "scripts")} <= own
    assert not [name for name in own if "__pycache__" in name or name.endswith((".pyc", ".so"))]


def test_the_sdist_holds_all_that_git_keeps(built: Path) -> None:
    """hatchling leaves out links to folders, `slurm` at the top: they are for `--profile slurm` in a clone."""
    found, links = in_sdist(built), {name for name in tracked() if (ROOT / name).is_symlink()}

    assert tracked() - links - found == set()
    assert {name for name in links if (ROOT / name).is_file()} - found == set()
    assert {"profiles/slurm/profile.yaml", "Snakefile", "workflow/Snakefile"} <= found
    assert not [name for name in found if name.startswith(("build/", ".venv", "results/", ".snakemake/"))]


def test_the_metadata_is_what_an_index_takes(built: Path) -> None:
    found = metadata(built)

    assert (found.name, str(found.version)) == ("unbroken", unbroken.__version__)
    assert found.description_content_type and found.description_content_type.startswith("text/markdown")
    assert (found.license_expression, found.license_files) == ("MIT", ["LICENSE"])
    assert [need for need in found.requires_dist or [] if need.marker is None] == []


def conda_needs() -> Iterator[Requirement]:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    for line in recipe["requirements"]["run"]:
        yield Requirement(re.sub(r"^(python|snakemake|matplotlib)-(xxhash|minimal|base)", _on_pypi, line))


def _on_pypi(found: re.Match[str]) -> str:
    return found[2] if found[2] == "xxhash" else found[1]


def test_the_recipe_of_conda_needs_what_the_extra_workflow_needs(built: Path) -> None:
    expected = {
        (need.name, str(need.specifier))
        for need in metadata(built).requires_dist or []
        if need.marker and "workflow" in str(need.marker)
    }

    assert {(need.name, str(need.specifier)) for need in conda_needs() if need.name != "python"} == expected


def test_one_version_stands_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())

    assert citation["version"] == recipe["context"]["version"] == unbroken.__version__
    assert citation["cff-version"] == "1.2.0" and citation["authors"] and citation["message"]
