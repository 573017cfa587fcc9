"""Engines that other packages bring: found by entry points, and what is wrong with one is said in one line."""

import re
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from unbroken.config.package_files import install_line
from unbroken.engines import base, found
from unbroken.engines.found import FoundEngine, found_engines
from unbroken.errors import ConfigError

# The one that the interface shows.
GOOD = textwrap.dedent(re.findall(r"(?s)This is a whole one:\n\n(.*?)\n\nwith ", base.__doc__)[0])


SETTINGS = """
title: Settings of walk
required: [steps]
properties:
  steps: {description: So far., type: integer, identity: none, examples: [3]}
  seed: {description: The first number., type: integer, identity: value, default: 1}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path, with an engine and its settings."""
    folder = tmp_path / "walking"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "engine.py").write_text(GOOD)
    (folder / "schema.yaml").write_text(SETTINGS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("walking")]:
        del sys.modules[name]


def engine(attribute: str = "Walk", module: str = "walking.engine", name: str = "walk") -> FoundEngine:
    return FoundEngine(name, module, attribute, "unbroken-walk")


def refusal(question) -> str:
    with pytest.raises(ConfigError) as raised:
        question()
    (line,) = raised.value.mistakes
    return line


def test_our_own_engines_are_found_like_all_others() -> None:
    engines = found_engines()

    assert list(engines) == ["command", "dmtcp", "gromacs", "jax", "tensorflow", "torch", "toy"]
    for name, each in engines.items():
        assert each.is_ours and each.schema.is_file()
        assert each.load(Path()).name == name


def test_an_engine_of_another_package_is_loaded(package: Path) -> None:
    assert engine().schema == package / "schema.yaml"
    assert not engine().is_ours
    assert engine().load(package).base == package


def test_an_engine_without_settings_is_named(package: Path) -> None:
    (package / "schema.yaml").unlink()

    line = refusal(lambda: engine().schema)

    assert line == (
        "engine walk of the package unbroken-walk (walking.engine:Walk): "
        f"{package / 'schema.yaml'} is missing; it has to describe the settings of the engine"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (SETTINGS, "title: [broken", "cannot be read (while parsing a flow sequence"),
        (SETTINGS, "[]", "has no title"),
        (SETTINGS, "", "has no title"),
        ("required", "dependentRequired: {}\nrequired", "says dependentRequired at its top, which unbroken does not"),
        ("required: [steps]", "required: [goal]", "requires goal, which it does not describe"),
        (SETTINGS, "title: x", "needs `properties`, a mapping, and `required`, a list"),
        ("description: So far., ", "", "properties.steps: needs a description"),
        ("identity: value", "identity: yes", "properties.seed: identity is True, allowed: value, content, none"),
        (", identity: value", "", "properties.seed: identity is None, allowed: value, content, none"),
        (", examples: [3]", "", "properties.steps: is required, so it needs examples, a list"),
        (", default: 1", "", "properties.seed: is not required, so it needs a default"),
        ("type: integer", "type: whole", "properties.steps: 'whole' is not valid under any of the given schemas"),
    ],
)
def test_settings_that_are_no_schema_are_named_before_they_end_every_run(
    package: Path, old: str, new: str, said: str
) -> None:
    assert SETTINGS.count(old) > 0
    (package / "schema.yaml").write_text(SETTINGS.replace(old, new))

    line = refusal(lambda: engine().schema)

    assert f": {package / 'schema.yaml'} {said}" in line


@pytest.mark.parametrize("module", ["walking.engines", "nowhere.engine"])
def test_a_module_that_is_gone_is_named(package: Path, module: str) -> None:
    line = refusal(lambda: engine(module=module).schema)

    assert line.endswith(f"there is no module {module}; install unbroken-walk again")


@pytest.mark.parametrize(
    ("text", "attribute", "said"),
    [
        (GOOD, "Wolk", "has no attribute 'Wolk'"),
        ("import no_such_library", "Walk", "No module named 'no_such_library'"),
        ("Walk = 3", "Walk", "Walk is no subclass of unbroken.engines.base.Engine"),
        ("class Walk: pass", "Walk", "Walk is no subclass of unbroken.engines.base.Engine"),
        (GOOD.replace("def command", "def comand"), "Walk", "Walk lacks command"),
        (GOOD.replace('"walk"', '"wolk"'), "Walk", "Walk.name is 'wolk', allowed: 'walk'"),
        (GOOD.replace('    name = "walk"\n', ""), "Walk", "Walk.name is None, allowed: 'walk'"),
    ],
)
def test_what_is_no_engine_is_refused_in_one_line(package: Path, text: str, attribute: str, said: str) -> None:
    (package / "engine.py").write_text(text)

    line = refusal(lambda: engine(attribute).load(Path()))

    assert line.startswith(f"engine walk of the package unbroken-walk (walking.engine:{attribute}): ")
    assert line.endswith(said)


def points(*values: tuple[str, str]):
    return lambda group: [EntryPoint(name, value, group) for name, value in values]


def test_two_engines_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("toy", "unbroken.engines.toy.engine:ToyEngine")
    monkeypatch.setattr(found, "entry_points", points(ours, ("toy", "other.engine:Toy")))

    assert refusal(found_engines.__wrapped__) == (
        "engine toy: both unknown and unknown bring one; uninstall one of them"
    )

    monkeypatch.setattr(found, "entry_points", points(ours, ours))  # one package, found at two places of the path
    assert list(found_engines.__wrapped__()) == ["toy"]


def test_an_installation_without_engines_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "entry_points", points(("walk", "walking.engine:Walk")))

    assert f"type: {install_line('--force-reinstall')}" in refusal(found_engines.__wrapped__)
