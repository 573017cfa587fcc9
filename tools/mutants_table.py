"""What became of each mutant, from what mutmut 3 leaves: `tools/mutants_table.py [mutants] [--write PAGE]`.

A mutant is killed if a test fails with it, or if it makes a test wait for ever.  `--write` puts the table between
`<!-- mutants -->` and `<!-- /mutants -->`; the names of those that no test sees are printed only: `mutmut show NAME`.
"""

import argparse
import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from marked import write_between

# mutmut/stats.py: the exit codes of pytest and of its own.
KINDS = {0: "survived", 1: "killed", 3: "killed", 5: "no test", 33: "no test"}
KINDS |= dict.fromkeys((36, 24, -24, 152, 255), "timed out")
COLUMNS = ("killed", "timed out", "survived", "no test")


def found_in(folder: Path) -> dict[str, dict[str, str]]:
    """By module, what became of each of its mutants by name."""
    found = {}
    for file in sorted(folder.rglob("*.py.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        module = file.relative_to(folder).as_posix().removeprefix("src/").removesuffix(".meta")
        found[module] = {name: KINDS.get(code, "not run") for name, code in codes.items()}
    return {module: kinds for module, kinds in found.items() if kinds}


def table(found: dict[str, dict[str, str]]) -> str:
    """A table of Markdown, and how many did not run."""
    lines = [f"| module | mutants | {' | '.join(COLUMNS)} |", f"|---|---|{'---|' * len(COLUMNS)}"]
    total: Counter[str] = Counter()
    for module, kinds in found.items():
        count = Counter(kinds.values())
        total += count
        lines.append(_row(f"`{module}`", count))
    lines.append(_row("all", total))
    return "\n".join([*lines, *([f"\n{total['not run']} did not run."] if total["not run"] else [])])


def _row(name: str, count: Counter[str]) -> str:
    return f"| {name} | {count.total()} | {' | '.join(str(count[kind]) for kind in COLUMNS)} |"


def main() -> None:
    """Print the table; write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("mutants"), help="where mutmut works")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    chosen = parser.parse_args()
    if not (found := found_in(chosen.folder)):
        sys.exit(f"{chosen.folder}: no mutants here; type: make mutants")
    for kinds in found.values():
        for name, kind in kinds.items():
            if kind in ("survived", "no test"):
                print(f"{name}: {kind}")
    text = table(found)
    print(text)
    if chosen.write:
        write_between(chosen.write, "mutants", f"{datetime.now(UTC):%Y-%m-%d}\n\n{text}")


if __name__ == "__main__":
    main()
