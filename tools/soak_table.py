"""Sum what all soaks came to, for each engine: `tools/soak_table.py FILE [--write PAGE]`.

FILE has a line of JSON for each soak (tests/cluster/test_soak.py). `--write` puts the table between `<!-- soak -->` and
`<!-- /soak -->` of a page.
"""

import json
from collections import Counter

from marked import arguments, publish

COLUMNS = "engine | driver | minutes | runs | kills | other accidents | lost checkpoints | wrong results | last"


def table(lines: list[str]) -> str:
    """Return a row for each engine and way to drive it, then the sum; the day is that of the last soak."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    days: dict[tuple[str, str], str] = {}
    for soak in map(json.loads, lines):
        for row in ((soak["engine"], soak["how"]), ("all", "")):
            count = sums.setdefault(row, Counter())
            count.update({key: soak[key] for key in ("minutes", "runs", "lost", "wrong")})
            count.update(kills=sum(soak["kills"].values()), others=sum(soak["others"].values()))
            days[row] = max(days.get(row, ""), soak["day"])
    said = [f"| {COLUMNS} |", "|" + "---|" * (COLUMNS.count("|") + 1)]
    for row in sorted(sums, key=lambda each: (each[0] == "all", each)):
        count = sums[row]
        numbers = [f"{count[key]:,}" for key in ("minutes", "runs", "kills", "others", "lost", "wrong")]
        said.append("| " + " | ".join([*row, *numbers, days[row]]) + " |")
    return "\n".join(said)


def main() -> None:
    """Print the table; write it where that is asked for."""
    chosen = arguments("Sum all soaks", "a file with a line of JSON for each soak")
    publish(table(chosen.source.read_text().splitlines()), "soak", chosen.write)


if __name__ == "__main__":
    main()
