"""`executor: unbroken`: snakemake-executor-plugin-slurm with chains of segments in mind.

Snakemake imports every executor plugin at every start, also where nobody wants Slurm; a missing or foreign parent
must not break those.
"""

try:
    from snakemake_executor_plugin_slurm import common_settings

    from snakemake_executor_plugin_unbroken.executor import Executor
    from snakemake_executor_plugin_unbroken.settings import ExecutorSettings
except ImportError as _error:
    from snakemake_executor_plugin_unbroken.plugin_missing import Executor, common_settings, reason

    reason.append(str(_error))
    __all__ = ["Executor", "common_settings"]
else:
    __all__ = ["Executor", "ExecutorSettings", "common_settings"]
