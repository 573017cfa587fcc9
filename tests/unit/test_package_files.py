"""From where unbroken was installed, for the lines that tell somebody to install more of it."""

import json
import re
from pathlib import Path

import pytest
from support.toyrun import ROOT

from unbroken.config import package_files
from unbroken.config.package_files import install_line

# What installs a package of this name from the public index, where it is not.
FROM_THE_INDEX = re.compile(r"pip install (?:-\S+ )*[\"'`]?unbroken\b(?! @)")


class Installed:
    """A distribution with such a direct_url.json."""

    def __init__(self, origin: object) -> None:
        self._text = None if origin is None else json.dumps(origin)

    def read_text(self, name: str) -> str | None:
        return self._text if name == "direct_url.json" else None


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (
            {"url": "file:///x/my%20clone", "dir_info": {"editable": True}},
            "pip install -e '/x/my clone[workflow]'",
        ),
        (
            {"url": "file:///x/my%20clone", "dir_info": {}},
            "pip install 'unbroken[workflow] @ file:///x/my%20clone'",
        ),
        (
            {"url": "file:///x/unbroken-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'unbroken[workflow] @ file:///x/unbroken-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/a.git", "vcs_info": {"vcs": "git", "commit_id": "1f2e"}},
            "pip install 'unbroken[workflow] @ git+https://host/a.git@1f2e'",
        ),
        (None, "pip install 'unbroken[workflow]'"),
    ],
)
def test_it_installs_what_is_installed(monkeypatch: pytest.MonkeyPatch, origin: object, line: str) -> None:
    monkeypatch.setattr(package_files, "distribution", lambda name: Installed(origin))

    assert install_line(extra="workflow") == line


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    found = [f"{page}: {match[0]}" for page in pages for match in FROM_THE_INDEX.finditer(Path(page).read_text())]

    assert found == []
    assert FROM_THE_INDEX.search('pip install "unbroken[torch]"')
