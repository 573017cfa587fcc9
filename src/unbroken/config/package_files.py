"""Find unbroken's own workflow: in a clone next to `src`, else inside the installed package."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unbroken.errors import ConfigError

_NAME = "unbroken"
_PACKAGE = Path(__file__).resolve().parents[1]


def root_folder() -> Path:
    """Return the folder that holds `workflow` and `scripts`; raise ConfigError if the installation lacks them."""
    for folder in (_PACKAGE.parents[1], _PACKAGE / "_workflow"):
        if (folder / "workflow" / "schemas").is_dir():
            return folder
    raise ConfigError([f"{_PACKAGE}: the workflow files are missing; type: {install_line('--force-reinstall')}"])


def install_line(*options: str, extra: str = "") -> str:
    """Return the pip command that installs unbroken, with one of its extras, from its present source.

    The source is a clone (editable if it is now), a wheel or a repository, as direct_url.json says
    (https://packaging.python.org/specifications/direct-url).
    """
    what = f"{_NAME}[{extra}]" if extra else _NAME
    with suppress(PackageNotFoundError, ValueError, KeyError):
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
        if vcs := origin.get("vcs_info"):
            what += f" @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
        elif origin.get("dir_info", {}).get("editable"):
            options, what = (*options, "-e"), what.replace(_NAME, unquote(urlsplit(origin["url"]).path), 1)
        elif origin:
            what += f" @ {origin['url']}"
    return shlex.join(["pip", "install", *options, what])


def workflow_folder() -> Path:
    """Return the folder with the Snakefile, the rules and the schemas."""
    return root_folder() / "workflow"


def snakefile() -> Path:
    """Return the Snakefile that has the default profile beside it: the clone's, else the installed one."""
    whole = root_folder() / "Snakefile"
    return whole if whole.is_file() else workflow_folder() / "Snakefile"
