"""How `unbroken` begins: Ctrl-C while it loads shows no traceback."""

from __future__ import annotations

import sys

from unbroken.cli.become_snakemake import INTERRUPTED


def _asks_for_help(words: list[str]) -> bool:
    """Print the help of `unbroken exec`, if that is asked for; False too where typer is not installed."""
    if not {"-h", "--help"} & set(words[: words.index("--") if "--" in words else None]):
        return False
    try:
        from unbroken.cli.exec_commands import print_exec_help
    except ImportError:
        return False
    print_exec_help()
    return True


def main() -> None:
    """The entry point."""
    try:
        if sys.argv[1:2] == ["exec"]:  # loads the standard library alone
            if _asks_for_help(sys.argv[2:]):
                return
            from unbroken.exec.main import main as exec_main

            raise SystemExit(exec_main(sys.argv[2:]))
        from unbroken.cli import main as command_line

        command_line.main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
