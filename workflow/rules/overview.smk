# All runs in one table for programs: snakemake overview. For people: results/report.html.
# Needs what the runs have left so far; asks none of them to go on.


# A table is no job for a cluster.
localrules:
    overview,


rule overview:
    input:
        evidence(plan.runs, plan.base),
    output:
        "results/overview.tsv",
    log:
        "logs/overview.log",
    params:
        runs=plan.runs,
    script:
        "../../scripts/overview.py"
