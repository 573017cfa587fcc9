"""Becomes the program that it is given, after asking the kernel to kill it when longhaul's process dies.

A program of its own because code between fork and exec is not safe in a process with threads (our heartbeat).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        sys.exit(1)
    os.execvp(command[0], command)
