"""What keeps a run from writing, as far as anybody can see without writing: for those who find no reason noted."""

from __future__ import annotations

import errno
import os

from unbroken.errors import UnbrokenError
from unbroken.runs import begun
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own
from unbroken.system import fs


def obstacle(places: RunFolder) -> str:
    """In a few words with the path; empty if nothing is in the way."""
    if begun.was_seen(places):
        return f"{places.root} is missing on {os.uname().nodename}, or empty"
    try:
        confirm_all_own(places.own)
        for path in (places.root, places.lease, places.history):
            if path.exists() and not os.access(path, os.W_OK):
                return f"{path} cannot be written"
        return fs.full_disk_words(places.root)
    except UnbrokenError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or places.root}: {error.strerror or errno.errorcode.get(error.errno or 0, error)}"
