"""The rooms of the package: what import-linter (`make lint`) does not see."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from support.workdir import ROOT

SRC = ROOT / "src"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [[room.strip() for room in layer.split("|")] for layer in CONTRACTS[0]["layers"]]
# What runs where nothing is installed: on a login node's own Python, in a program's environment.
ALONE = ("unbroken/system", "unbroken/store", "unbroken/program", "unbroken/training/core")


def modules_in(folder: str) -> list[str]:
    files = sorted((SRC / folder).rglob("*.py"))
    return [".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for file in files]


@pytest.mark.process
@pytest.mark.parametrize("folder", ALONE)
def test_a_room_needs_the_standard_library_alone(folder: str) -> None:
    modules = [*modules_in(folder), "unbroken.training.files.directory"]
    code = f"import sys; sys.path.insert(0, {str(SRC)!r})\nfor name in {modules!r}: __import__(name)\n"
    code += "assert not [path for path in sys.path if 'site-packages' in path]"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert len(modules) > 5


def level_of(module: str) -> int:
    found = [
        number
        for number, layer in enumerate(LAYERS)
        for room in layer
        if module == room or module.startswith(f"{room}.")
    ]
    return min(found, default=len(LAYERS))


def imported_by_name(tree: ast.AST) -> Iterator[str]:
    """Names of our modules in the strings of a file that imports by name; of an f-string what stands before `{`."""
    if not any(
        isinstance(node, ast.Attribute) and node.attr in ("import_module", "find_spec") for node in ast.walk(tree)
    ):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("unbroken."):
            yield node.value.rstrip(".")


def test_no_import_by_name_goes_upward() -> None:
    seen, wrong = 0, []
    for file in sorted(SRC.rglob("*.py")):
        module = ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
        for name in imported_by_name(ast.parse(file.read_text())):
            seen += 1
            if level_of(name) < level_of(module):
                wrong.append(f"{module} -> {name}")

    assert wrong == []
    assert seen > 3


def test_every_room_has_its_layer() -> None:
    rooms = {f"unbroken.{path.name}" for path in (SRC / "unbroken").iterdir() if (path / "__init__.py").exists()}

    assert rooms == {room for layer in LAYERS for room in layer} - {
        "unbroken.errors",
        "unbroken.snakemake_inside",
        "snakemake_executor_plugin_unbroken",
        "snakemake_logger_plugin_unbroken",
    }
