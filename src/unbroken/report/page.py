"""The page `results/report.html`: one HTML file with its facts, its charts, and the library that draws them.

The charts are Vega-Lite's, drawn as SVG: text that a screen reader finds and a printer sees.  Snakemake ships its
script, so that it is installed wherever the workflow is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.report.facts import NO_PROMISE, Promise, folder_facts
from unbroken.report.known import known_names, no_config, runs_of
from unbroken.report.status import status_of
from unbroken.slurm.queue import queue_of
from unbroken.store.run import RunSpec
from unbroken.system import fs

# No page takes so long to write.
ABANDONED_SECONDS = 600.0
_LIBRARY = ("vega/vega.js", "vega-lite/vega-lite.js")
_LICENSES = ("vega/LICENSE", "vega-lite/LICENSE")


def write_report(
    base: Path,
    config: Path,
    only: Sequence[str],
    page: Path,
    promise: Promise = NO_PROMISE,
    *,
    is_patient: bool = False,
) -> None:
    """Write the page of the runs that are named, of all if none is.

    Raise ConfigError if there is none, or one is unknown, or, unless `is_patient`, if the configuration has mistakes;
    Raise StorageError if the disk is in the way.
    """
    runs = _configured(base, config, is_patient=is_patient)
    names = known_names(runs, only, base)
    if not names:
        raise no_config(base)
    queue = queue_of(base)
    rows = [status_of(name, base, runs.get(name), queue) for name in names]
    text = page_text(folder_facts(rows, runs, base, queue, page=page, promise=promise))
    page.parent.mkdir(parents=True, exist_ok=True)
    fs.remove_drafts(page.parent, ABANDONED_SECONDS, kind=page.name)  # of writers that were killed
    fs.write_atomic(page, text)


def page_text(facts: Mapping[str, object]) -> str:
    """Return the HTML text of the page."""
    own = files("unbroken.report") / "page"
    return (own / "page.html").read_text() % {
        "css": (own / "page.css").read_text(),
        "facts": json_in_html(facts),
        "library": library(),
        "charts": (own / "charts.js").read_text(),
        "script": (own / "page.js").read_text(),
    }


def json_in_html(value: object) -> str:
    """Return JSON that ends no script element and begins no comment, whatever is in it."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN, say in a damaged line of history, is no JSON that a browser reads
        value = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def library() -> str:
    """Return Vega and Vega-Lite with their licenses, escaped for a script element."""
    found = find_spec("snakemake")  # to import it would take a second
    if found is None or found.origin is None:
        raise ConfigError(['the report needs Snakemake; type: pip install "unbroken[workflow]"'])
    assets = Path(found.origin).parent / "assets" / "data"
    licenses = "\n".join((assets / name).read_text() for name in _LICENSES).replace("*/", "* /")
    code = "\n;\n".join((assets / name).read_text() for name in _LIBRARY)
    return f"/*\n{licenses}\n*/\n{code}".replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _configured(base: Path, config: Path, *, is_patient: bool) -> dict[str, RunSpec]:
    """Return the runs of the configuration; none while it is being edited, if that is no error."""
    try:
        return {run.name: run for run in runs_of(base, config, must_exist=False)}
    except ConfigError:
        if is_patient:
            return {}
        raise
