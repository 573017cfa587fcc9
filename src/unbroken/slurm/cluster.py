"""Which cluster this is: the number of a job means something on its own cluster alone."""

from __future__ import annotations

import functools
import os
import re

from unbroken.slurm.commands import ask

# Asked from inside a segment, and by users who wait for `unbroken status`.
PATIENCE_SECONDS = 5.0


def may_ask_here(cluster: str) -> bool:
    """True unless the commands of this machine speak for another cluster than the one named; '' is not known.

    `--clusters` would reach the other one only where both share an accounting database, and fail elsewhere.
    """
    own = own_cluster() if cluster else ""
    return not own or own.casefold() == cluster.casefold()


def own_cluster() -> str:
    """The name of this machine's cluster, by the job around this process or by the controller; '' if nobody says."""
    try:
        return os.environ.get("SLURM_CLUSTER_NAME") or _by_controller()
    except LookupError:
        return ""


@functools.cache
def _by_controller() -> str:
    """LookupError, which is not kept, if there is no answer."""
    text = ask("scontrol", "show", "config", patience_seconds=PATIENCE_SECONDS)
    named = re.search(r"^ClusterName\s*=\s*(\S+)", text or "", re.MULTILINE)
    if named is None:
        raise LookupError("scontrol")
    return named[1]
