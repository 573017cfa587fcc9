"""A real browser that opens pages from files, without a network, and tells what it complained about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

# As root in a container Chromium has no sandbox and little shared memory.
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,1400")
# A browser on a busy machine takes its time.
PATIENCE_SECONDS = 240
_ALL_DRAWN = """
return [...document.querySelectorAll('[data-chart]')].every((chart) => chart.dataset.isDrawn === 'true')
"""
_MARKS = """
return [...document.querySelectorAll('[data-chart]')].map((chart) =>
  [chart.dataset.chart, chart.querySelectorAll('.mark-rect path, .mark-line path, .mark-symbol path').length])
"""


class Browser:
    """Chromium without a screen."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, choice: str = "") -> None:
        """Opens a page anew, and waits until its charts are drawn."""
        self.driver.get("about:blank")  # else a new choice alone would not load it
        self.driver.get(page.resolve().as_uri() + choice)
        self.wait_for_charts()

    def wait_for_charts(self) -> None:
        self.until(_ALL_DRAWN)

    def until(self, script: str, *words: object) -> Any:
        """Until the script returns something true; what that is."""
        return WebDriverWait(self.driver, PATIENCE_SECONDS).until(lambda driver: driver.execute_script(script, *words))

    def run(self, script: str, *words: object) -> Any:
        return self.driver.execute_script(script, *words)

    def text(self, selector: str) -> str:
        """What the first such element says, also one that is scrolled away."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(
            self.run("return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", selector)
        )

    def marks(self) -> list[tuple[str, int]]:
        """The charts in the page, each with how many marks it has."""
        return [(name, count) for name, count in self.run(_MARKS)]

    def complaints(self) -> list[str]:
        """What stands in the error console since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def is_dark(self, is_dark: bool) -> None:
        """What the user's system asks of pages."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def width(self, pixels: int, height: int = 900) -> None:
        metrics = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": pixels < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser, closed at the end of the block."""
    options = Options()
    # As root in a container Chromium has no sandbox and little shared memory.
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1100,1400",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = _found("chromium", "chromium-browser", "google-chrome")
    driver = webdriver.Chrome(options, Service(_found("chromedriver")))
    driver.set_page_load_timeout(PATIENCE_SECONDS)
    driver.set_script_timeout(PATIENCE_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def _found(*names: str) -> str:
    return next(found for name in names if (found := shutil.which(name)))
