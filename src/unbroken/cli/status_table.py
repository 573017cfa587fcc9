"""The table of `unbroken status`, as wide as the terminal allows."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unbroken.report.status import BY_NEED, RunState, RunStatus
from unbroken.store.progress import how_far
from unbroken.system.clock import duration

COLORS = {
    RunState.FINISHED: "green",
    RunState.WORKING: "cyan",
    RunState.QUEUED: "blue",
    RunState.STOPPED: "red",
    RunState.UNREADABLE: "red",
    RunState.USED_UP: "yellow",
}
# The columns of ever narrower terminals.
_ALL = ("run", "state", "bar", "progress", "segments", "checkpoint", "still")
_LAYOUTS = (
    _ALL,
    ("run", "state", "progress", "segments", "checkpoint", "still"),
    ("run", "state", "progress", "segments", "still"),
    ("run", "state", "progress", "still"),
)
# Longer tables are not read; the page finds each run.
MOST_ROWS = 100
# A longer name continues in the next line before a column is left out for it.
_NAME_WIDTH = 16


def most_needed(rows: Sequence[RunStatus], most: int = MOST_ROWS) -> list[RunStatus]:
    """Return the rows as they come; of more than `most` those that need a hand, then those that are not done."""
    chosen = {row.run for row in sorted(rows, key=lambda row: BY_NEED.index(row.state))[:most]}
    return [row for row in rows if row.run in chosen]


def print_table(rows: Sequence[RunStatus], of: Sequence[RunStatus] = ()) -> None:
    """Print the table and, `of` several runs, how many are in which state; whole lines into a file or a pipe."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 1000
    console.print(_fitting(rows, console))
    if len(of or rows) > 1:
        print(total_of(of or rows))
    if len(of) > len(rows):
        print(f"{len(of) - len(rows)} more runs are not shown; type: unbroken status RUN, or: unbroken report")


def screen_of(rows: Sequence[RunStatus], console: Console, total: str, end: str = "") -> Group:
    """Return the table, how many runs are in which state, what to do, and a last line; not higher than the terminal."""
    room = max(console.height - 5, 1)
    chosen = sorted(rows, key=lambda row: BY_NEED.index(row.state))[:room]
    shown = [row for row in rows if row in chosen]
    lines = [total] if total else []
    lines += [f"{row.run}: {row.advice}" for row in shown if row.advice][: max(room - len(shown), 0)]
    lines += [f"{len(rows) - len(shown)} more: unbroken status"] if len(shown) < len(rows) else []
    lines += [end] if end else []
    return Group(_fitting(shown, console), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def _fitting(rows: Sequence[RunStatus], console: Console) -> Table:
    """Return the widest layout that fits the console; in the narrowest no cell is cut off, but folded."""
    longest = max((len(row.run) for row in rows), default=0)
    for layout in _LAYOUTS:
        table = _table(rows, layout)
        width = console.measure(table, options=console.options.update(max_width=1000)).maximum
        if width - max(longest - _NAME_WIDTH, 0) <= console.width:
            return table
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"
    return table


def _table(rows: Sequence[RunStatus], layout: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in layout:
        table.add_column("" if title == "bar" else title, no_wrap=title != "run", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row, title, has_pace="checkpoint" in layout) for title in layout))
    return table


def _cell(row: RunStatus, title: str, *, has_pace: bool) -> Text | ProgressBar | str:
    match title:
        case "state":
            if row.doubts:
                return Text(f"{row.state.value}, with doubts", style="red")
            return Text(row.state.value, style=COLORS.get(row.state, "default"))
        case "bar":
            return _bar(row)
        case "progress":
            return Text(progress_of(row, has_pace=has_pace))
        case "segments":
            return f"{row.segments_used}/{row.segments or '?'}"
        case "checkpoint":
            return f"{duration(row.checkpoint_age_seconds)} ago" if row.checkpoint_age_seconds is not None else "none"
        case "still":
            return duration(row.left_seconds) if row.left_seconds is not None else "?"
    return Text(row.run)


def _bar(row: RunStatus) -> ProgressBar | str:
    if row.progress is None or row.progress.goal is None:
        return ""
    goal = row.progress.goal
    done = min(row.progress.done, goal)
    # rich's own is red where there are few colors.
    return ProgressBar(goal, done, 16, style="bright_black", complete_style="cyan", finished_style="green")


def progress_of(row: RunStatus, *, has_pace: bool) -> str:
    """Return `193/300 steps, 12 ns/day`; empty before the first progress."""
    if row.progress is None:
        return ""
    pace = row.progress.metrics.get("pace") if has_pace else None
    done = how_far(row.progress.done, row.progress.goal, row.progress.unit, "/")
    return f"{done}, {pace}" if isinstance(pace, str) else done


def total_of(rows: Sequence[RunStatus]) -> str:
    """Return `4 runs: stopped 1, working 2, finished 1`."""
    counts = [(state, sum(row.state is state for row in rows)) for state in RunState]
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    return f"{runs}: {', '.join(f'{state.value} {count}' for state, count in counts if count)}"
