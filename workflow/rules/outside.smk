# One segment of a run whose engine another package brings (docs/engines/your-own.md).
# Needs the record of the segment before; the first needs the files that the run is made of.
# Leaves its own record. Count on it: the record names a checkpoint in results/<run>/checkpoints that is whole, and a
# run whose record says "finished" has its results in results/<run>/final.


rule outside_segment:
    input:
        **segment_input,
    output:
        record=segment_record,
    log:
        segment_log,
    wildcard_constraints:
        run=plan.outside_pattern(),
        segment=r"\d+",
    threads: segment_threads
    resources:
        **segment_resources,
    params:
        assignment=assignment,
    script:
        "../../scripts/segment.py"
