"""A plugin of pytest that runs the Slurm plugin's own tests through `PlainJobs`: -p support.slurm_suite."""

import sys
from pathlib import Path
from typing import Any

import pytest
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

sys.path.insert(0, str(Path(__file__).parent / "plain_executor"))

from snakemake_executor_plugin_plainjobs import Executor

made: list[Executor] = []


class Counted(Executor):
    """Our executor, counted."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        made.append(self)
        super().__init__(workflow, logger)


def pytest_configure() -> None:
    """Put our executor in the place of the plugin's, under its name and with its settings."""
    ExecutorPluginRegistry().plugins["slurm"].executor = Counted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many workflows ran through it."""
    terminalreporter.write_line(f"{len(made)} workflows through PlainJobs")
