# One segment of a gromacs run, and what comes before the first.
# A segment needs the record of the segment before; the first needs, where the config names no tpr, the record of
# gromacs_prepare.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results, joined, in results/<run>/final.


# The tpr itself lies in results/<run>/prepared and is no output: Snakemake would remove it before it makes it again,
# and a new one has other random velocities.
rule gromacs_prepare:
    input:
        content=lambda wildcards: plan.content(wildcards.run),
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
        prepared=ancient(prepared_tpr),
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
