"""The rehearsal: a short run whole and in pieces, on this machine, before the first long one; what differs, and why."""
