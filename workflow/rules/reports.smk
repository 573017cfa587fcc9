# What is made of runs that are there, all of it where snakemake runs: it takes seconds.

from unbroken.engines.gromacs.tool import report_targets as simulation_reports
from unbroken.engines.training import report_targets as training_reports


# The energies of a finished run, drawn. For all runs: snakemake gromacs_reports --report report.html
rule gromacs_report:
    input:
        energies="results/{run}/final/energy.tsv",
        segments="results/{run}/final/segments.tsv",
    output:
        plot=report(
            "results/{run}/report/energies.svg",
            caption="../report/gromacs_energies.rst",
            category="GROMACS",
            labels={"run": "{run}", "what": "energies over time"},
        ),
        table=report(
            "results/{run}/report/energies.html",
            caption="../report/gromacs_energies.rst",
            category="GROMACS",
            labels={"run": "{run}", "what": "means"},
        ),
    log:
        "logs/{run}/report.log",
    wildcard_constraints:
        run=plan.pattern("gromacs"),
    localrule: True
    script:
        "../../scripts/gromacs_report.py"


rule gromacs_reports:
    input:
        simulation_reports([run for run in plan.runs if run.engine == "gromacs"], plan.base),


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
