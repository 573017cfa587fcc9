"""Writes the overview of all runs as a table for programs."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from unbroken.report.overview import overview_rows
from unbroken.runs.run import Run


def overview(runs: Sequence[Run], table: Path) -> None:
    """Writes one row a run, one column a field, to a tab-separated file."""
    pd.DataFrame(overview_rows(runs, Path())).to_csv(table, sep="\t", index=False)


if __name__ == "__main__":
    overview(snakemake.params.runs, Path(snakemake.output[0]))  # type: ignore[name-defined]
