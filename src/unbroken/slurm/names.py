"""The accounts and QOS that a cluster knows; None where Slurm does not answer, so that nothing is refused by it."""

from __future__ import annotations

import os
import pwd

from unbroken.slurm.tables import table


def accounts() -> list[str] | None:
    """Return the accounts of this user."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return _names(table("sacctmgr", "show", "assoc", f"user={user}", columns=("account",)))


def qos_names() -> list[str] | None:
    """Return every QOS of the cluster."""
    return _names(table("sacctmgr", "show", "qos", columns=("name",)))


def _names(rows: list[tuple[str, ...]] | None) -> list[str] | None:
    return None if rows is None else list(dict.fromkeys(name for (name,) in rows if name))
