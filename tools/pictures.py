"""Draw the pictures of the docs: `.venv/bin/python tools/pictures.py console|report`.

console: docs/console.svg, the screen of a training and a simulation side by side, in the middle of their chains.
report: docs/report*.png, the page of these two with kills, in their middle and at their end, and of 1,000 made-up runs.
Both need torch, scikit-learn and gmx, and take minutes; `report` needs chromium with its driver.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.browser import Browser, browser  # noqa: E402
from support.many_runs import make_runs  # noqa: E402
from support.terminal import Terminal  # noqa: E402
from support.workdir import BIN, WorkDir, until  # noqa: E402

from unbroken.report.page import write_report  # noqa: E402
from unbroken.store.lease import newest_claim  # noqa: E402

DOCS = ROOT / "docs"
CONFIG = Path("config/config.yaml")
COLUMNS, LINES = 104, 16
WIDTH, HEIGHT = 1000, 1250
# Black, red, green, yellow, blue, magenta, cyan, white.
COLORS = ["1b1e24", "e06c75", "98c379", "e5c07b", "61afef", "c678dd", "56b6c2", "dcdfe4"]
RGB = [(int(each[:2], 16), int(each[2:4], 16), int(each[4:], 16)) for each in COLORS]
THEME = TerminalTheme(RGB[0], RGB[-1], RGB, RGB)


def prepare(folder: Path) -> None:
    """Make two of the examples two runs of one folder."""
    shutil.copy(ROOT / "examples" / "torch" / "train.py", folder)
    water = ROOT / "examples" / "gromacs"
    system = folder / "gromacs"
    shutil.copytree(water, system, ignore=shutil.ignore_patterns("results", "logs", "system", ".snakemake", "config"))
    subprocess.run([system / "build.sh"], check=True, capture_output=True)
    short = {"save_minutes": 0.03, "segment_minutes": 0.15}
    runs = {
        "digits": {
            **short,
            "engine": "torch",
            "segments": 20,
            "settings": {"script": "train.py", "goal": 60, "goal_unit": "epochs", "args": ["--pause-seconds", 0.06]},
        },
        "peptide": {
            **short,
            "engine": "gromacs",
            "segments": 20,
            "settings": {
                "mdp": "gromacs/md.mdp",
                "structure": "gromacs/system/conf.gro",
                "topology": "gromacs/system/topol.top",
                "goal": 60000,
            },
        },
        "baseline": {"engine": "toy", "segments": 5, "segment_minutes": 1, "settings": {"goal": 200}},
    }
    (folder / "config").mkdir()
    (folder / CONFIG).write_text(yaml.safe_dump({"runs": runs}, sort_keys=False))


def screen_of(folder: Path) -> list[list[tuple[str, str]]]:
    """Return the lines of the screen once both runs have been through some segments: text with its style."""
    work = WorkDir(folder, added_environment={"UNBROKEN_CONSOLE": ""})
    environment = {**work.environment(), "PATH": f"{BIN}:{work.environment()['PATH']}"}
    command = [str(BIN / "unbroken"), "run", "--", "--cores", "3"]
    with Terminal(command, folder, environment, COLUMNS, LINES) as terminal:
        terminal.wait_for(r"segment 3 of 20: saved")
        terminal.wait_for(r"^3 runs: working 2")
        lines = terminal.styled
        terminal.type("\x03")
        terminal.wait()
    return [line for line in lines if not "".join(text for text, _ in line).startswith(("Using ", "ault "))]


def drawn(lines: list[list[tuple[str, str]]]) -> str:
    """Return an SVG without anything that has to be fetched."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        text = Text(no_wrap=True)
        for piece, style in line:
            # Whose machine it was is nobody's business.
            text.append(piece.replace(f" on {os.uname().nodename} ", " on laptop "), style=style)
        console.print(text)
    start, fonts = CONSOLE_SVG_FORMAT.index("@font-face"), CONSOLE_SVG_FORMAT.index(".{unique_id}-matrix")
    plain = (CONSOLE_SVG_FORMAT[:start] + CONSOLE_SVG_FORMAT[fonts:]).replace("Fira Code, monospace", "monospace")
    return console.export_svg(title="unbroken run", theme=THEME, code_format=plain, unique_id="unbroken")


def take(window: Browser, page: Path, picture: Path, choice: str = "") -> None:
    """Save the upper part of a page as a PNG."""
    window.width(WIDTH, HEIGHT)
    window.open(page, choice)
    time.sleep(1)  # until its charts have taken their width
    window.driver.save_screenshot(str(picture))
    print(f"{picture}: written", flush=True)


def kill_segment(work: WorkDir, run: str) -> None:
    """Kill a segment's process, as a node that dies does."""
    claim = newest_claim(work.places(run).lease)
    if claim is not None and not claim.released_utc:
        os.kill(claim.pid, signal.SIGKILL)


def campaign(window: Browser, folder: Path) -> None:
    """Run a training and a simulation side by side, killed now and then."""
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
    """Show many runs on one page."""
    make_runs(folder, 1000, metrics=0, checkpoints=1)
    page = folder / "results" / "report.html"
    write_report(folder, CONFIG, (), page)
    take(window, page, DOCS / "report-1000.png")


def main() -> None:
    """Draw what is asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if sys.argv[1:] == ["console"]:
            prepare(folder)
            (DOCS / "console.svg").write_text(drawn(screen_of(folder)))
        elif sys.argv[1:] == ["report"]:
            with browser() as window:
                for make in (campaign, thousand):
                    (folder / make.__name__).mkdir()
                    make(window, folder / make.__name__)
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
