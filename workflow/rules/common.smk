# One short function for each question that an engine's rule asks of the plan, answered by the package.

import math

from unbroken.plan import ctrl_c
from unbroken.plan.after_goal import leave_out_finished
from unbroken.plan.page_writer import PageWriter
from unbroken.plan.snakemake_speed import asked_often
from unbroken.plan.slurm_jobs import jobs_of_earlier_starts, unused_least_minutes
from unbroken.plan.unrehearsed import unrehearsed
from unbroken.plan.tell import tell_full_disk_at_exit
from unbroken.plan.work_times import give_true_times
from unbroken.runs import notify_process
from unbroken.runs.driver_start import keep_private


@asked_often
def previous_record(wildcards):
    """The record that a segment goes on from."""
    return plan.previous(wildcards.run, wildcards.segment)


@asked_often
def content_files(wildcards):
    """The files that the run is made of; the first segment has them for all."""
    return plan.inputs(wildcards.run, wildcards.segment)


@asked_often
def assignment(wildcards):
    """The run's settings; what of them changes the result is checked by its identity, not by Snakemake."""
    return plan.assignment(wildcards.run)


@asked_often
def threads_of(wildcards):
    return plan.run(wildcards.run).threads


@asked_often
def attempt_number(wildcards, attempt):
    """Counts from 1 within one call of snakemake."""
    return attempt


@asked_often
def mem_mb(wildcards):
    """More after an attempt that Slurm ended for want of it; Snakemake asks anew at each attempt."""
    return plan.mem_mb(wildcards.run, wildcards.segment)


@asked_often
def gpu_count(wildcards):
    return plan.run(wildcards.run).gpus


@asked_often
def runtime_minutes(wildcards):
    """Whole minutes, as Slurm counts them."""
    return math.ceil(plan.run(wildcards.run).segment_minutes)


# What every engine's segments need, leave and write, for `input: **segment_input`, `output: record=segment_record`, `log:
# segment_log`.
segment_input = {"previous": ancient(previous_record), "content": ancient(content_files)}
segment_record = "results/{run}/segments/{segment}.json"
segment_log = "logs/{run}/{segment}.log"

# The threads and resources of every engine's segments, for `threads: segment_threads` and `resources: **segment_resources`.
segment_threads = plan.shared(threads_of)
segment_resources = {
    "attempt": attempt_number,
    "mem_mb": mem_mb if plan.slurm else plan.shared(mem_mb),
    "runtime": plan.shared(runtime_minutes),
    "gpu": plan.shared(gpu_count),
    **plan.slurm_resources(),
}


page_writer = PageWriter(plan.base, workflow, config)
ended = []


def tell_line(line):
    tell([line])


def check_start():
    """Before the first job: refuses to go to Slurm without the site's settings, removes records that are made anew, notes
    when those of jobs without a driver were made, and names runs that were not rehearsed and jobs that are still out.
    From then on, a run that reaches its goal leaves the plan, Ctrl-C lets the segments here save, and
    results/report.html is kept fresh."""
    executor = workflow.executor_plugin.name
    refuse_missing_site(plan, executor)
    keep_private(plan.base, workflow.configfiles)
    tell_full_disk_at_exit(plan.base, lambda: bool(ended))
    plan.remove_outdated()
    give_true_times(plan.runs, plan.base)
    tell(unrehearsed(plan.runs, plan.base))
    tell(jobs_of_earlier_starts(executor))
    tell(unused_least_minutes(plan.runs, executor))
    notify_process.want(bool(config.get("notify")), plan.base)
    leave_out_finished(workflow, plan.runs, tell_line)
    ctrl_c.listen(plan.runs, tell_line)
    page_writer.begin()


def tell_what_is_left():
    """At the end: one line a run that is not finished, with what to type, but where jobs go on without a driver; and the
    last page."""
    ended.append(True)
    if not workflow.remote_execution_settings.immediate_submit:
        tell(plan.report())
        notify_process.start(plan.base, is_over=True)
    page_writer.end()
