"""What a page of `unbroken report` says, without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def facts_in(page: Path) -> dict[str, Any]:
    """The facts that its charts and tables are made from."""
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return dict(json.loads(found[1]))
