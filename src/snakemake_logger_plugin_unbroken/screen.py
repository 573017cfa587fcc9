"""Text that scrolls and, at a terminal, the live lines below it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from snakemake_logger_plugin_unbroken.live_area import LiveArea
from unbroken.cli.status_table import screen_of
from unbroken.report.status import RunStatus

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class Screen:
    """A stream; without colors and live lines where it is no terminal, or one that is wanted without them."""

    def __init__(self, stream: TextIO, is_colored: bool, is_live: bool) -> None:
        self._stream = stream
        self._is_colored = is_colored and stream.isatty()
        self._area = LiveArea(stream) if is_live and self._is_colored else None

    @property
    def is_live(self) -> bool:
        return self._area is not None

    def say(self, text: str, is_alert: bool = False) -> None:
        """Print text above the live lines."""
        self._stream.write(f"{_RED}{text}{_PLAIN}\n" if is_alert and self._is_colored else f"{text}\n")
        self._stream.flush()

    def show(self, rows: Sequence[RunStatus], total: str) -> None:
        """Show the live lines: a table of these runs, and a line about all."""
        if self._area is None:
            return
        width = self._area.width
        console = Console(
            file=io.StringIO(), force_terminal=True, color_system="standard", width=width, height=self._area.room
        )
        with console.capture() as captured:
            console.print(screen_of(rows, console, total))
        self._area.draw(["─" * width, *captured.get().splitlines()])

    def close(self) -> None:
        """Remove the live lines."""
        if self._area is not None:
            self._area.close()
            self._area = None
