"""Start `unbroken`, so that Ctrl-C while it loads shows no traceback."""

from __future__ import annotations

import sys

from unbroken.cli.become_snakemake import INTERRUPTED


def main() -> None:
    """Run the command line."""
    try:
        if sys.argv[1:2] == ["exec"]:  # loads the standard library alone
            from unbroken.exec.main import main as exec_main

            raise SystemExit(exec_main(sys.argv[2:]))
        from unbroken.cli import main as command_line

        command_line.main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
