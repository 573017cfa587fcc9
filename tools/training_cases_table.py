"""Say what the training cases came to: `tools/training_cases_table.py FILE [--write PAGE]`.

FILE has a line of JSON for each case (tests/training_cases/test_cases.py); of one case the last counts.  `--write` puts
the table between `<!-- training-cases -->` and `<!-- /training-cases -->` of a page.
"""

import json
import sys
from pathlib import Path

from marked import arguments, publish

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.training_cases import CASES, Case, read_case

COLUMNS = "training | framework | hard to resume | how ported | lines | kills | in a save | result"


def table(lines: list[str]) -> str:
    """Return a row for each case that was run, in the order of frameworks and titles."""
    rows = {row["case"]: row for row in map(json.loads, lines)}
    cases = [read_case(name) for name in rows if (CASES / name / "case.yaml").is_file()]
    cases.sort(key=lambda case: (not case.framework.startswith("PyTorch"), case.framework, case.title.lower()))
    said = [f"| {COLUMNS} |", "|" + "---|" * (COLUMNS.count("|") + 1)]
    return "\n".join([*said, *(_row(case, rows[case.name]) for case in cases), "", _summary(cases, rows)])


def _row(case: Case, row: dict[str, int]) -> str:
    gone, came = case.changed_lines()
    equal = "equal, to the script before too" if case.computes else "equal"
    result = f"refused: `{case.message}`" if case.is_refused else equal
    kills = ["", ""] if case.is_refused else [f"{row['kills']:,}", f"{row['in_a_save']:,}"]
    cells = [
        f"[{case.title}]({case.source})",
        case.framework,
        case.hard,
        case.change,
        f"+{came} -{gone}",
        *kills,
        result,
    ]
    return "| " + " | ".join(cells) + " |"


def _summary(cases: list[Case], rows: dict[str, dict[str, int]]) -> str:
    kills = sum(row["kills"] for row in rows.values())
    refused = sum(case.is_refused for case in cases)
    return f"{len(cases)} trainings, {len(cases) - refused} equal after {kills:,} kills, {refused} refused."


def main() -> None:
    """Print the table; write it where that is asked for."""
    chosen = arguments("Say what the training cases came to", "a file with a line of JSON for each case")
    publish(table(chosen.source.read_text().splitlines()), "training-cases", chosen.write)


if __name__ == "__main__":
    main()
