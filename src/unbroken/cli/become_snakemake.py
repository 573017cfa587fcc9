"""The Snakemake that `unbroken run` becomes: Ctrl-C while it loads, or reads the Snakefile, is one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

# The exit code that shells give to a command that Ctrl-C ended.
INTERRUPTED = 130


def become_snakemake(words: Sequence[str], typed: str) -> None:
    """Print what is `typed` and replace this process: signals, exit code and terminal are Snakemake's own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until Snakemake handles it
    print(f"unbroken: {typed}", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", __name__, *words])


def _snakemake() -> None:
    sys.argv[0] = "snakemake"
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        from snakemake.cli import main

        main()
    except KeyboardInterrupt:
        print("unbroken: stopped by Ctrl-C; to go on, type the same again", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    _snakemake()
