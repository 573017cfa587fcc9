"""How `unbroken` begins: Ctrl-C while it loads shows no traceback."""

from __future__ import annotations

from unbroken.cli.become_snakemake import INTERRUPTED


def main() -> None:
    """The entry point."""
    try:
        from unbroken.cli import main as command_line

        command_line.main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
