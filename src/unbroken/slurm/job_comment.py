"""The comment by which snakemake-executor-plugin-slurm 2.8 names the rule and the wildcards of a job.

`rule_toy_segment_wildcards_demo_003`: segment 3 of the run `demo`, whose name may have underscores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# What stands before the key of a chain in the comment on its jobs.
_CHAIN = "unbroken chain "
_SEGMENT = re.compile(r"rule_\w*?_segment_wildcards_(?P<run>.+)_(?P<segment>\d+)")


def wildcards_in_names(wildcards: Sequence[str]) -> str:
    """The wildcards of a job as they stand in its comment and in the path of its log."""
    return "_".join(wildcards).replace("/", "_")


def comment_of(rule: str, wildcards: Sequence[str]) -> str:
    """The comment on the job of a rule with wildcards."""
    return f"rule_{rule}_wildcards_{wildcards_in_names(wildcards)}"


def log_of(rule: str, wildcards: Sequence[str], job_id: str = "%j") -> str:
    """The log of such a job, below the folder of all; sbatch takes `%j` for the number of the job."""
    return f"rule_{rule}/{wildcards_in_names(wildcards)}/{job_id}.log"


def is_comment(text: str) -> bool:
    """True for the comment on a job of any rule, or of a chain."""
    return text.startswith(("rule_", _CHAIN))


def chain_comment(key: str) -> str:
    """Return the comment on the jobs of a chain: of a run by its name, of a user's own rule by its key."""
    return f"{_CHAIN}{key}"


def chain_in(comment: str) -> str:
    """Return the key of the chain whose job has this comment; empty for other jobs."""
    return comment.removeprefix(_CHAIN) if comment.startswith(_CHAIN) else ""


def segment_in(comment: str) -> tuple[str, int] | None:
    """Run and number of the segment that a job is, by the rule of any engine; None for other jobs."""
    named = _SEGMENT.fullmatch(comment)
    return (named["run"], int(named["segment"])) if named else None


def run_in(comment: str) -> str:
    """The run of that segment; empty for other jobs."""
    found = segment_in(comment)
    return found[0] if found else ""
