"""All that is used of the inside of snakemake-executor-plugin-slurm 2.8, and of Snakemake's; no other module knows it.

The parent has no interface for those who build on it.  Each method says what it relies on and what for; when a release
changes any of it, tests/unit/test_executor_parent.py fails first.  docs/executor.md has the three hooks that would do.
"""

from __future__ import annotations

import ast
import math
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake.io import strip_wildcard_constraints
from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage
from snakemake_interface_executor_plugins.utils import encode_target_jobs_cli_args

from unbroken.slurm.job_comment import comment_of, log_of

# What it puts into every job's command (additional_general_args): a second Snakemake, in a step of its own.
_SECOND_SNAKEMAKE = "--executor slurm-jobstep --jobs 1"
# A segment's job does without: that saves a start of a second or two, and no signal of Slurm reaches the Snakemake in
# the batch step, which would count the job as failed and remove its record; the segment hears it all the same
# (unbroken.slurm.signal_relay).  A record is published in one step, so there is none that is half made; and a driver
# may have taken it for the end of the segment already when Slurm lets the job fail.
_IN_THE_BATCH_STEP = "--executor local"
_KEEP = " --keep-incomplete"
# Slurm ends a job by a TERM to the first process of the batch step, a shell.  If that dies, everything in the job is
# killed at once (measured with control groups, Slurm 22.05); as long as it waits, the segment has Slurm's KillWait to
# save.  Not `trap ''`, which the programs below would inherit.
_PATIENT_SHELL = "trap : TERM; "
_SNAKEMAKE = f"{sys.executable} -m snakemake"
# Its words for `--clusters`.
OTHER_CLUSTER = {"cluster", "clusters", "slurm_cluster"}
# Where it keeps a job's log, in what it knows of the job (`SubmittedJobInfo.aux`).
_LOG = "slurm_logfile"


def is_immediate(workflow: Any) -> bool:
    """True with --immediate-submit, known before the executor is ready."""
    return bool(workflow.remote_execution_settings.immediate_submit)


class SlurmParent(SlurmExecutor):  # type: ignore[misc]  # the parent publishes no types
    """The parent with what it lacks: whoever builds on it overrides the first five methods, and calls the others."""

    run_uuid: str

    def __init__(self, workflow: Any, logger: Any) -> None:
        # Before the thread starts that looks after jobs.
        self._finished_logs: list[Path] = []
        self._accounts: dict[str, list[str]] = {}
        super().__init__(workflow, logger)

    # --- what the executor decides ---

    def is_complete(self, job: Any) -> bool:
        """True if the job is not to be submitted now; asked where jobs are submitted, in a thread of the parent's."""
        return False

    def command_of(self, job: Any, command: str) -> str:
        """What the job runs, made of what the parent would let it run."""
        return command

    def more_sbatch_words(self, job: Any) -> str:
        """Further words for sbatch."""
        return ""

    def is_taken_care_of(self, job: Any, said: str) -> bool:
        """True if nobody else has to hear that sbatch refused the job with these words."""
        return False

    def files_to_wait_for(self, job: Any) -> list[str] | None:
        """Those that the job's own Snakemake waits for before it begins.

        None for the parent's: all its input, and a folder of this driver's, which a driver removes when it ends: a job
        that starts after that fails.
        """
        return None

    # --- what it calls ---

    def submit_now(self, job: Any) -> None:
        """By sbatch, in this thread; ends in `report_job_submission` or `is_taken_care_of`."""
        super().run_job(job)

    def submit_soon(self, job: Any) -> None:
        """In a thread of the parent's; an error of ours there ends the driver, which would wait for the job for ever.

        Relies on its pool of threads, and on the scheduler's callback for errors.
        """

        def raise_in_scheduler(done: Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self.workflow.scheduler.executor_error_callback(error)

        self._job_submission_executor.submit(self.run_job, job).add_done_callback(raise_in_scheduler)

    def go_on_after(self, job: Any) -> None:
        """With --immediate-submit: to the jobs behind this one, for which nothing was submitted.

        Relies on the scheduler going on at a submission, whether there is a number of a job or not.
        """
        SlurmExecutor.report_job_submission(self, SubmittedJobInfo(job), register_job=False)

    def give_up(self, job: Any) -> None:
        """No further attempt.  Snakemake tries again while `attempt` is at most `restart_times`."""
        job.attempt = max(job.attempt, job.restart_times + 1)

    def is_told_to_end(self) -> bool:
        """True after a TERM to the driver; relies on the scheduler's note of it."""
        return getattr(self.workflow.scheduler, "_user_kill", None) is not None

    def leave_to_next_start(self, job: Any) -> None:
        """This driver is done with the job, which is no failure that anybody has to read of.

        Relies on the scheduler's callback for jobs that failed; `report_job_error` would print a block of lines first.
        """
        self.give_up(job)
        self.workflow.scheduler.error_callback(job)

    def retries_of(self, job: Any) -> int:
        """How many further attempts Snakemake makes after a failure."""
        return int(job.restart_times)

    def latency_seconds(self) -> float:
        """How long a file may need until it is seen here."""
        return float(self.workflow.execution_settings.latency_wait)

    def rules_to_be_run(self) -> list[Any]:
        """The rules of all jobs that this driver would run, once each, in order of their names."""
        found = {job.rule.name: job.rule for job in self.jobs_to_be_run()}
        return [found[name] for name in sorted(found)]

    def jobs_to_be_run(self) -> Iterator[Any]:
        """All that this driver would run and has not yet."""
        yield from self.workflow.dag.needrun_jobs()

    def inputs_to_wait_for(self, job: Any) -> list[str]:
        """The parent's files without a folder of this driver's."""
        return [str(path) for path in job.get_wait_for_files()]

    def numbers_kept_for(self, job: Any) -> list[str]:
        """The numbers of Slurm's jobs that Snakemake has noted for this one, in this and earlier starts."""
        return list(self.workflow.persistence.external_jobids(job))

    def adopted(self, job: Any, job_id: str) -> SubmittedJobInfo:
        """A job that is out already, as the parent would report it; relies on where it puts Slurm's logs."""
        log = self.slurm_logdir / log_of(job.name, job.wildcards, job_id)
        return SubmittedJobInfo(job, external_jobid=job_id, aux={_LOG: log})

    def logs_of(self, info: SubmittedJobInfo) -> list[Path]:
        """Slurm's log of a job, if it has been submitted."""
        log = (info.aux or {}).get(_LOG)
        return [] if log is None else [Path(log)]

    def log_folder(self) -> Path:
        """Where Slurm's logs are."""
        return Path(self.slurm_logdir).absolute()

    def command_alone(self, job: Any) -> str:
        """What the parent would let the job run; it relies on the method being free of effects."""
        return str(super().format_job_exec(job))

    def sbatch_words(self, job: Any) -> list[str]:
        """What the parent says to sbatch of a job, without what it runs, and without `more_sbatch_words`.

        Relies on the two functions that it puts them together by, and on the names of what these are given.
        """
        parameters = {
            "run_uuid": self.run_uuid,
            "slurm_logfile": self.slurm_logdir / log_of(job.name, job.wildcards),
            "comment_str": comment_of(job.name, job.wildcards),
            "account": next(self.get_account_arg(job)),
            "partition": super().get_partition_arg(job),
            "workdir": self.workflow.workdir_init,
        }
        settings = self.workflow.executor_settings
        call = get_submit_command(job, parameters, settings=settings, failed_nodes=self._failed_nodes)
        return shlex.split(call + set_gres_string(job))[1:]

    def needs_no_log(self, info: SubmittedJobInfo) -> None:
        """The job went well: its log is removed at the driver's end, when the job has surely closed it."""
        if not self.workflow.executor_settings.keep_successful_logs:
            self._finished_logs += self.logs_of(info)

    def name_jobs(self, start: str) -> None:
        """How the names of the jobs in the queue begin; before the first is submitted."""
        self.run_uuid = f"{start}_{self.run_uuid}"

    # --- what of the parent is overridden for that ---

    def run_job(self, job: Any) -> None:
        """The parent's whole submission of one job."""
        if not self.is_complete(job):
            self.submit_now(job)

    def format_job_exec(self, job: Any) -> str:
        """The command behind `sbatch --wrap`."""
        return self.command_of(job, str(super().format_job_exec(job)))

    def get_partition_arg(self, job: Any) -> str:
        """The one of the parent's words for sbatch that is always asked for, and not quoted."""
        return str(super().get_partition_arg(job)) + self.more_sbatch_words(job)

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Nothing where the site names none: Slurm knows the user's own; the parent's guess never works (2.8.0).

        Slurm is asked once for each, and not for each job.
        """
        account = job.resources.get("slurm_account")
        if account and account not in self._accounts:
            self._accounts[account] = list(super().get_account_arg(job))
        yield from self._accounts[account] if account else [""]

    def get_job_args(self, job: Any, **more: Any) -> str:
        """The command line of a job's own Snakemake; that of RealExecutor waits for no files."""
        files = self.files_to_wait_for(job)
        if files is None:
            return str(super().get_job_args(job, **more))
        words = ["--wait-for-files", *files] if files else []
        return f"{RealExecutor.get_job_args(self, job, **more)} {shlex.join(words)}"

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        """What the parent calls when sbatch failed, with sbatch's words among its own."""
        if not self.is_taken_care_of(job_info.job, msg):
            super()._report_job_error_threadsafe(job_info, msg)

    def clean_old_logs(self) -> None:
        """Removes Slurm's old logs; not empty folders, as the parent does, into which waiting jobs will write."""
        settings = self.workflow.executor_settings
        if settings.delete_logfiles_older_than > 0 and not settings.keep_successful_logs:
            oldest = time.time() - settings.delete_logfiles_older_than * 86400
            _remove(path for path in self.slurm_logdir.rglob("*.log") if _changed_unix(path) < oldest)

    def shutdown(self) -> None:
        """As the parent; then logs that nobody needs."""
        super().shutdown()
        _remove(self._finished_logs)


def in_the_batch_step(command: str, keeps_incomplete: bool = True) -> str:
    """The command of a job without a second Snakemake; WorkflowError if the parent has changed.

    Outputs of somebody's rule are removed as ever when it fails.
    """
    if command.count(_SECOND_SNAKEMAKE) != 1:
        raise WorkflowError(_changed(_SECOND_SNAKEMAKE))
    return _PATIENT_SHELL + command.replace(_SECOND_SNAKEMAKE, _IN_THE_BATCH_STEP + (_KEEP if keeps_incomplete else ""))


def chain_command(command: str, spec_path: Path) -> str:
    """Return what a job of a chain runs, by the command of a plain job; WorkflowError if the parent has changed."""
    before, found, _ = command.partition(_SNAKEMAKE)
    if not found:
        raise WorkflowError(_changed(_SNAKEMAKE))
    return f"{_PATIENT_SHELL}{before}{sys.executable} {shlex.join(['-m', 'unbroken.job', str(spec_path)])}"


def snakemake_words(command: str, keeps_incomplete: bool) -> tuple[str, ...]:
    """Return the command by which a job's own Snakemake is started, without a second one in a step of its own."""
    _, found, after = in_the_batch_step(command, keeps_incomplete).partition(_SNAKEMAKE)
    if not found:
        raise WorkflowError(_changed(_SNAKEMAKE))
    return (sys.executable, "-m", "snakemake", *shlex.split(after))


def chain_words(words: Sequence[str]) -> list[str]:
    """Return the words for sbatch without those that name one job."""
    left, kept = iter(words), list[str]()
    for word in left:
        if word in ("--job-name", "--output", "--comment"):
            next(left, None)
        elif word != "--parsable":
            kept.append(word)
    return kept


def limited_resources(job: Any) -> list[str]:
    """Return the resources of a job that this start limits for all jobs together (--resources)."""
    limits = job.rule.workflow.resource_settings.resources
    return sorted(name for name in limits if not name.startswith("_") and name in job.resources.keys())  # noqa: SIM118  (no dict)


def with_our_commands(command: str) -> str:
    """The same, where `unbroken` is this one; PATH is read by whichever shell runs the job."""
    return f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; {command}'


def behind(command: str, module: str, words: Sequence[str]) -> str:
    """The same command, started and followed by a module of ours; WorkflowError if the parent has changed."""
    if _SNAKEMAKE not in command:
        raise WorkflowError(_changed(_SNAKEMAKE))
    return command.replace(_SNAKEMAKE, f"{sys.executable} {shlex.join(['-m', module, *words, '--'])} {_SNAKEMAKE}", 1)


def by_ticket(command: str, module: str, ticket: Path, job: Any) -> str:
    """The command of a job with a module of ours in the place of its Snakemake; WorkflowError as `behind`."""
    before, found, _ = command.partition(_SNAKEMAKE)
    if not found:
        raise WorkflowError(_changed(_SNAKEMAKE))
    target = encode_target_jobs_cli_args(job.get_target_spec())
    words = ["-m", module, str(ticket), *target, "--attempt", str(job.attempt)]
    return f"{before}{sys.executable} {shlex.join(words)}"


def local_script(job: Any) -> Path | None:
    """The script of a job's rule, if it is a file here."""
    if job.is_group() or not isinstance(job.rule.script, str):
        return None
    path = Path(str(job.rule.basedir.join(job.rule.script).get_path_or_uri(secret_free=True)))
    return path if path.is_absolute() and path.is_file() else None


def asks_more_of_snakemake(job: Any) -> bool:
    """True for a job that needs more of Snakemake than that it starts a script with this Python.

    Relies on what its `Job`, `Rule` and `Workflow` call these things.
    """
    rule, workflow = job.rule, job.rule.workflow
    of_rule = (rule.shadow_depth, job.group, rule.template_engine, rule.notebook, rule.cwl)
    of_machine = (job.conda_env_spec, job.container_img_url, job.env_modules, job.resources.get("shell_exec"))
    of_start = (workflow.storage_settings.default_storage_provider, rule.is_handover, rule.is_checkpoint)
    files = [*job.input, *job.output, *job.log]
    is_everywhere = workflow.storage_settings.shared_fs_usage == frozenset(SharedFSUsage)
    return any((*of_rule, *of_machine, *of_start, not is_everywhere)) or any(path.is_storage for path in files)


def plain_tmpdir(job: Any) -> str | None:
    """What the job's resource `tmpdir` is for its node; '' for the node's own, None if only Snakemake could say."""
    if (job.rule.workflow.resource_settings.overwrite_resources or {}).get(job.rule.name, {}).get("tmpdir"):
        return None
    given = job.rule.resources.get("tmpdir")
    raw = "system_tmpdir" if given is None else str(given.raw)
    if raw == "system_tmpdir":
        return ""
    try:
        value = ast.literal_eval(raw)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def plain_benchmark(job: Any) -> str | None:
    """The pattern of a job's `benchmark:`; '' for none, None if only Snakemake could write it."""
    pattern, job_benchmark = job.rule.benchmark, job.benchmark
    if job_benchmark is None:
        return ""
    is_plain = isinstance(pattern, str) and not job_benchmark.is_storage and job.benchmark_repeats in (None, 1)
    if not is_plain or job.rule.workflow.output_settings.benchmark_extended:
        return None
    return str(strip_wildcard_constraints(str(pattern)))


def note_began(job: Any, began_unix: float) -> None:
    """When a job's work began: else its wait in the queue counts as run time in Snakemake's report.

    Relies on the file by which Snakemake marks an output under way, and whose time it then takes for that; the job has
    removed it by now.
    """
    persistence = job.rule.workflow.persistence
    with suppress(OSError, AttributeError):
        for path in job.output:
            persistence._mark_incomplete(str(path), None)
            os.utime(persistence._record_path(persistence._incomplete_path, str(path)), (began_unix, began_unix))


def _changed_unix(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return math.inf


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _changed(what: str) -> str:
    return f"the command of a job lacks {what!r}: another snakemake-executor-plugin-slurm than 2.8"
