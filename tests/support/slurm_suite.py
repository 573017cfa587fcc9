"""A plugin of pytest that runs the Slurm plugin's own tests through `PlainJobs`: -p support.slurm_suite."""

import sys
from pathlib import Path

from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

sys.path.insert(0, str(Path(__file__).parent / "plain_executor"))

from snakemake_executor_plugin_plainjobs import Executor


def pytest_configure() -> None:
    """Put our executor in the place of the plugin's, under its name and with its settings."""
    ExecutorPluginRegistry().plugins["slurm"].executor = Executor
