"""The command line: all commands, and the errors that are a line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from unbroken import __version__
from unbroken.cli import (
    convert_command,
    decisions,
    import_export,
    init_command,
    install_profile,
    logs,
    notify_command,
    presets_command,
    rehearse_command,
    run_command,
    status_commands,
    verify_command,
)
from unbroken.cli.say import UsageError, complain, one_line
from unbroken.errors import UnbrokenError
from unbroken.system import fs, log

app = typer.Typer(help="Long computations as chains of time-limited segments.", no_args_is_help=True)
app.command()(status_commands.status)
app.command()(status_commands.watch)
app.command()(status_commands.account)
app.command()(run_command.run)
app.command()(logs.logs)
app.command()(verify_command.verify)
app.command()(decisions.accept)
app.command()(decisions.restart)
app.command("restore")(decisions.restore_run)
app.command()(decisions.back)
app.command()(notify_command.notify)
app.command("import")(import_export.import_command)
app.command("export")(import_export.export_command)
app.command()(rehearse_command.rehearse)
app.command()(status_commands.report)
app.command()(install_profile.profile)
app.command()(init_command.init)
app.command()(presets_command.presets)
app.command("convert")(convert_command.convert_script)
app.command("exec", context_settings=run_command.PASSED_ON)(run_command.exec_command)
app.command()(run_command.launcher)


def main() -> None:
    """Run the command line; print the lines of an UnbrokenError, or an error of the disk, and exit with code 1."""
    # Click itself would take the arguments after `--` for names of runs.
    words, behind = _parted(sys.argv[1:])
    try:
        with fs.os_errors(Path()):
            code = app(words or ["--help"], obj=behind, standalone_mode=False)
    except UsageError as error:
        complain(one_line(error))
        raise SystemExit(2) from None
    except UnbrokenError as error:
        for line in str(error).splitlines():
            complain(line)
        raise SystemExit(1) from None
    raise SystemExit(code or 0)


@app.callback(invoke_without_command=True)
def _version(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    is_verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more: as UNBROKEN_LOG=debug.")] = False,
) -> None:
    if is_verbose:
        os.environ[log.LEVEL] = "debug"
    if version:
        print(f"unbroken {__version__}")
        raise typer.Exit


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Split `run demo -- -n` into the words before and after `--`; leave other commands as they are."""
    if words[:1] != ["run"] or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]
