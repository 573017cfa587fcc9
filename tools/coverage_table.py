"""Show what the tests reach of each room, from the JSON of coverage.py: `tools/coverage_table.py FILE [--write PAGE]`.

A room's share is that of coverage.py: lines and branches that ran, of all lines and branches. Of the rooms that hold
every promise the modules below LEAST per cent are named, the least first; of the others they are counted. `--write`
puts the table between `<!-- coverage -->` and `<!-- /coverage -->`.
"""

import json
from collections import defaultdict
from datetime import UTC, datetime

from marked import arguments, publish

LEAST = 95.0
NAMED = ("store", "job", "executor")


class Count:
    """Count lines and branches: how many there are, and how many ran."""

    def __init__(self) -> None:
        self.lines = self.ran = self.branches = self.taken = 0

    def add(self, summary: dict) -> None:
        """Add what coverage.py says of one file."""
        self.lines += summary["num_statements"]
        self.ran += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.taken += summary["covered_branches"]

    @property
    def percent(self) -> float:
        """Return the share; 100 where there is nothing to run."""
        there = self.lines + self.branches
        return 100 * (self.ran + self.taken) / there if there else 100.0


def table(found: dict) -> str:
    """Return the rooms as a table of Markdown, then the modules below LEAST."""
    rooms: defaultdict[str, Count] = defaultdict(Count)
    modules: dict[str, Count] = {}
    for file, entry in found["files"].items():
        if not file.startswith("src/"):  # what a test has copied elsewhere
            continue
        module = file.removeprefix("src/")
        modules[module] = Count()
        for count in (modules[module], rooms[_room(module)], rooms["all"]):
            count.add(entry["summary"])
    rooms["all"] = rooms.pop("all")  # last
    lines = ["| room | lines | ran | branches | taken | both |", "|---|---|---|---|---|---|"]
    for name, count in rooms.items():
        lines.append(
            f"| {name} | {count.lines} | {count.ran} | {count.branches} | {count.taken} | {count.percent:.1f} % |"
        )
    low = sorted((count.percent, module) for module, count in modules.items() if count.percent < LEAST)
    named = [f"`{module}` {percent:.0f} %" for percent, module in low if _room(module) in NAMED]
    others = f"Elsewhere {len(low) - len(named)} of {len(modules)} modules."
    return "\n".join([*lines, "", f"Below {LEAST:.0f} % in {', '.join(NAMED)}: {', '.join(named) or 'none'}. {others}"])


def _room(module: str) -> str:
    parts = module.split("/")
    return "executor" if parts[0] != "unbroken" else parts[1] if len(parts) > 2 else "unbroken"


def main() -> None:
    """Print the table; write it where that is asked for."""
    chosen = arguments("Show what the tests reach of each room", "what `coverage json` wrote")
    text = table(json.loads(chosen.source.read_text()))
    publish(text, "coverage", chosen.write, f"{datetime.now(UTC):%Y-%m-%d}")


if __name__ == "__main__":
    main()
