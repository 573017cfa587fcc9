# One segment of a torch run.
# Needs the record of the segment before; the first needs the files that the run is made of.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results in results/<run>/final.

from unbroken.training.core.report_targets import report_targets as training_reports


rule torch_segment:
    input:
        **segment_input,
    output:
        record=segment_record,
    log:
        segment_log,
    wildcard_constraints:
        run=plan.pattern("torch"),
        segment=r"\d+",
    threads: segment_threads
    resources:
        **segment_resources,
    params:
        assignment=assignment,
    script:
        "../../scripts/torch_segment.py"


# The metrics of a run, finished or not, drawn. For all runs: snakemake torch_reports --report report.html
rule torch_report:
    input:
        metrics="results/{run}/live/metrics.jsonl",
        timing="results/{run}/live/timing.jsonl",
    output:
        plot=report(
            "results/{run}/report/metrics.svg",
            caption="../report/torch_metrics.rst",
            category="Trainings",
            labels={"run": "{run}", "what": "metrics over steps"},
        ),
        table=report(
            "results/{run}/report/times.html",
            caption="../report/torch_metrics.rst",
            category="Trainings",
            labels={"run": "{run}", "what": "times"},
        ),
    log:
        "logs/{run}/report.log",
    wildcard_constraints:
        run=plan.pattern("torch"),
    localrule: True
    script:
        "../../scripts/torch_report.py"


rule torch_reports:
    input:
        training_reports([run for run in plan.runs if run.engine == "torch"], plan.base),
