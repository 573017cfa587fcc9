"""What the executor relies on in snakemake-executor-plugin-slurm and in Snakemake, one test for each use.

A new release that changes any of it fails here, with a line that says what to look at.
"""

import inspect
import os
import re
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import snakemake.api  # before its parts, which import each other
import snakemake.dag
import snakemake.parser
import snakemake_executor_plugin_slurm as plugin
from snakemake.io import _IOFile
from snakemake.jobs import AbstractJob, GroupJob
from snakemake.jobs import Job as SnakemakeJob
from snakemake.resources import Resource
from snakemake.rules import Rule
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.workflow import Workflow
from snakemake_executor_plugin_slurm import submit_string, utils, validation
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor, SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from support.plain_driver import PlainDriver
from support.workdir import ROOT

from snakemake_executor_plugin_unbroken import slurm_plugin
from snakemake_executor_plugin_unbroken.executor import leave_own_job, refuse_log_folder
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs
from snakemake_executor_plugin_unbroken.slurm_plugin import HeldExecutor
from unbroken import snakemake_inside

READ = "read the new release and change slurm_plugin.py, snakemake_inside.py: "


def source(thing: object) -> str:
    return inspect.getsource(thing)  # type: ignore[arg-type]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


class Resources(dict[str, str]):
    """As those of Snakemake's jobs: found by name and as attributes."""

    def __getattr__(self, name: str) -> str:
        return self[name]


def requires(holds: bool, what: str) -> None:
    """Fail with what a release has changed."""
    assert holds, READ + what


def test_the_plugin_is_a_release_that_was_read() -> None:
    requires(version("snakemake-executor-plugin-slurm").startswith("2.8."), "another release than 2.8")


@pytest.mark.parametrize("module", [slurm_plugin, snakemake_inside])
def test_a_module_that_knows_the_inside_has_at_most_150_lines(module: ModuleType) -> None:
    assert len(source(module).splitlines()) <= 150


OF_THE_PLUGIN = (
    *("_job_submission_executor", "_submit_job", "_wait_thread", "run_uuid", "get_submit_command"),
    "snakemake_executor_plugin_slurm.",
)
OF_SNAKEMAKE = (
    *("_user_kill", "restart_times", "shadow_depth", "needrun_jobs", ".dependencies", ".raw", ".depending"),
    *("exists_local", "ScriptProcessor", "dag.finish"),
)


@pytest.mark.parametrize(
    ("module", "inside"),
    [
        *((slurm_plugin, name) for name in OF_THE_PLUGIN),
        *((snakemake_inside, name) for name in OF_SNAKEMAKE),
    ],
)
def test_one_module_alone_knows_the_inside(module: ModuleType, inside: str) -> None:
    found = {path.name for path in (ROOT / "src").rglob("*.py") if inside in path.read_text()}

    assert found == {Path(str(module.__file__)).name}


def test_no_module_of_the_executor_imports_snakemake_itself() -> None:
    folder = Path(slurm_plugin.__file__).parent

    assert not [path.name for path in folder.glob("*.py") if "from snakemake." in path.read_text()]


# --- what its text says, and what it takes ---

Plugin = plugin.Executor
OF_A_RULE = ("shadow_depth", "is_handover", "is_checkpoint", "basedir", "script")
OF_A_JOB = {"conda_env_spec", "container_img_url", "env_modules", "group", "benchmark", "resources"}
# Where it stands, what stands there, and what to look at if it does not.
SAYS = [
    (
        RemoteExecutor.__init__,
        "threading.Thread(target=self._wait_thread)",
        "it starts its thread otherwise",
    ),
    (RemoteExecutor.shutdown, "self.wait_thread.join()", "shutdown no longer joins: drop _wait_thread"),
    (RemoteExecutor._wait_for_jobs, "await self.sleep()", "the thread no longer sleeps"),
    (Plugin, "self.report_job_submission", "the plugin does not call it"),
    (Plugin, "self.report_job_success", "the plugin does not call it"),
    (Plugin, "self.report_job_error", "the plugin does not call it"),
    (RemoteExecutor.report_job_submission, "self.active_jobs.append(job_info)", "the list of jobs"),
    (RemoteExecutor.report_job_submission, "with self.lock:", "its lock"),
    (Plugin.run_jobs, "waiting for more jobs", "run_jobs keeps no jobs: drop `offer` and what is left over"),
    (Plugin.run_job, "{job.rule.name}: {e}", "run_job's handler: drop ours"),
    (Plugin, "self._job_submission_executor = ThreadPoolExecutor(", "the pool of threads"),
    (submit_string.get_submit_command, "--job-name {safe_quote(params.run_uuid)}", "the jobs' name"),
    (Plugin.__post_init__, "self.run_uuid = str(uuid.uuid4())", "run_uuid"),
    (Plugin.run_array_jobs, '"run_uuid": self.run_uuid', "the name of arrays"),
    (Plugin.check_active_jobs, "self.next_seconds_between_status_checks = ", "the plugin's pace"),
    (Plugin.check_active_jobs, "status in fail_stati", "which ends it recognizes"),
    (plugin.query_job_status, "status = row[1].strip()", "CANCELLED by"),
    (Plugin.run_job, 'aux={"slurm_logfile": slurm_logfile}', "where a job's log stands"),
    (Plugin.additional_general_args, "slurm-jobstep", "a second Snakemake in a step"),
    (RealExecutor.format_job_exec, "self.additional_general_args(),", "format_job_exec"),
    (RemoteExecutor.get_job_args, "wait_for_files.append(self.tmpdir)", "no folder: drop get_job_args"),
    (RemoteExecutor.shutdown, "shutil.rmtree(self.tmpdir", "the folder stays: drop get_job_args"),
    (Plugin.run_job, "call += set_gres_string(job)", "set_gres_string is no longer added"),
    (Plugin.__post_init__, 'os.getenv("SNAKEMAKE_SLURM_PARTITIONS")', "where it finds the file of partitions"),
    (Plugin.run_job, '"account": next(self.get_account_arg(job))', "which account is taken"),
    (Plugin.get_account_arg, 'yield f" -A {shlex.quote(canonical_account)}"', "how the account is said"),
    (Plugin.__init__, 'if "SLURM_JOB_ID" in os.environ:', "a driver inside a job"),
    (Plugin.clean_old_logs, 'self.slurm_logdir.rglob("*.log")', "which logs are removed"),
    (Plugin, "self.slurm_logdir = _select_logdir(self.workflow)", "where its logs are"),
    (JobScheduler.exit_gracefully, 'self._user_kill = "graceful"', "what a TERM leaves"),
    (JobScheduler.__init__, "self._user_kill = None", "what stands there before"),
    (JobScheduler.schedule, "if executor_error or not running:", "when a scheduler ends"),
    (JobScheduler._handle_error, "if job.restart_times > job.attempt - 1:", "when a job is tried again"),
    (AbstractExecutor.report_job_error, "self.workflow.scheduler.error_callback(", "report_job_error"),
    (
        RemoteExecutor._wait_for_jobs,
        "async for job_info in self.check_active_jobs(active_jobs)",
        "its loop",
    ),
    (RemoteExecutor.sleep, "self.next_seconds_between_status_checks", "it sleeps as told"),
    (JobScheduler.__init__, "self.submit_callback = self._proceed", "immediate submission goes on at the submission"),
    (JobScheduler.__init__, "self.finish_callback = self._noop", "immediate submission goes on at the submission"),
    (SnakemakeJob.postprocess, "if error and not self.dag.workflow.execution_settings.keep_incomplete:", "outputs"),
    (RealExecutor.get_job_args, '"--target-jobs"', "the command of a job names its segment"),
    (RealExecutor.get_job_args, 'format_cli_arg("--attempt", job.attempt)', "the command of a job names its attempt"),
    (RealExecutor.format_job_exec, '"-m snakemake"', "the command of a job"),
    (
        snakemake.parser.Rule.block_content,
        '"Multiple {} keywords in rule {}."',
        "a script excludes notebook:, cwl: and their like",
    ),
    (Workflow.rule, "rule.resources.update(", "resources from the command line"),
    (Workflow.rule, "_parsed_overwrite_resources", "resources from the command line"),
    *((Rule.__init__, f"self.{name} = ", "what a rule needs of Snakemake") for name in OF_A_RULE),
]
LACKS = [
    (AbstractExecutor, "active_jobs", "a report removes a job: drop `_forget`"),
    (Plugin.cancel_jobs, "_job_submission_executor", "cancel_jobs stops the pool: drop ours"),
    (Plugin.check_active_jobs, "self.active_jobs", "the check reads the executor's own list of jobs"),
    (RealExecutor.get_job_args, "tmpdir", "RealExecutor waits for the folder too"),
]
TAKES = [
    (Plugin.__init__, ["self", "workflow", "logger"]),
    (Plugin.run_jobs, ["self", "jobs"]),
    (Plugin.run_job, ["self", "job"]),
    (Plugin.cancel_jobs, ["self", "active_jobs"]),
    (Plugin.check_active_jobs, ["self", "active_jobs"]),
    (SubmittedJobInfo, ["job", "external_jobid", "aux"]),
    (submit_string.get_submit_command, ["job", "params", "settings", "failed_nodes", "array_job"]),
    (utils.set_gres_string, ["job"]),
    (validation.validate_slurm_extra, ["job"]),
    (JobScheduler.error_callback, ["self", "job"]),
    (snakemake.dag.DAG.needrun_jobs, ["self", "exclude_finished"]),
]
REPORTS = ("report_job_submission", "report_job_success", "report_job_error")


@pytest.mark.parametrize(("where", "text", "what"), SAYS)
def test_the_text_that_was_read_is_there(where: object, text: str, what: str) -> None:
    requires(text in source(where), what)


@pytest.mark.parametrize(("where", "text", "what"), LACKS)
def test_what_we_do_instead_is_not_there(where: object, text: str, what: str) -> None:
    requires(text not in source(where), what)


@pytest.mark.parametrize("name", [*REPORTS, "_wait_thread", "run_job_pre"])
def test_the_plugin_leaves_it_to_snakemake(name: str) -> None:
    requires(name not in vars(Plugin), f"the plugin has its own {name}")


@pytest.mark.parametrize(("function", "expected"), TAKES)
def test_it_takes_what_it_is_given(function: object, expected: list[str]) -> None:
    requires(parameters(function) == expected, f"arguments of {function}")


def test_our_own_names_in_its_executor_are_not_the_plugins() -> None:
    own = {name for kind in (PlainJobs, HeldExecutor) for name in vars(kind) if not name.startswith("__")}
    own |= set(re.findall(r"self\.(_\w+)(?:: [^=]+)? = ", source(PlainJobs.__init__)))
    overridden = {"run_jobs", "run_job", "run_job_pre", "cancel_jobs", "_wait_thread"}
    overridden |= {"report_job_submission", "report_job_success", "report_job_error"}

    taken = {name for name in own if name in dir(plugin.Executor) or f"self.{name} = " in source(plugin.Executor)}
    requires(taken - {"_abc_impl"} == overridden, "it has names of ours")


def test_a_job_and_its_resources_say_what_they_need_of_snakemake() -> None:
    requires(set(dir(SnakemakeJob)) >= OF_A_JOB, "what a job needs of Snakemake")
    requires("is_storage" in dir(_IOFile), "files in a storage")
    requires("evaluable" in " ".join(vars(Resource)), "resources that are functions")
    given = Resource.from_cli_expression("tmpdir", "'/scratch'", with_threads_arg=False)
    requires((given.raw, Resource("tmpdir", "/scratch").raw) == ("'/scratch'", "/scratch"), "as it was written")


def test_the_looking_thread_starts_before_the_executor_is_ready() -> None:
    """So everything that it uses is made before Snakemake's constructor is called."""
    text = source(RemoteExecutor.__init__)
    requires(text.index("self.wait_thread.start()") < text.index("self.__post_init__()"), "the looking thread")


def test_each_job_is_announced_by_run_job_pre_when_it_is_submitted() -> None:
    for method in (Plugin._submit_job, Plugin._submit_array_jobs):
        text = source(method)
        requires(text.index("self.run_job_pre(job)") < text.index("executor.submit("), "run_job_pre comes later")


def test_a_group_has_no_rule_for_which_the_handler_of_run_job_asks() -> None:
    requires(not hasattr(GroupJob, "rule") and not hasattr(AbstractJob, "rule"), "groups have a rule: drop our handler")


def test_the_plugin_does_not_recognize_a_preemption_and_is_asked_in_any_loop() -> None:
    """Else `PlainJobs._end_overlooked` is needless."""
    requires(inspect.isasyncgenfunction(Plugin.check_active_jobs), "check_active_jobs is no async generator")
    (known,) = re.findall(r"fail_stati = \(([^)]*)\)", source(Plugin.check_active_jobs))
    requires('"PREEMPTED"' not in known, "PREEMPTED is a failure now")


def test_the_settings_and_values_that_are_read_are_the_plugins() -> None:
    names = {"exclude_failed_nodes", "partition_config", "init_seconds_before_status_checks", "logdir"}
    requires(names <= set(plugin.ExecutorSettings.__dataclass_fields__), "settings")
    used = set(re.findall(r"params\.(\w+)", source(submit_string.get_submit_command)))
    requires(used == {"run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"}, "its params")
    needed = set(re.findall(r"self\.(\w+)", source(Plugin.get_partition_arg)))
    requires(needed == {"_partitions", "_fallback_partition", "logger"}, "get_partition_arg")


def test_slurm_extra_is_checked_by_a_function() -> None:
    with pytest.raises(WorkflowError):
        validation.validate_slurm_extra(SimpleNamespace(resources=Resources(slurm_extra="--job-name=mine"), name="one"))


def test_a_driver_in_a_job_forgets_the_variables_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")  # where the commands find the cluster

    leave_own_job()
    assert [name for name in os.environ if name.startswith("SLURM_")] == ["SLURM_CONF"]


@pytest.mark.parametrize(
    ("logdir", "ours", "is_refused"),
    [
        (None, ".snakemake/unbroken/logs", False),
        (None, ".snakemake/slurm_logs/unbroken", True),
        (Path("logs"), "logs", True),
        (Path(".snakemake"), ".snakemake/unbroken/logs", True),
    ],
)
def test_logs_of_chains_do_not_lie_where_the_plugin_removes_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logdir: Path | None, ours: str, is_refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    workflow = SimpleNamespace(workdir_init=str(tmp_path), executor_settings=SimpleNamespace(logdir=logdir))

    if not is_refused:
        refuse_log_folder(workflow, Path(ours))
        return
    with pytest.raises(WorkflowError, match="in which the Slurm plugin removes old logs"):
        refuse_log_folder(workflow, Path(ours))


# --- all of it at work ---

SLURM = {
    "sbatch": 'for word; do printf "%s\\0" "$word"; done > said.$$; echo 17',
    "squeue": "exit 1",
    "sacct": 'case "$*" in *State*) echo "17|COMPLETED";; *) exit 1;; esac',
    "scontrol": "echo MaxArraySize = 1001",
    "scancel": "exit 0",
    "sacctmgr": "echo science",
    "sinfo": "echo 'short*'",
}
SNAKEFILE = """
rule one:
    output: "one"
    resources:
        alone=int(config["alone"]), runtime=5, mem_mb=300, slurm_account="science", slurm_partition="short",
        slurm_extra="--mail-type=FAIL --licenses='two words'", gpu=1, gpu_model="a100", constraint="fast"
    threads: 3
    shell: "true"
"""


def said_of(folder: Path, alone: int) -> list[str]:
    """Return what a driver tells sbatch of a job: the plugin of a plain one, or we of one that stands for a chain."""
    (folder / "bin").mkdir(parents=True)
    for name, text in SLURM.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "one").touch()
    words = ["--executor", "plainjobs", "--plainjobs-init-seconds-before-status-checks", "1", "--force", "--jobs", "1"]
    words += ["--plainjobs-pass-command-as-script", "--plainjobs-exclude-failed-nodes", "node3", "--plainjobs-requeue"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *words, "--config", f"alone={alone}"],
        cwd=folder,
        env={**clean, "PATH": path, "PYTHONPATH": str(ROOT / "tests/support/plain_executor")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = list(folder.glob("said.*"))
    assert found, done.stderr
    return found[0].read_text().rstrip("\0").split("\0")


@pytest.mark.process
def test_our_words_for_sbatch_are_those_of_the_plugin(tmp_path: Path) -> None:
    plugins, ours = said_of(tmp_path / "plain", alone=0), said_of(tmp_path / "alone", alone=1)

    def comparable(words: list[str]) -> list[str]:
        """Without name, log, comment and folder, which the caller chooses, and the script."""
        named = {"--job-name", "--output", "--comment", "-D"}
        words = [word for word in words if word.partition("=")[0] not in named or "=" not in word]
        rest = [word for at, word in enumerate(words) if word not in named and (at == 0 or words[at - 1] not in named)]
        return [word for word in rest if word != "/dev/stdin"]

    assert comparable(ours) == comparable(plugins)
    assert {"--exclude=node3", "--requeue", "--gpus=a100:1", "--licenses=two words", "science"} <= set(ours)
    assert [word for word in ours if "--job-name" in word] == ["--job-name=alone"]


@pytest.mark.process
def test_a_held_executor_has_no_thread_that_an_end_would_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = PlainDriver(tmp_path, monkeypatch)
    held = driver.plain

    held.wait_thread.join(5)
    assert isinstance(held, HeldExecutor)
    assert held.wait_thread not in threading.enumerate()
    began = time.monotonic()
    driver.plain.shutdown()
    assert time.monotonic() - began < 5
    assert [line for line in driver.said if "SLURM run ID" in line] == driver.said[:1]
