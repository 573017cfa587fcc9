"""Draws docs/console.svg: the screen of a real chain, a training and a simulation side by side, in its middle.

    .venv/bin/python tools/picture.py

It needs torch, scikit-learn and gmx, and takes a minute.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.terminal import Terminal  # noqa: E402
from support.workdir import BIN, WorkDir  # noqa: E402

PICTURE = ROOT / "docs" / "console.svg"
COLUMNS, LINES = 104, 16
# Black, red, green, yellow, blue, magenta, cyan, white.
COLORS = ["1b1e24", "e06c75", "98c379", "e5c07b", "61afef", "c678dd", "56b6c2", "dcdfe4"]
RGB = [(int(each[:2], 16), int(each[2:4], 16), int(each[4:], 16)) for each in COLORS]
THEME = TerminalTheme(RGB[0], RGB[-1], RGB, RGB)


def prepare(folder: Path) -> None:
    """Two of the examples as two runs of one folder."""
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
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": runs}, sort_keys=False))


def screen_of(folder: Path) -> list[list[tuple[str, str]]]:
    """The lines of the screen once both runs have been through some segments: pieces of text, each with its style."""
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
    """An SVG without anything that has to be fetched."""
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


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        PICTURE.write_text(drawn(screen_of(Path(name))))
    print(f"{PICTURE}: written")


if __name__ == "__main__":
    main()
