"""`unbroken logs`: what a run's program prints, without looking for the file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Annotated, BinaryIO

import typer

from unbroken.cli.say import HERE, Directory, RunName
from unbroken.errors import ConfigError
from unbroken.report.known import existing_run_folder, run_folder, segment_logs, segment_to_show
from unbroken.store.layout import RunFolder

POLL_SECONDS = 0.5
_BLOCK_BYTES = 1 << 20


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


def show_log(places: RunFolder, segment: int | None, *, follow: bool) -> None:
    """Print the log of a segment, or of the running one; with `follow` print new lines, until Ctrl-C.

    Raise ConfigError if there is no such log.
    """
    known = segment_logs(places)
    if not known:
        raise ConfigError([f"{places.name}: no log in {places.log(1).parent}, so nothing has started yet"])
    if segment is not None and segment not in known:
        raise ConfigError([f"{places.name}: --segment: found {segment}, allowed: {', '.join(map(str, known))}"])
    number = segment_to_show(places, known) if segment is None else segment
    print(f"==> {known[number]} <==", file=sys.stderr, flush=True)
    try:
        for block in _blocks(places, number, follow=follow, and_later=segment is None):
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # `| head` has seen enough; Python would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _blocks(places: RunFolder, number: int, *, follow: bool, and_later: bool) -> Iterator[bytes]:
    # A later attempt may give an earlier one its name back.  While a file is open, no other one gets its inode number.
    seen: dict[int, BinaryIO] = {}
    with ExitStack() as opened:
        while True:
            try:
                newest: BinaryIO = opened.enter_context(places.log(number).open("rb"))
            except FileNotFoundError:  # Snakemake has just removed it, for the next attempt
                time.sleep(POLL_SECONDS)
                continue
            inode = os.fstat(newest.fileno()).st_ino
            file = seen.setdefault(inode, newest)
            yield from _to_the_end(file)
            while follow and not (following := _following(places, number, inode, and_later=and_later)):
                time.sleep(POLL_SECONDS)
                yield from _to_the_end(file)
            if not follow:
                return
            if following != number:
                opened.close()
                seen.clear()
            number = following
            print(f"==> {places.log(number)} <==", file=sys.stderr, flush=True)


def _following(places: RunFolder, number: int, inode: int, *, and_later: bool) -> int:
    """Return the segment to read next: a later one, or the same one again if its log was replaced; 0 for none."""
    known = segment_logs(places)
    if and_later and known and (later := segment_to_show(places, known)) > number:
        return later
    try:
        is_same = places.log(number).stat().st_ino == inode
    except OSError:  # Snakemake removes it before the next attempt
        return 0
    return 0 if is_same else number


def _to_the_end(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block
