"""The parts of a page that a command writes: `<!-- NAME -->` to `<!-- /NAME -->`."""

import re
from pathlib import Path


def write_between(page: Path, name: str, text: str) -> None:
    """Put the text between the marks of that name, instead of what is there.

    Raises:
        SystemExit: the page has no such marks.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before = page.read_text()
    if begin not in before or end not in before:
        raise SystemExit(f"{page}: no {begin} ... {end}")
    block = f"{begin}\n{text}\n{end}"
    page.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, before, flags=re.DOTALL))
