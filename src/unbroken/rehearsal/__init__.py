"""Rehearse a short run whole and in pieces, on this machine, before the first long one; tell what differs, and why."""
