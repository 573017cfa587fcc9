"""The life of a segment, from its lease to its record, and the jobs on Slurm that form the chain of a run.

In the order in which they are best read.  A segment, in its own process:

    attempt         what the workflow hands to a script; the signals that ask to leave; the log; what its job learns
    lifecycle       the steps: lease, select, work, judge, results, record
    deadline        how long it may work, and how long before the end its program is asked to stop
    supervisor      start the program, watch it, ask it to stop in time
    publisher       make checkpoints of what it hands over, and the results at the goal
    recovery        publish what killed attempts left, and remove the rest
    classify        how an attempt ended, and its line in the history
    copier          copy checkpoints to the replica meanwhile; import_export: what a person does without a segment

A job of the chain, which starts that process:

    __main__        take the next segment, decide what follows
    spec            all that a job needs to know (spec.json)
    segment_process the process of a segment; segment_script: the script in it, without a Snakemake
    work            what the job does: a segment, or a user's own rule, whose chain has its state in rule_state
    policy          what follows an attempt; next_attempt: the same with what disk and Slurm say now
    after_work      what the job then does with the queue; background: the page and notifications
    array           submit the run's array; submissions, needs: what that takes
    control         what a driver does with the jobs of a run
"""
