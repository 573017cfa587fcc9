"""Show what became of each mutant, from what mutmut 3 leaves: `tools/mutants_table.py mutants [--write PAGE]`.

A mutant is killed if a test fails with it, or if it makes a test wait for ever.  `--write` puts the table between
`<!-- mutants -->` and `<!-- /mutants -->`; the names of those that no test sees are printed only: `mutmut show NAME`.
"""

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from marked import arguments, publish

# mutmut/stats.py: the exit codes of pytest and of its own.
KINDS = {0: "survived", 1: "killed", 3: "killed", 5: "no test", 33: "no test"}
KINDS |= dict.fromkeys((36, 24, -24, 152, 255), "timed out")
COLUMNS = ("killed", "timed out", "survived", "no test")


def found_in(folder: Path) -> dict[str, dict[str, str]]:
    """Return by module what became of each of its mutants by name."""
    found = {}
    for file in sorted(folder.rglob("*.py.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        module = file.relative_to(folder).as_posix().removeprefix("src/").removesuffix(".meta")
        found[module] = {name: KINDS.get(code, "not run") for name, code in codes.items()}
    return {module: kinds for module, kinds in found.items() if kinds}


def table(found: dict[str, dict[str, str]]) -> str:
    """Return a table of Markdown, and how many did not run."""
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
    chosen = arguments("Show what became of each mutant", "the folder in which mutmut works")
    if not (found := found_in(chosen.source)):
        sys.exit(f"{chosen.source}: no mutants here; type: make mutants")
    for kinds in found.values():
        for name, kind in kinds.items():
            if kind in ("survived", "no test"):
                print(f"{name}: {kind}")
    publish(table(found), "mutants", chosen.write, f"{datetime.now(UTC):%Y-%m-%d}")


if __name__ == "__main__":
    main()
