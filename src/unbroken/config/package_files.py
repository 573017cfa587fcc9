"""Where unbroken's own workflow stands: in a clone beside `src`, else inside the installed package."""

from __future__ import annotations

from pathlib import Path

from unbroken.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def root_folder() -> Path:
    """The folder that holds `workflow` and `scripts`; ConfigError if the installation lacks them."""
    for folder in (_PACKAGE.parents[1], _PACKAGE / "_workflow"):
        if (folder / "workflow" / "schemas").is_dir():
            return folder
    raise ConfigError([f"{_PACKAGE}: the workflow files are missing; type: pip install --force-reinstall unbroken"])


def workflow_folder() -> Path:
    """The folder with the Snakefile, the rules and the schemas."""
    return root_folder() / "workflow"
