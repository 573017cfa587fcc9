"""Say what the runs of all presets came to: `tools/preset_table.py FILE [--write PAGE]`.

FILE has a line of JSON for each case (tests/presets/test_programs.py); of one case the last counts.  `--write` puts the
table between `<!-- presets -->` and `<!-- /presets -->` of a page.
"""

import json
from pathlib import Path

from marked import arguments, publish

from unbroken.presets.preset import presets

COLUMNS = "case | version | kills | in a save | segments | runs | equal, as its page says | day"


def table(lines: list[str]) -> str:
    """Return a row for each case, in alphabetical order."""
    rows = {row.get("case", row["preset"]): row for row in map(json.loads, lines)}
    known = presets(Path())
    said = [f"| {COLUMNS} |", "|" + "---|" * (COLUMNS.count("|") + 1)]
    for name in sorted(rows):
        row, preset = rows[name], known[rows[name]["preset"]]
        version = "a stand-in" if preset.stand_in else row["version"]
        numbers = [f"{row[key]:,}" for key in ("kills", "in_a_save", "segments", "runs")]
        said.append(
            "| "
            + " | ".join([name, version, *numbers, f"[{preset.name}](presets/{preset.name}.md)", row["day"]])
            + " |"
        )
    return "\n".join(said)


def main() -> None:
    """Print the table; write it where that is asked for."""
    chosen = arguments("Say what the runs of all presets came to", "a file with a line of JSON for each case")
    publish(table(chosen.source.read_text().splitlines()), "presets", chosen.write)


if __name__ == "__main__":
    main()
