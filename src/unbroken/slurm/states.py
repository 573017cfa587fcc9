"""Slurm's words for the state of a job [man squeue: JOB STATE CODES]."""

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
STARTED = frozenset(
    {"CONFIGURING", "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
# A job in one of these may still do something; every other state is an end.
ALIVE = WAITING | STARTED
