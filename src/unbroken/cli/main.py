"""The command line: how the runs stand, whether their checkpoints are whole, and the two decisions a user may take."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unbroken import __version__
from unbroken.cli import (
    convert_command,
    exec_commands,
    import_export,
    init_command,
    notify_command,
    profile_command,
    rehearse_command,
    report_command,
    restart_command,
    verify_command,
)
from unbroken.cli.attempts import attempt_lines
from unbroken.cli.back import go_back
from unbroken.cli.become_snakemake import become_snakemake
from unbroken.cli.each_run import ask_each
from unbroken.cli.exec_commands import accept_command_line
from unbroken.cli.logs import show_log
from unbroken.cli.restart_command import cancel_its_waiting
from unbroken.cli.run_command import DETACHED, Detached, Profile, Slurm, chosen_profile, command_for, targets_of
from unbroken.cli.say import HERE, Config, Directory, RunName, RunNames, as_seen, complain, say
from unbroken.cli.status_table import most_needed, print_table
from unbroken.cli.usage import UsageError, one_line
from unbroken.cli.watch import watch as show_again
from unbroken.config.notify import read_notify
from unbroken.copies.restore import restore
from unbroken.engines.found import known_schemas, outputs_of
from unbroken.errors import ConfigError, UnbrokenError
from unbroken.plan.plan import Plan
from unbroken.report.account import account_of
from unbroken.report.events import Look
from unbroken.report.known import (
    CONFIG,
    config_of,
    existing_run_folder,
    no_config,
    refuse_unknown,
    runs_of,
    statuses,
)
from unbroken.report.run_folders import run_folder, segment_logs
from unbroken.report.status import RunStatus
from unbroken.slurm.client import has_command
from unbroken.slurm.job import in_short
from unbroken.slurm.queue import Queue, RecentQueue, queue_of
from unbroken.slurm.this_job import own_job_id
from unbroken.store.checkpoints import Store
from unbroken.store.run import accept_identity, identity_of
from unbroken.store.select import refuse_newer
from unbroken.system import fs, log

app = typer.Typer(help="Long computations as chains of time-limited segments.", no_args_is_help=True)
# While `status --watch` looks at the files every two seconds, Slurm's controller is asked less often.
QUEUE_SECONDS = 30.0


@app.command()
def status(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Names of runs, with all attempts.")
    ] = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON list.")] = False,
    is_watched: Annotated[bool, typer.Option("--watch", "-w", help="The same as `unbroken watch`.")] = False,
) -> None:
    """Show progress, time left (ETA) and next step of each run."""
    if is_watched:
        watch(only, directory, config)
        return
    rows = _seen(only, directory, config, queue_of(directory))
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        return
    if not rows:
        raise no_config(directory)
    shown = rows if only else most_needed(rows)
    print_table(shown, rows)
    for row in shown:
        say(f"{row.run}: {row.advice}")
        for line in filter(None, (row.output.words(), row.rehearsal)):
            say(f"{row.run}: {line}")
    for name in only or []:
        say("\n".join([f"{name}:", *attempt_lines(run_folder(name, directory))]))


@app.command()
def watch(
    only: RunNames = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Show the status again and again, whatever started the runs, until Ctrl-C; writes the page once a minute."""
    queue = RecentQueue(directory, QUEUE_SECONDS)
    with suppress(KeyboardInterrupt):
        show_again(lambda: _seen(only, directory, config, queue.look()), directory, config)


@app.command()
def account(
    only: RunNames = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON list, with all spans.")] = False,
) -> None:
    """Show where the time of each run went: work, saves, losses, starts, queue."""
    queue = queue_of(directory)
    names = [row.run for row in _seen(only, directory, config, queue)]
    if not names and not as_json:
        raise no_config(directory)
    found, code = ask_each(names, lambda name: account_of(name, directory, queue))
    if as_json:
        print(json.dumps([each.to_json(name) for name, each in found.items()], indent=2))
    else:
        for name, each in found.items():
            say("\n".join(each.lines(name)))
    raise typer.Exit(code)


@app.command()
def run(
    context: typer.Context,
    runs: RunNames = None,
    directory: Directory = HERE,
    *,
    slurm: Slurm = False,
    detached: Detached = False,
    profile: Profile = None,
) -> None:
    """Start Snakemake with the installed workflow; again after any failure. Arguments after -- go to Snakemake."""
    chosen = chosen_profile(slurm=slurm, detached=detached, profile=profile)
    targets = targets_of(tuple(runs_of(directory, CONFIG, must_exist=True)), runs, directory) if runs else []
    own = DETACHED if detached else ()
    words, typed = command_for(targets, directory, chosen, [*own, *(context.obj or [])])
    become_snakemake(words, typed)


@app.command()
def logs(
    run: RunName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    segment: Annotated[int | None, typer.Option(help="The number of a segment; else the one at work.")] = None,
    directory: Directory = HERE,
) -> None:
    """Print what the program of a run printed."""
    places = run_folder(run, directory)
    if not segment_logs(places):
        existing_run_folder(run, directory)
    with suppress(KeyboardInterrupt):
        show_log(places, segment, follow=follow)


app.command()(verify_command.verify)


@app.command()
def accept(run: RunName, directory: Directory = HERE, config: Config = CONFIG) -> None:
    """Let a changed run resume from its old checkpoints: a corrected script, another input on purpose."""
    places = run_folder(run, directory)
    refuse_newer(places)
    if places.store is not None:
        accept_command_line(places, places.store)
        return
    plan = Plan(tuple(runs_of(directory, config, must_exist=True)), directory)
    refuse_unknown(run, [known.name for known in plan.runs], directory)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    if newest is None:
        raise ConfigError([f"{run}: has no checkpoint yet; to start it, type: snakemake"])
    assignment = plan.assignment(run)
    identity = identity_of(assignment.run, assignment.keys, directory)
    changes = identity.differences(newest.passport.identity_parts)
    if not changes:
        say(f"{run}: nothing has changed since {newest.name}; type: snakemake")
        return
    accept_identity(places.accepted, newest.passport.identity, changes)
    waiting = [job.job_id for job in queue_of(directory).out if job.run == run and job.is_waiting]
    todo = f"its waiting tasks go on from {newest.name}: {', '.join(in_short(waiting))}" if waiting else ""
    say(f"{run}: accepted: {'; '.join(changes)}; {todo or f'it goes on from {newest.name} with: snakemake'}")


app.command()(restart_command.restart)


@app.command("restore")
def restore_run(
    run: RunName,
    source: Annotated[Path, typer.Option("--from", help="The folder of `copies:`, or the run's folder in there.")],
    directory: Directory = HERE,
) -> None:
    """Restore a run that is lost from its copies (`copies:` in the config); refused where the run exists."""
    with log.lines_to(say):
        restore(run, source, directory, outputs_of)
    say(f"{run}: it continues with: snakemake")


@app.command()
def back(
    run: RunName,
    to: Annotated[str, typer.Option("--to", help="The checkpoint to go on from; the one before the newest.")] = "",
    directory: Directory = HERE,
) -> None:
    """Let a run resume from an earlier checkpoint; the newer ones are quarantined (nothing is deleted)."""
    refuse_newer(existing_run_folder(run, directory))
    for line in go_back(run, to, directory, partial(cancel_its_waiting, run, directory)):
        say(line)


@app.command()
def notify(
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    is_check: Annotated[bool, typer.Option("--check", help="Look once, and tell what was not told; for cron.")] = False,
    is_test: Annotated[
        bool, typer.Option("--test", help="Run the command of `notify:` with a test, and show its output.")
    ] = False,
    is_ended: Annotated[bool, typer.Option("--ended", hidden=True)] = False,
) -> None:
    """Send notifications by the command that `notify:` in the configuration names."""
    if is_check == is_test:
        raise ConfigError(
            ["notify: found neither --check nor --test; type: unbroken notify --check, or: unbroken notify --test"]
        )
    list(runs_of(directory, config, must_exist=True))
    settings = read_notify(config_of(directory / config), known_schemas().config)
    if settings is None:
        raise ConfigError(
            [f"{directory / config}: has no `notify:`; type for example `notify: {{command: ./tell.sh}}`"]
        )
    if is_test:
        notify_command.try_out(directory, settings)
    else:
        queue = queue_of(directory)
        own = own_job_id()  # the job that looks at its own end does not count as active
        out = tuple(job for job in queue.out if job.job_id != own or not is_ended)
        rows = _seen(None, directory, config, replace(queue, out=out))
        is_silent = has_command("squeue") and not queue.is_known
        notify_command.check(Look(rows, is_ended, is_silent), directory, settings)


app.command("import")(import_export.import_command)
app.command("export")(import_export.export_command)
app.command()(rehearse_command.rehearse)
app.command()(report_command.report)
app.command()(profile_command.profile)
app.command()(init_command.init)
app.command("convert")(convert_command.convert_script)
app.command("exec", context_settings=exec_commands.PASSED_ON)(exec_commands.exec_command)
app.command()(exec_commands.launcher)


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


def _seen(only: list[str] | None, directory: Path, config: Path, queue: Queue) -> list[RunStatus]:
    """Return the state of the runs, with paths and commands as they are typed from here."""
    return [replace(row, advice=as_seen(row.advice)) for row in statuses(only, directory, config, queue)]
