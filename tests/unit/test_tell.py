"""The driver's own lines beside those of Snakemake, which writes a line and its end in two pieces."""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from snakemake.logging import ColorizingTextHandler
from snakemake.settings.types import OutputSettings

from snakemake_logger_plugin_unbroken import LogHandler
from unbroken.plan.driver_lines import tell
from unbroken.runs import driver_start

SHUTTING_DOWN = "Shutting down, this might take some time."


class Screen(io.StringIO):
    """Whoever has written a line without its end pauses there."""

    def __init__(self) -> None:
        super().__init__()
        self.in_the_middle = Event()
        self.ours = Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.startswith("unbroken: "):
            self.ours.set()
        if text == SHUTTING_DOWN:
            self.in_the_middle.set()
            self.ours.wait(0.3)
        return written


def of_the_plugin() -> logging.Handler:
    handler: logging.Handler = LogHandler(OutputSettings(log_handler_settings={}, nocolor=True), None)
    return handler


def of_snakemake() -> logging.Handler:
    return ColorizingTextHandler(nocolor=True, stream=sys.stderr)


@contextmanager
def known_to_snakemakes_logger(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("snakemake.logging")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("make", [of_the_plugin, of_snakemake])
def test_a_line_of_ours_is_never_in_the_middle_of_one_of_snakemakes(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], logging.Handler]
) -> None:
    monkeypatch.setenv(driver_start.CONSOLE, "off")
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    handler = make()
    record = logging.LogRecord("snakemake.logging", logging.INFO, "", 0, SHUTTING_DOWN, (), None)

    # Snakemake gives a plugin's handler to a thread, and only its own to the logger.
    with known_to_snakemakes_logger(logging.NullHandler() if make is of_the_plugin else handler):
        other = Thread(target=handler.handle, args=(record,))
        other.start()
        assert screen.in_the_middle.wait(60)
        tell(["demo: 437 of 1000 steps after segment 1 of 9; start again to go on"])
        other.join()

    assert screen.getvalue().splitlines() == [
        SHUTTING_DOWN,
        "unbroken: demo: 437 of 1000 steps after segment 1 of 9; start again to go on",
    ]
