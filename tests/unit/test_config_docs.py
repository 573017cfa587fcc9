"""The schemas are the only description of a key: complete in themselves, and the docs are made of them."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from config_reference import pages, with_tables

from unbroken.config.load import read_runs
from unbroken.config.package_files import root_folder, workflow_folder
from unbroken.config.schema import Schemas, load_schemas
from unbroken.engines.found import found_engines, known_schemas
from unbroken.errors import ConfigError

ROOT = root_folder()
FOLDER = workflow_folder() / "schemas"
SCHEMAS = known_schemas()


def documents() -> dict[str, Path]:
    own = {path.name.removesuffix(".schema.yaml"): path for path in sorted(FOLDER.glob("*.schema.yaml"))}
    return own | {name: engine.schema for name, engine in found_engines().items()}


def changed_in(folder: Path, change) -> Schemas:
    """The schemas with their texts changed, read from copies."""
    for name, path in documents().items():
        (folder / f"{name}.schema.yaml").write_text(change(name, path.read_text()))
    return load_schemas(folder, {name: folder / f"{name}.schema.yaml" for name in found_engines()})


def schemas_of(book: Schemas):
    return {"config": book.config, "site": book.site, "run": book.run, **book.engines}


@pytest.mark.parametrize("path", documents().values(), ids=documents())
def test_a_schema_is_a_closed_json_schema(path):
    document = yaml.safe_load(path.read_text())

    jsonschema.Draft202012Validator.check_schema(document)
    assert (document["type"], document["additionalProperties"]) == ("object", False)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("name", schemas_of(SCHEMAS))
def test_a_schema_says_everything_about_each_key(name):
    schema = schemas_of(SCHEMAS)[name]

    for key in schema.keys.values():
        assert key.schema["description"].endswith("."), key.name
        assert (key.name in schema.required) != ("default" in key.schema), key.name
        values = key.schema["examples"] if key.name in schema.required else [key.schema["default"]]
        assert [key.errors(value) for value in values] == [[]], key.name
        assert ("unit" in key.schema) == bool(key.types & {"integer", "number"}), key.name
        if name in SCHEMAS.engines:
            assert key.schema["identity"] in ("value", "content", "none", "layout", "switch"), key.name
    assert {*schema.identity_run_keys, *schema.layout_run_keys} <= SCHEMAS.run.keys.keys()


def test_a_schema_with_more_than_unbroken_reads_is_refused(tmp_path):
    def with_more(name, text):
        return f"{text}\ndependentRequired: {{seed: [goal]}}\n" if name == "toy" else text

    with pytest.raises(ValueError, match=r"unbroken does not read \['dependentRequired'\] at the top of a schema"):
        changed_in(tmp_path, with_more)


def test_the_tables_in_the_docs_are_those_of_the_schemas():
    found = pages(ROOT / "docs")

    assert ROOT / "docs" / "config.md" in found
    for page in found:
        text = page.read_text()
        assert with_tables(text, SCHEMAS) == text, f"{page}: type `make docs-keys`"


def test_a_change_of_a_schema_changes_the_docs(tmp_path):
    schemas = changed_in(tmp_path, lambda name, text: text.replace("maximum: 99999", "maximum: 99998"))
    text = (ROOT / "docs" / "config.md").read_text()

    changed = with_tables(text, schemas)

    assert changed == text.replace("from 1 to 99999 | **req", "from 1 to 99998 | **req") != text


def test_the_mistakes_shown_in_the_docs_are_the_real_ones():
    text = (ROOT / "docs" / "config.md").read_text()
    shown = re.findall(r"^unbroken: (runs\.first\..*)$", text, re.MULTILINE)
    run = {"engine": "toy", "segmets": 4, "segment_minutes": "5 h", "settings": {"goal": 9}}

    with pytest.raises(ConfigError) as error:
        read_runs({"runs": {"first": run}}, SCHEMAS, ROOT)

    assert error.value.mistakes == shown
    assert len(shown) == 2


def test_the_commented_example_shows_every_key_with_its_default():
    text = (ROOT / "config" / "config.yaml").read_text()
    commented = yaml.safe_load("\n".join(re.findall(r"^ *# ([a-z_]+: .*)$", text, re.MULTILINE)))
    run = SCHEMAS.run
    written = yaml.safe_load(text)["defaults"]

    assert {
        name: run.keys[name].settled(value) for name, value in commented.items() if name in run.keys
    } == run.defaults
    assert set(written) == set(run.required)
