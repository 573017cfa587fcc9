# One segment of a gromacs run, and what comes before and after the chain.
# A segment needs the record of the segment before; the first needs the files that the run is made of, and, where the
# config names no tpr, the record of gromacs_prepare.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results, joined, in results/<run>/final.

from unbroken.plan.gromacs_inputs import preparation, sources
from unbroken.engines.gromacs.report import report_targets


# The tpr itself lies in results/<run>/prepared and is no output: Snakemake would remove it before it makes it again,
# and a new one has other random velocities.
rule gromacs_prepare:
    input:
        content=sources(plan.inputs),
    output:
        record="results/{run}/prepared.json",
    log:
        "logs/{run}/prepare.log",
    wildcard_constraints:
        run=plan.pattern("gromacs"),
    # The same files would fail in the same way.
    retries: 0
    # Seconds, where snakemake runs; a job of the cluster would wait in its queue for longer.
    localrule: True
    params:
        assignment=assignment,
    script:
        "../../scripts/gromacs_prepare.py"


rule gromacs_segment:
    input:
        **segment_input,
        prepared=ancient(preparation(plan.run, workflow)),
    output:
        record=segment_record,
    log:
        segment_log,
    wildcard_constraints:
        run=plan.pattern("gromacs"),
        segment=r"\d+",
    threads: segment_threads
    resources:
        **segment_resources,
    params:
        assignment=assignment,
    script:
        "../../scripts/gromacs_segment.py"


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
        report_targets([run for run in plan.runs if run.engine == "gromacs"], plan.base),
