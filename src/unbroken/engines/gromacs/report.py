"""Which finished simulations have something to show in the Snakemake report, and what of it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from unbroken.engines.gromacs.energy import ENERGY_TABLE
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run

# What a chemist looks at first; a run without pressure coupling has no density worth a look.
SHOWN = ("Temperature", "Pressure", "Potential", "Density")
UNITS = {"Temperature": "K", "Pressure": "bar", "Potential": "kJ/mol", "Density": "kg/m³"}


def report_targets(runs: Iterable[Run], base: Path) -> list[str]:
    """The plots of those runs that have joined energies by now."""
    places = [RunFolder(run.name) for run in runs]
    done = [place for place in places if (base / place.final / ENERGY_TABLE).is_file()]
    return [str(place.root / "report" / "energies.svg") for place in done]
