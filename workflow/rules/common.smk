# What all engines' rules share: one short function for each question that a rule asks of the plan.

from unbroken.engines.gromacs.tpr import prepared_record


def previous_record(wildcards):
    """The record from which a segment resumes."""
    return plan.previous(wildcards.run, wildcards.segment)


def assignment(wildcards):
    """The run's settings; what of them changes the result is checked by its identity, not by Snakemake."""
    return plan.assignment(wildcards.run)


def prepared_tpr(wildcards):
    """The record of a tpr's preparation. Where Snakemake only submits, the first segment prepares it: local rules are skipped."""
    settings = workflow.remote_execution_settings  # not there yet while the rules are read
    only_submits = settings is not None and settings.immediate_submit
    return [] if only_submits else prepared_record(plan.run(wildcards.run), int(wildcards.segment))


# For `input: **segment_input`, `output: record=segment_record`, `log: segment_log`, `threads: segment_threads` and
# `resources: **segment_resources`.
segment_input = {"previous": ancient(previous_record)}
segment_record = "results/{run}/segments/{segment}.json"
segment_log = "logs/{run}/{segment}.log"
segment_threads = plan.threads()
segment_resources = plan.resources()


# A workflow that imports this one calls these two in its own handlers (docs/module.md).


def check_start():
    driver.start()


def tell_what_is_left():
    driver.end()
