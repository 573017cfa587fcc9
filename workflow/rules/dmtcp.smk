# One segment of a dmtcp run.
# Needs the record of the segment before. The files that the run is made of are checked at each start and in each job.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results in results/<run>/final.


rule dmtcp_segment:
    input:
        **segment_input,
    output:
        record=segment_record,
    log:
        segment_log,
    wildcard_constraints:
        run=plan.pattern("dmtcp"),
        segment=r"\d+",
    threads: segment_threads
    resources:
        **segment_resources,
    params:
        assignment=assignment,
    script:
        "../../scripts/dmtcp_segment.py"
