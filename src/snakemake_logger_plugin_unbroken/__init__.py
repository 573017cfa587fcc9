"""`--logger unbroken`: a screen for chains of segments, in the place of Snakemake's lines about its jobs.

Snakemake calls a handler's `emit` in one thread for all handlers; an exception there would silence them all for good.
"""

from __future__ import annotations

import os
import sys
from logging import LogRecord
from typing import TYPE_CHECKING, Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase

from unbroken.store import driver_start

# Snakemake imports every plugin at each start, also in each job; what a screen needs is imported where there is one.
if TYPE_CHECKING:
    from snakemake_logger_plugin_unbroken.console import Console

__all__ = ["LogHandler"]


class LogHandler(LogHandlerBase):
    """A handler of Snakemake's records: the console, or Snakemake's own output on request or where it fails."""

    writes_to_stream = has_filter = has_formatter = True
    writes_to_file = needs_rulegraph = False

    def __post_init__(self) -> None:
        # The interface's class says less than what Snakemake gives.
        settings: Any = self.common_settings
        quiet = set(settings.quiet or ())
        stream = sys.stdout if settings.stdout else sys.stderr
        formatter = DefaultFormatter(quiet, settings.show_failed_logs)
        self.addFilter(
            DefaultFilter(quiet, settings.debug_dag, settings.verbose, settings.dryrun, settings.printshellcmds)
        )
        self._own = ColorizingTextHandler(nocolor=settings.nocolor, stream=stream, formatter=formatter)
        self._console: Console | None = None
        if not driver_start.is_console_unwanted() and Quietness.ALL not in quiet:
            from snakemake_logger_plugin_unbroken.console import Console
            from snakemake_logger_plugin_unbroken.screen import Screen

            is_plain = settings.nocolor or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
            has_progress = Quietness.PROGRESS not in quiet
            screen = Screen(stream, is_colored=not is_plain, is_live=has_progress and not settings.dryrun)
            self._console = Console(screen, formatter, is_dry=settings.dryrun, has_progress=has_progress)
            self._console.on_failure = self._fall_back
            driver_start.take_screen()

    def emit(self, record: LogRecord) -> None:
        """Show a record."""
        if self._console is not None:
            try:
                with self._console.lock:
                    self._console.handle(record)
                return
            except Exception as error:  # noqa: BLE001  (any of ours; the record is shown all the same)
                self._fall_back(error)
        self._own.handle(record)

    def _fall_back(self, error: Exception) -> None:
        """Give way to Snakemake's own output, after a line that says why."""
        console, self._console = self._console, None
        why = f"{type(error).__name__}: {error}"
        try:
            if console is not None:
                console.close()
        except Exception as second:  # noqa: BLE001  (as above)
            why += f"; {type(second).__name__}: {second}"
        self._own.stream.write(f"unbroken: the console failed ({why}); Snakemake's own output follows\n")
        self._own.flush()

    def close(self) -> None:
        """Show the last lines."""
        if self._console is not None:
            try:
                self._console.close()
            except Exception as error:  # noqa: BLE001  (as above)
                self._fall_back(error)
        super().close()
