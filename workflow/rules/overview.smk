# All runs in one table: snakemake overview; in the report: snakemake overview --report report.html
# Needs what the runs have left so far; asks none of them to go on. Leaves a table for programs and a page for people.


# A table is no job for a cluster.
localrules:
    overview,


rule overview:
    input:
        evidence(plan.runs, plan.base),
    output:
        table="results/overview.tsv",
        page=report(
            "results/overview.html",
            caption="../report/overview.rst",
            category="Runs",
            labels={"what": "all runs"},
        ),
    log:
        "logs/overview.log",
    params:
        runs=plan.runs,
    script:
        "../../scripts/overview.py"
