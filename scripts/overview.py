"""Writes the overview of all runs, as a table for programs and as a page for the report."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from unbroken.report.overview import OverviewRow, overview_rows
from unbroken.runs.run import Run


def overview_table(rows: Sequence[OverviewRow]) -> pd.DataFrame:
    """One row a run, one column a field."""
    return pd.DataFrame([vars(row) for row in rows], columns=list(OverviewRow.__dataclass_fields__))


def overview(runs: Sequence[Run], table: Path, page: Path) -> None:
    """Writes the overview to a tab-separated file and to an HTML page."""
    frame = overview_table(overview_rows(runs, Path()))
    frame.to_csv(table, sep="\t", index=False)
    frame.to_html(page, index=False, na_rep="", border=0)


if __name__ == "__main__":
    outputs = snakemake.output  # type: ignore[name-defined]
    overview(snakemake.params.runs, Path(outputs.table), Path(outputs.page))  # type: ignore[name-defined]
