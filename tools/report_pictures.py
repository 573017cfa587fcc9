"""Takes the pictures of the report: of a real campaign with kills in its middle, of the same at its end, of 1,000 runs.

    .venv/bin/python tools/report_pictures.py

It needs torch, scikit-learn, gmx and chromium with its driver, and takes some minutes.  The thousand runs are made by
hand.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from picture import ROOT, prepare

sys.path.insert(0, str(ROOT / "tests"))
from support.browser import Browser, browser
from support.many_runs import make_runs
from support.workdir import WorkDir, until

from unbroken.report.page import write_report
from unbroken.runs.lease import newest_claim

DOCS = ROOT / "docs"
CONFIG = Path("config/config.yaml")
WIDTH, HEIGHT = 1000, 1250


def take(window: Browser, page: Path, picture: Path, choice: str = "") -> None:
    """The upper part of a page as a PNG."""
    window.width(WIDTH, HEIGHT)
    window.open(page, choice)
    time.sleep(1)  # until its charts have taken their width
    window.driver.save_screenshot(str(picture))
    print(f"{picture}: written", flush=True)


def kill_segment(work: WorkDir, run: str) -> None:
    """KILL to a segment's process, as a node that dies does."""
    claim = newest_claim(work.places(run).lease)
    if claim is not None and not claim.released_utc:
        os.kill(claim.pid, signal.SIGKILL)


def campaign(window: Browser, folder: Path) -> None:
    """A training and a simulation side by side, killed now and then."""
    prepare(folder)
    work = WorkDir(folder, words=("--retries", "5"), added_environment={"UNBROKEN_REPORT": "on"})
    driver = work.start("--cores", "3")
    for number in (3, 9):
        until(lambda wanted=number: len(work.history("digits")) >= wanted)
        time.sleep(3)
        kill_segment(work, "digits")
    until(lambda: len(work.history("peptide")) >= 4)
    kill_segment(work, "peptide")
    until(lambda: len(work.history("digits")) >= 11)
    time.sleep(8)
    take(window, folder / "results" / "report.html", DOCS / "report.png", "#open=digits")
    driver.wait()
    take(window, folder / "results" / "report.html", DOCS / "report-finished.png")
    work.kill_everything()


def thousand(window: Browser, folder: Path) -> None:
    """Many runs on one page."""
    make_runs(folder, 1000, metrics=0, checkpoints=1)
    page = folder / "results" / "report.html"
    write_report(folder, CONFIG, (), page)
    take(window, page, DOCS / "report-1000.png")


def main() -> None:
    """The command."""
    with browser() as window, tempfile.TemporaryDirectory() as name:
        for make, folder in ((campaign, Path(name, "campaign")), (thousand, Path(name, "sweep"))):
            folder.mkdir()
            make(window, folder)


if __name__ == "__main__":
    main()
