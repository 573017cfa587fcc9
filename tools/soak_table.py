"""What all soaks came to, summed for each engine: `tools/soak_table.py FILE [--write PAGE]`.

FILE has a line of JSON for each soak (tests/cluster/test_soak.py). `--write` puts the table between `<!-- soak -->` and
`<!-- /soak -->` of a page.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from marked import write_between

COLUMNS = (
    "engine",
    "driver",
    "minutes",
    "runs",
    "kills",
    "other accidents",
    "lost checkpoints",
    "wrong results",
    "last",
)


def table(lines: list[str]) -> str:
    """A row for each engine and way to drive it, then the sum; the day is that of the last soak."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    days: dict[tuple[str, str], str] = {}
    for soak in map(json.loads, lines):
        for row in ((soak["engine"], soak["how"]), ("all", "")):
            count = sums.setdefault(row, Counter())
            count.update({key: soak[key] for key in ("minutes", "runs", "lost", "wrong")})
            count.update(kills=sum(soak["kills"].values()), others=sum(soak["others"].values()))
            days[row] = max(days.get(row, ""), soak["day"])
    said = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in sorted(sums, key=lambda each: (each[0] == "all", each)):
        count = sums[row]
        numbers = [f"{count[key]:,}" for key in ("minutes", "runs", "kills", "others", "lost", "wrong")]
        said.append("| " + " | ".join([*row, *numbers, days[row]]) + " |")
    return "\n".join(said)


def main() -> None:
    """Print the table; write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("file", type=Path, help="a line of JSON for each soak")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    chosen = parser.parse_args()
    text = table(chosen.file.read_text().splitlines())
    print(text)
    if chosen.write:
        write_between(chosen.write, "soak", text)


if __name__ == "__main__":
    main()
