# One short function for each question that an engine's rule asks of the plan, answered by the package.

import math

from longhaul.many_jobs import asked_often


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
    return plan.run(wildcards.run).mem_mb


@asked_often
def gpu_count(wildcards):
    return plan.run(wildcards.run).gpus


@asked_often
def runtime_minutes(wildcards):
    """Whole minutes, as Slurm counts them."""
    return math.ceil(plan.run(wildcards.run).segment_minutes)


def tell_what_is_left():
    """At the end: one line a run that is not finished, with what to type."""
    tell(plan.report())
