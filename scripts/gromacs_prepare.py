"""Makes the tpr of a run by grompp, once; its record says of what."""

import sys
from pathlib import Path

from unbroken.engines.gromacs.tpr import NOTE, prepare
from unbroken.errors import UnbrokenError
from unbroken.store.run import RunSpec
from unbroken.system import fs


def gromacs_prepare(run: RunSpec, record: Path, log: Path) -> None:
    """Leaves the tpr in the run's folder, and writes the record; exit code 1 and grompp's own words if it cannot."""
    try:
        tpr = prepare(run, Path())
    except UnbrokenError as error:
        log.write_text(f"{error.line}\n")
        print(f"unbroken: runs.{run.name}: {error.line}", file=sys.stderr)
        sys.exit(1)
    log.write_text(f"made {tpr}\n")
    fs.write_atomic(record, (tpr.parent / NOTE).read_text())


if __name__ == "__main__":
    run = snakemake.params.assignment.run  # type: ignore[name-defined]
    gromacs_prepare(run, Path(snakemake.output.record), Path(snakemake.log[0]))  # type: ignore[name-defined]
