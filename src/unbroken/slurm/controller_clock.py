"""What time it is for Slurm: all its times are told by the clock of its controller, which need not be this node's.

`squeue --format=%L`, the time that is left, does not help: it subtracts the clock of the machine on which it is typed
[squeue 22.05: print.c].
"""

from __future__ import annotations

import re
import time

from unbroken.slurm.commands import ask

PATIENCE_SECONDS = 10.0
# A difference that people should hear of; less may be the network.
TOLD_SECONDS = 60.0


def ahead_seconds() -> float | None:
    """By how much this machine's clock is ahead of Slurm's, to a second or two; None if Slurm does not say its time."""
    before = time.time()
    text = ask("sdiag", patience_seconds=PATIENCE_SECONDS)
    now = (before + time.time()) / 2
    answered = re.search(r"^sdiag output at .*\((\d+)\)\s*$", text or "", re.MULTILINE)
    return now - float(answered[1]) if answered else None


def remark(node: str, ahead: float) -> str:
    """`node1's clock is 400 s ahead of Slurm's; ...`; '' where that is not worth a line."""
    if abs(ahead) < TOLD_SECONDS:
        return ""
    wrong = f"{node}'s clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} Slurm's"
    return f"{wrong}; the segment's length does not count on it, its time stamps do; tell the administrators"
