"""Rehearse a short run whole and in pieces, on this machine, before the first long one; say what differs, and why."""
