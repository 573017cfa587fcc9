"""Make a site of the repository's pages (mkdocs.yml): pages outside of docs/ join it, and links follow them."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Where a file of the repository stands in the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def site_path(path: str) -> str | None:
    """Return where a file, by its path from the root, stands in the site; None if it is not part of it."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith("/README.md"):
        return path.replace("/README.md", ".md")
    return path if (ROOT / path).is_file() else None


def relinked(text: str, path: str) -> str:
    """Return the text of a page, by its path from the root, with its links as the site needs them."""
    here = site_path(path) or path

    def follow(match: re.Match[str]) -> str:
        link, mark, anchor = match[1].partition("#")
        there = site_path(normpath(str(PurePosixPath(path).parent / link)))
        return match[1] if there is None else relpath(there, str(PurePosixPath(here).parent)) + mark + anchor

    return _LINK.sub(follow, text)


def on_files(files: Files, config: Any) -> Files:
    """Add what the site shows of files outside of docs/: pages, and what any page links to."""
    pages = {*PAGES, *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*/README.md"))}
    known = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    linked = {target for page in [*known, *pages] for target in _targets(page)}
    for path in sorted(pages | {target for target in linked if not target.startswith("docs/")}):
        there = site_path(path)
        if there is None:
            continue  # a dead link, which the build names
        if path.endswith(".md"):
            files.append(File.generated(config, there, content=relinked((ROOT / path).read_text(), path)))
        else:
            files.append(File.generated(config, there, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Follow the links of a page in docs/ to what stands outside."""
    if page.file.generated_by is not None:
        return markdown
    return relinked(markdown, f"docs/{page.file.src_uri}")


def _targets(page: str) -> set[str]:
    folder = PurePosixPath(page).parent
    return {normpath(str(folder / link.partition("#")[0])) for link in _LINK.findall((ROOT / page).read_text())}
