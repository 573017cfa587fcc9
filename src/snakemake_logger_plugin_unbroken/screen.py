"""Text that scrolls and, at a terminal, live lines that stay below it.

As apt does it: the scrolling region (DECSTBM, VT100 User Guide, chapter 3) ends above them.  So what any program
prints, also one that knows nothing of this, scrolls above them and is never drawn over.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from unbroken.cli.status_table import screen_of
from unbroken.report.status import RunStatus

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_CLEAR_LINE, _CLEAR_BELOW, _WHOLE_SCREEN = "\x1b[2K", "\x1b[J", "\x1b[r"
# So many lines are left to the text above.
_LEAST_TEXT_LINES = 5


class LiveArea:
    """The lines at the bottom, at most once on a terminal; `close` gives the whole screen back."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._size = (0, 0)
        self._count = 0

    @property
    def width(self) -> int:
        """Return the columns of the terminal."""
        return os.get_terminal_size(self._stream.fileno()).columns

    @property
    def room(self) -> int:
        """Return how many lines `draw` shows at most."""
        return max(os.get_terminal_size(self._stream.fileno()).lines - _LEAST_TEXT_LINES, 0)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the last lines shown by these; none is wider than the terminal."""
        size = os.get_terminal_size(self._stream.fileno())
        lines = lines[: self.room]
        text = self._resized(len(lines), (size.columns, size.lines))
        if lines:
            first = size.lines - len(lines) + 1
            rows = (f"\x1b[{first + at};1H{_CLEAR_LINE}{line}" for at, line in enumerate(lines))
            text += _SAVE + "".join(rows) + _RESTORE
        self._write(text)

    def close(self) -> None:
        """Remove the lines; the cursor stays behind the text."""
        if self._count:
            self._write(_SAVE + _WHOLE_SCREEN + _RESTORE + _CLEAR_BELOW)
        self._count, self._size = 0, (0, 0)

    def _resized(self, count: int, size: tuple[int, int]) -> str:
        """Return what makes the region fit another number of lines, or another size of the terminal."""
        if (count, size) == (self._count, self._size):
            return ""
        text = ""
        if self._count:
            # A terminal that was resized has moved the old lines to wherever; they are below the cursor.
            text += _SAVE + _WHOLE_SCREEN + _RESTORE + _CLEAR_BELOW
        if count:
            # Makes space first, so that the cursor is above the lines.
            text += "\n" * count + f"\x1b[{count}A"
            text += f"{_SAVE}\x1b[1;{size[1] - count}r{_RESTORE}"
        self._count, self._size = count, size
        return text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Screen:
    """A stream; without colors and live lines where it is no terminal, or one that is wanted without them."""

    def __init__(self, stream: TextIO, *, is_colored: bool, is_live: bool) -> None:
        self._stream = stream
        self._is_colored = is_colored and stream.isatty()
        self._area = LiveArea(stream) if is_live and self._is_colored else None

    @property
    def is_live(self) -> bool:
        return self._area is not None

    def say(self, text: str, *, is_alert: bool = False) -> None:
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
