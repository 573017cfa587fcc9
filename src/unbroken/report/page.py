"""The report as one HTML file that needs nothing beside it: its facts, its charts, and the library that draws them.

The charts are Vega-Lite's, drawn as SVG: text that a screen reader finds and a printer sees.  Snakemake ships its
script, so that it is installed wherever the workflow is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.system import fs

# No page takes so long to write.
ABANDONED_SECONDS = 600.0
_LIBRARY = ("vega/vega.js", "vega-lite/vega-lite.js")
_LICENSES = ("vega/LICENSE", "vega-lite/LICENSE")


def write_page(facts: Mapping[str, object], path: Path) -> None:
    """Puts the page in the place of the one before in one step; StorageError if the disk is in the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fs.remove_drafts(path.parent, ABANDONED_SECONDS, kind=path.name)  # of writers that were killed
    fs.write_atomic(path, page_text(facts))


def page_text(facts: Mapping[str, object]) -> str:
    """The HTML text of the page."""
    own = files("unbroken.report") / "page"
    return (own / "page.html").read_text() % {
        "css": (own / "page.css").read_text(),
        "facts": json_in_html(facts),
        "library": library(),
        "charts": (own / "charts.js").read_text(),
        "script": (own / "page.js").read_text(),
    }


def json_in_html(value: object) -> str:
    """JSON that ends no script element and begins no comment, whatever is in it."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN, say in a line of history that somebody has spoilt, is no JSON that a browser reads
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    """The same with null in the place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def library() -> str:
    """Vega and Vega-Lite with their licenses, fit to stand in a script element."""
    found = find_spec("snakemake")  # to import it would take a second
    if found is None or found.origin is None:
        raise ConfigError(['the report needs Snakemake; type: pip install "unbroken[workflow]"'])
    assets = Path(found.origin).parent / "assets" / "data"
    licenses = "\n".join((assets / name).read_text() for name in _LICENSES).replace("*/", "* /")
    code = "\n;\n".join((assets / name).read_text() for name in _LIBRARY)
    return f"/*\n{licenses}\n*/\n{code}".replace("</script", "<\\/script").replace("<!--", "<\\!--")
