"""Write a table into the part of a page between `<!-- NAME -->` and `<!-- /NAME -->`."""

import argparse
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


def arguments(description: str, source: str) -> argparse.Namespace:
    """Read the command line of a tool that makes a table: `source`, and `write`, the page for it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", type=Path, help=source)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    return parser.parse_args()


def publish(text: str, name: str, page: Path | None, day: str = "") -> None:
    """Print the table, and write it into the page where one is given."""
    print(text)
    if page:
        write_between(page, name, f"{day}\n\n{text}" if day else text)
