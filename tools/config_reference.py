"""Write the tables of configuration keys in the docs, from the schemas: make docs-keys

A page asks for one between two marker lines: <!-- keys: toy --> and <!-- /keys -->.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from unbroken.config.messages import allowed
from unbroken.config.package_files import root_folder
from unbroken.config.schema import Schema, Schemas, SettingKey
from unbroken.engines.found import known_schemas

_MARKED = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- /keys -->)", re.DOTALL)
_IN_IDENTITY = {"value": "yes", "content": "the file's content", "none": "no", "switch": "no"}


def main() -> None:
    """Write all tables again and print the pages that changed."""
    schemas = known_schemas()
    for page in pages(root_folder() / "docs"):
        text = page.read_text()
        fresh = with_tables(text, schemas)
        if fresh != text:
            page.write_text(fresh)
            print(f"{page}: written")


def pages(docs: Path) -> list[Path]:
    """Return the pages that contain a table of keys."""
    return [page for page in sorted(docs.rglob("*.md")) if _MARKED.search(page.read_text())]


def with_tables(text: str, schemas: Schemas) -> str:
    """Return the page with its tables rendered from the present schemas."""
    named = {"config": schemas.config, "site": schemas.site, "run": schemas.run, **schemas.engines}
    return _MARKED.sub(lambda match: match[1] + key_table(named[match[2]]) + match[3], text)


def key_table(schema: Schema) -> str:
    """Return a markdown table with one row per key."""
    is_engine = any("identity" in key.schema for key in schema.keys.values())
    heads = ["key", "allowed", "default", "unit", "what it is", *(["part of the identity"] if is_engine else [])]
    rows = [
        heads,
        ["---"] * len(heads),
        *(list(_cells(schema, key, is_engine=is_engine)) for key in schema.keys.values()),
    ]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    if schema.identity_run_keys:
        names = ", ".join(f"`{name}`" for name in schema.identity_run_keys)
        lines += ["", f"Of the run's own keys, part of the identity: {names}."]
    if schema.layout_run_keys:
        names = ", ".join(f"`{name}`" for name in schema.layout_run_keys)
        lines += ["", f"Of the run's own keys, part of the identity unless `{schema.switch_key}`: {names}."]
    return "\n".join(lines) + "\n"


def _cells(schema: Schema, key: SettingKey, *, is_engine: bool) -> Iterator[str]:
    unit = key.schema.get("unit", "none")
    yield f"`{key.name}`"
    yield allowed({**key.schema, "unit": "none"})
    yield "**required**" if key.name in schema.required else f"`{json.dumps(key.schema['default'])}`"
    yield "" if unit == "none" else unit
    yield key.schema["description"]
    if is_engine:
        kind = key.schema["identity"]
        yield _IN_IDENTITY.get(kind, f"unless `{schema.switch_key}`")


if __name__ == "__main__":
    main()
