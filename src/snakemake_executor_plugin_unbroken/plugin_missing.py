"""Stands in where snakemake-executor-plugin-slurm is not installed: says so when it is asked for, and not before."""

from __future__ import annotations

from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings

from unbroken.config.package_files import install_line

common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)
# Why the real one could not be imported.
reason: list[str] = []


class Executor(AbstractExecutor):  # type: ignore[misc]  # no types there
    """Refuses in one line."""

    def __new__(cls, workflow: Any, logger: Any) -> Executor:  # before anybody finds that it is abstract
        raise WorkflowError(
            f"executor: unbroken needs snakemake-executor-plugin-slurm 2.8 ({'; '.join(reason)}); "
            f"type: {install_line(extra='workflow')}"
        )
