"""What `internals` relies on in snakemake-executor-plugin-slurm and in Snakemake, one test for each touch.

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
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as plugin
from snakemake.jobs import AbstractJob, GroupJob
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake_executor_plugin_slurm import submit_string, utils, validation
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor, SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from support.plain_driver import PlainDriver
from support.workdir import ROOT

from snakemake_executor_plugin_unbroken import internals
from snakemake_executor_plugin_unbroken.executor import leave_own_job, refuse_log_folder
from snakemake_executor_plugin_unbroken.internals import HeldExecutor
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs

READ = "read the new release and change internals.py: "


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


def test_the_module_that_knows_the_inside_has_at_most_150_lines() -> None:
    assert len(Path(internals.__file__).read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    "inside",
    [
        *("_job_submission_executor", "_submit_job", "_wait_thread", "run_uuid", "get_submit_command"),
        *(
            "_user_kill",
            "restart_times",
            "shadow_depth",
            "needrun_jobs",
            ".dependencies",
            ".raw",
        ),
        "snakemake_executor_plugin_slurm.",
    ],
)
def test_one_module_alone_knows_the_inside(inside: str) -> None:
    folder = Path(internals.__file__).parent
    found = {path.name for path in folder.glob("*.py") if inside in path.read_text()}

    assert found == {"internals.py"}


def test_no_module_imports_snakemake_itself() -> None:
    folder = Path(internals.__file__).parent

    assert not [path.name for path in folder.glob("*.py") if "from snakemake." in path.read_text()]


# --- holding the plugin's executor ---


def test_the_constructor_takes_workflow_and_logger_and_starts_the_thread_by_its_method() -> None:
    requires(parameters(plugin.Executor.__init__) == ["self", "workflow", "logger"], "arguments of Executor()")
    text = source(RemoteExecutor.__init__)
    requires("threading.Thread(target=self._wait_thread)" in text, "RemoteExecutor starts its thread in another way")
    requires("_wait_thread" not in vars(plugin.Executor), "the plugin has a monitoring thread of its own")


def test_an_end_waits_for_the_monitoring_thread_which_sleeps_if_it_runs() -> None:
    requires(
        "self.wait_thread.join()" in source(RemoteExecutor.shutdown), "shutdown no longer joins: drop _wait_thread"
    )
    requires("await self.sleep()" in source(RemoteExecutor._wait_for_jobs), "the thread no longer sleeps")


def test_reports_go_through_three_methods_that_the_plugin_leaves_to_snakemake() -> None:
    for name in ("report_job_submission", "report_job_success", "report_job_error"):
        requires(name not in vars(plugin.Executor), f"the plugin has its own {name}")
        requires(f"self.{name}" in source(plugin.Executor), f"the plugin does not call {name}")


def test_jobs_that_are_out_stand_in_a_list_that_only_the_monitoring_thread_empties() -> None:
    requires("self.active_jobs.append(job_info)" in source(RemoteExecutor.report_job_submission), "the list of jobs")
    requires("with self.lock:" in source(RemoteExecutor.report_job_submission), "its lock")
    requires("active_jobs" not in source(AbstractExecutor), "a report removes a job: drop `_forget`")


def test_our_own_names_in_its_executor_are_not_the_plugins() -> None:
    own = {name for kind in (PlainJobs, HeldExecutor) for name in vars(kind) if not name.startswith("__")}
    own |= set(re.findall(r"self\.(_\w+)(?:: [^=]+)? = ", source(PlainJobs.__init__)))
    overridden = {"run_jobs", "run_job", "run_job_pre", "cancel_jobs", "_wait_thread"}
    overridden |= {"report_job_submission", "report_job_success", "report_job_error"}

    taken = {name for name in own if name in dir(plugin.Executor) or f"self.{name} = " in source(plugin.Executor)}
    requires(taken - {"_abc_impl"} == overridden, "it has names of ours")


def test_each_job_is_announced_by_run_job_pre_when_it_is_submitted() -> None:
    for method in (plugin.Executor._submit_job, plugin.Executor._submit_array_jobs):
        text = source(method)
        requires(text.index("self.run_job_pre(job)") < text.index("executor.submit("), "run_job_pre comes later")
    requires("run_job_pre" not in vars(plugin.Executor), "the plugin has its own run_job_pre")


def test_jobs_for_an_array_that_is_not_full_are_not_submitted() -> None:
    text = source(plugin.Executor.run_jobs)
    requires(parameters(plugin.Executor.run_jobs) == ["self", "jobs"], "arguments of run_jobs")
    requires("waiting for more jobs" in text, "run_jobs keeps no jobs: drop `offer` and what is left over")


def test_the_handler_of_run_job_asks_a_group_for_its_rule_which_it_has_not() -> None:
    requires(parameters(plugin.Executor.run_job) == ["self", "job"], "arguments of run_job")
    requires("{job.rule.name}: {e}" in source(plugin.Executor.run_job), "run_job's handler: drop ours")
    requires(not hasattr(GroupJob, "rule") and not hasattr(AbstractJob, "rule"), "groups have a rule: drop our handler")


def test_jobs_are_submitted_by_a_pool_that_forgets_those_that_wait() -> None:
    requires("self._job_submission_executor = ThreadPoolExecutor(" in source(plugin.Executor), "the pool of threads")
    requires("_job_submission_executor" not in source(plugin.Executor.cancel_jobs), "cancel_jobs stops it: drop ours")
    requires(parameters(plugin.Executor.cancel_jobs) == ["self", "active_jobs"], "arguments of cancel_jobs")


def test_all_jobs_of_a_driver_bear_one_name() -> None:
    requires("--job-name {safe_quote(params.run_uuid)}" in source(submit_string.get_submit_command), "the jobs' name")
    requires("self.run_uuid = str(uuid.uuid4())" in source(plugin.Executor.__post_init__), "run_uuid")
    requires('"run_uuid": self.run_uuid' in source(plugin.Executor.run_array_jobs), "the name of arrays")


def test_the_status_check_may_be_called_from_any_loop_and_says_when_it_wants_to_be_called_next() -> None:
    text = source(plugin.Executor.check_active_jobs)
    requires(inspect.isasyncgenfunction(plugin.Executor.check_active_jobs), "check_active_jobs is no async generator")
    requires(parameters(plugin.Executor.check_active_jobs) == ["self", "active_jobs"], "arguments of check_active_jobs")
    requires("self.next_seconds_between_status_checks = " in text, "the plugin's pace")
    requires("self.active_jobs" not in text, "the check reads the executor's own list of jobs")


def test_the_plugin_does_not_recognize_some_endings() -> None:
    """Else `PlainJobs._without_overlooked` is needless."""
    text = source(plugin.Executor.check_active_jobs)
    (known,) = re.findall(r"fail_stati = \(([^)]*)\)", text)
    requires('"PREEMPTED"' not in known, "PREEMPTED is a failure now")
    requires(
        "status in fail_stati" in text and "status = row[1].strip()" in source(plugin.query_job_status), "CANCELLED by"
    )


def test_a_job_is_known_by_its_number_and_its_log() -> None:
    requires('aux={"slurm_logfile": slurm_logfile}' in source(plugin.Executor.run_job), "where a job's log stands")
    requires(parameters(SubmittedJobInfo) == ["job", "external_jobid", "aux"], "SubmittedJobInfo")


def test_the_settings_that_are_read_are_the_plugins() -> None:
    names = {"exclude_failed_nodes", "partition_config", "init_seconds_before_status_checks", "logdir"}
    requires(names <= set(plugin.ExecutorSettings.__dataclass_fields__), "settings")


# --- a job's command and words ---


def test_a_job_has_a_second_snakemake_by_one_method_which_gives_a_string() -> None:
    requires("slurm-jobstep" in source(plugin.Executor.additional_general_args), "additional_general_args")
    requires("self.additional_general_args()," in source(RealExecutor.format_job_exec), "format_job_exec")


def test_a_job_of_the_plugin_waits_for_a_folder_that_its_driver_removes() -> None:
    requires(
        "wait_for_files.append(self.tmpdir)" in source(RemoteExecutor.get_job_args), "no folder: drop get_job_args"
    )
    requires("tmpdir" not in source(RealExecutor.get_job_args), "RealExecutor waits for the folder too")
    requires("shutil.rmtree(self.tmpdir" in source(RemoteExecutor.shutdown), "the folder stays: drop get_job_args")


def test_the_words_for_sbatch_are_made_of_these_values() -> None:
    expected = ["job", "params", "settings", "failed_nodes", "array_job"]
    requires(parameters(submit_string.get_submit_command) == expected, "arguments of get_submit_command")
    used = set(re.findall(r"params\.(\w+)", source(submit_string.get_submit_command)))
    requires(used == {"run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"}, "its params")
    requires(parameters(utils.set_gres_string) == ["job"], "set_gres_string")
    requires("call += set_gres_string(job)" in source(plugin.Executor.run_job), "set_gres_string is no longer added")


def test_slurm_extra_is_checked_by_a_function() -> None:
    requires(parameters(validation.validate_slurm_extra) == ["job"], "validate_slurm_extra")
    with pytest.raises(WorkflowError):
        validation.validate_slurm_extra(SimpleNamespace(resources=Resources(slurm_extra="--job-name=mine"), name="one"))


def test_the_choice_of_a_partition_needs_three_things_of_the_executor() -> None:
    text = source(plugin.Executor.get_partition_arg)
    requires(
        set(re.findall(r"self\.(\w+)", text)) == {"_partitions", "_fallback_partition", "logger"}, "get_partition_arg"
    )
    file = 'os.getenv("SNAKEMAKE_SLURM_PARTITIONS")'
    requires(file in source(plugin.Executor.__post_init__), "where the plugin finds the file of partitions")


def test_a_job_gets_the_first_of_its_accounts() -> None:
    requires('"account": next(self.get_account_arg(job))' in source(plugin.Executor.run_job), "which account is taken")
    requires(
        'yield f" -A {shlex.quote(canonical_account)}"' in source(plugin.Executor.get_account_arg), "how it is said"
    )


def test_a_driver_in_a_job_forgets_the_variables_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    requires('if "SLURM_JOB_ID" in os.environ:' in source(plugin.Executor.__init__), "a driver inside a job")
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
    requires('self.slurm_logdir.rglob("*.log")' in source(plugin.Executor.clean_old_logs), "which logs are removed")
    requires("self.slurm_logdir = _select_logdir(self.workflow)" in source(plugin.Executor), "where its logs are")
    monkeypatch.chdir(tmp_path)
    workflow = SimpleNamespace(workdir_init=str(tmp_path), executor_settings=SimpleNamespace(logdir=logdir))

    if not is_refused:
        refuse_log_folder(workflow, Path(ours))
        return
    with pytest.raises(WorkflowError, match="in which the Slurm plugin removes old logs"):
        refuse_log_folder(workflow, Path(ours))


# --- the scheduler ---


def test_a_scheduler_notes_that_it_is_told_to_end() -> None:
    requires('self._user_kill = "graceful"' in source(JobScheduler.exit_gracefully), "what a TERM leaves")
    requires("self._user_kill = None" in source(JobScheduler.__init__), "what stands there before")
    requires("if executor_error or not running:" in source(JobScheduler.schedule), "when a scheduler ends")


def test_a_job_without_attempts_left_ends_by_the_schedulers_callback() -> None:
    requires(parameters(JobScheduler.error_callback) == ["self", "job"], "error_callback")
    requires(
        "if job.restart_times > job.attempt - 1:" in source(JobScheduler._handle_error), "when a job is tried again"
    )
    requires("self.workflow.scheduler.error_callback(" in source(AbstractExecutor.report_job_error), "report_job_error")


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
