# One segment of a run of any other engine: `outside` stands for those that other packages bring
# (docs/engines/your-own.md).  The rules of torch, tensorflow, gromacs and dmtcp look the same, each in a file of its own.
# Needs the record of the segment before. The files that the run is made of are checked at each start and in each job.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results in results/<run>/final.

for engine in ("toy", "command", "jax", "outside"):

    rule:
        name:
            f"{engine}_segment"
        input:
            **segment_input,
        output:
            record=segment_record,
        log:
            segment_log,
        wildcard_constraints:
            run=plan.pattern(engine),
            segment=r"\d+",
        threads: segment_threads
        resources:
            **segment_resources,
        params:
            assignment=assignment,
        script:
            "../../scripts/segment.py"
