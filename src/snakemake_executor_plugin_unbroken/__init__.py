"""`executor: unbroken`: snakemake-executor-plugin-slurm with chains of segments in mind.

Snakemake imports every executor plugin at every start, also where Slurm is not used.  A missing or foreign parent
must not break those starts: it is reported only when this executor is requested.
"""

from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings

from unbroken.config.package_files import install_line

try:
    from snakemake_executor_plugin_slurm import common_settings

    from snakemake_executor_plugin_unbroken.executor import Executor
    from snakemake_executor_plugin_unbroken.slurm_plugin import ExecutorSettings
except ImportError as error:
    _why = str(error)
    common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)

    class Executor(AbstractExecutor):  # type: ignore[no-redef, misc]
        """Refuse in one line."""

        def __new__(cls, workflow: Any, logger: Any) -> Any:  # before Python finds that it is abstract
            raise WorkflowError(
                f"executor: unbroken needs snakemake-executor-plugin-slurm 2.8 ({_why}); "
                f"type: {install_line(extra='workflow')}"
            )

    __all__ = ["Executor", "common_settings"]
else:
    __all__ = ["Executor", "ExecutorSettings", "common_settings"]
